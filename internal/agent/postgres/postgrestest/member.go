//go:build postgres

package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/accounts"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rewind"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/slots"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// Member is one, with the server that runs on its volume, if one does.
type Member struct {
	*rolechange.Server
	w    *World
	t    *testing.T
	Name string
	// Volume and Run are directories.
	Volume, Run string
	Lock        *volumelock.VolumeLock
	// Session is the reserved connection to the server.
	Session    *server.Session
	port       int
	postmaster *server.Postmaster
	parameters map[string]string
	heard      atomic.Pointer[func(line string)]
}

// PGData is the data directory.
func (m *Member) PGData() string { return filepath.Join(m.Volume, "pgdata") }

// SetParameter sets a parameter for the next start.
func (m *Member) SetParameter(name, value string) { m.parameters[name] = value }

// SetHeard has each line of the server's text log heard from now on.
func (m *Member) SetHeard(heard func(line string)) { m.heard.Store(&heard) }

func (m *Member) hear(line string) {
	if heard := m.heard.Load(); heard != nil {
		(*heard)(line)
	}
}

// Connect opens another session of the superuser, until the test ends.
func (m *Member) Connect() *pgx.Conn {
	m.t.Helper()
	conn, err := pgx.Connect(m.t.Context(), fmt.Sprintf("host=%s port=%d user=postgres dbname=%s", m.Run, m.port, settings.AgentDatabase))
	if err != nil {
		m.t.Fatalf("%s: %v", m.Name, err)
	}
	m.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Input is what the settings of the server are computed from.
func (m *Member) Input(live rolechange.Live) settings.Input {
	return settings.Input{
		Major: m.w.Programs.Major, Member: m.Name, Port: m.port, RunDir: m.Run, Parameters: m.parameters, InPlace: true,
		Upstream: live.Upstream, SynchronousNames: live.SynchronousNames, Promoting: live.Promoting,
		Archive: m.parameters["archive_command"],
	}
}

func (m *Member) configure(ctx context.Context, live rolechange.Live) error {
	candidate := filepath.Join(m.Run, "candidate.conf")
	if err := os.WriteFile(candidate, []byte(settings.RenderSettings(settings.ComputeSettings(m.Input(live)))), 0o600); err != nil {
		return err
	}
	if err := os.Rename(candidate, filepath.Join(m.Run, "postgresql.conf")); err != nil {
		return err
	}
	return ctx.Err()
}

// begin starts the server, and does not wait for it.
func (m *Member) begin(live rolechange.Live) {
	m.t.Helper()
	if err := m.configure(m.t.Context(), live); err != nil {
		m.t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(m.PGData(), "postmaster.pid"))
	sockets, _ := filepath.Glob(filepath.Join(m.Run, ".s.PGSQL.*"))
	for _, socket := range sockets {
		_ = os.Remove(socket)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("pod", m.Name)
	started, err := m.w.Programs.StartPostmaster(m.PGData(), filepath.Join(m.Run, "postgresql.conf"), m.Lock, m.hear, settings.ServerArguments(m.Input(live)))
	if err != nil {
		m.t.Fatal(err)
	}
	m.postmaster, m.Session = started, server.NewSession(m.Run, m.port, "holdfast")
	m.Server = rolechange.NewServer(rolechange.Options{
		Log: log, PGData: m.PGData(), Programs: m.w.Programs, Postmaster: started, Lock: m.Lock, Session: m.Session,
		RunDir: m.Run, Port: m.port, Started: live, Configure: m.configure,
	})
}

// Start starts the server, and waits until it answers.
func (m *Member) Start(live rolechange.Live) {
	m.t.Helper()
	m.begin(live)
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(m.t.Context(), time.Second)
		err := m.Session.Do(ctx, func(ctx context.Context, c *pgx.Conn) error { return c.Ping(ctx) })
		cancel()
		if err == nil {
			return
		}
		select {
		case <-m.postmaster.Done():
			m.t.Fatalf("%s: the server ended: %s", m.Name, m.postmaster.EndReason())
		default:
		}
		if time.Now().After(end) {
			m.t.Fatalf("%s: the server does not answer: %v", m.Name, err)
		}
	}
}

// StartStandby starts what is on the volume as a standby that receives nothing.
func (m *Member) StartStandby() rolechange.HeldWAL {
	m.t.Helper()
	held, err := rolechange.PrepareStandby(m.t.Context(), m.w.Programs, m.PGData())
	if err != nil {
		m.t.Fatalf("%s: %v", m.Name, err)
	}
	m.Start(rolechange.Live{})
	if got := m.One("select pg_is_in_recovery()::text"); got != "true" {
		m.t.Fatalf("%s is a primary", m.Name)
	}
	return held
}

// StartRewound starts data that was rewound to a primary, which it receives from until it
// is consistent.
func (m *Member) StartRewound(primary *Member) {
	m.t.Helper()
	if err := rolechange.PrepareRewound(m.t.Context(), m.w.Programs, m.PGData()); err != nil {
		m.t.Fatalf("%s: %v", m.Name, err)
	}
	m.Start(rolechange.Live{Upstream: m.ConnectionTo(primary).String()})
	progress, err := rewind.ReadProgress(m.Volume)
	if err != nil || progress.Stage != rewind.StageRewound {
		m.t.Fatalf("%s: %+v, %v", m.Name, progress, err)
	}
	m.Until(fmt.Sprintf("pg_last_wal_replay_lsn() >= '%s'", wal.FormatPosition(progress.Consistent.Position)))
	if err := rewind.Complete(m.Volume); err != nil {
		m.t.Fatalf("%s: %v", m.Name, err)
	}
}

// Kill kills every process of the server at once, as the end of a machine does.
func (m *Member) Kill() {
	if m.postmaster == nil {
		return
	}
	m.Session.Close()
	m.Lock.KillHolders()
	if err := m.postmaster.StopAtOnce(); err != nil {
		m.t.Error(err)
	}
	m.postmaster = nil
}

// StopInOrder shuts the server down.
func (m *Member) StopInOrder() {
	m.t.Helper()
	m.Session.Close()
	if !m.postmaster.StopInOrder(limit) {
		m.t.Fatalf("%s does not shut down in order: %s", m.Name, m.postmaster.EndReason())
	}
	m.postmaster = nil
}

// CloneTo copies the data of a running primary, as pg_basebackup does.
func (m *Member) CloneTo(to *Member) {
	m.t.Helper()
	connection := to.ConnectionTo(m)
	connection.Application = settings.CopyApplication
	_, err := m.w.Programs.Run(m.t.Context(), "pg_basebackup", "--pgdata="+to.PGData(), "--dbname="+connection.String(), "--wal-method=stream", "--checkpoint=fast", "--no-sync", "--no-password")
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := rolechange.PrepareStandby(m.t.Context(), m.w.Programs, to.PGData()); err != nil {
		m.t.Fatal(err)
	}
}

// ConnectionTo is how this member streams from another one.
func (m *Member) ConnectionTo(primary *Member) settings.PrimaryConnection {
	return settings.PrimaryConnection{Pod: net.JoinHostPort("localhost", strconv.Itoa(primary.port)), Member: m.Name, RunDir: m.Run}
}

// Join has a standby follow a primary.
func (m *Member) Join(primary *Member, timeline int64) {
	m.t.Helper()
	if err := m.TryJoin(primary, timeline); err != nil {
		m.t.Fatalf("%s does not follow %s: %v", m.Name, primary.Name, err)
	}
}

// TryJoin is Join that may fail.
func (m *Member) TryJoin(primary *Member, timeline int64) error {
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	return m.Follow(ctx, rolechange.Target{Connection: m.ConnectionTo(primary), Timeline: timeline})
}

// EndReceiver has a standby receive nothing more.
func (m *Member) EndReceiver() rolechange.HeldWAL {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	held, err := m.StopReceiver(ctx)
	if err != nil {
		m.t.Fatalf("%s: %v", m.Name, err)
	}
	return held
}

// Lead promotes a standby.
func (m *Member) Lead(timeline int64, quorum rolechange.Quorum) rolechange.Promoted {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	promoted, err := m.Promote(ctx, rolechange.Promotion{Timeline: timeline, Quorum: quorum})
	if err != nil {
		m.t.Fatalf("%s: %v", m.Name, err)
	}
	m.EnsureSlots()
	return promoted
}

// EnsureRoles makes the roles that members connect as.
func (m *Member) EnsureRoles() {
	m.t.Helper()
	err := m.Session.Do(m.t.Context(), func(ctx context.Context, c *pgx.Conn) error {
		return errors.Join(accounts.EnsureReplicationRole(ctx, c), accounts.EnsureRewindRole(ctx, c))
	})
	if err != nil {
		m.t.Fatalf("%s: %v", m.Name, err)
	}
}

// EnsureSlots makes a primary's slots for all other members.
func (m *Member) EnsureSlots() {
	m.t.Helper()
	var names []string
	for _, other := range m.w.Members {
		names = append(names, other.Name)
	}
	if err := m.Session.Do(m.t.Context(), func(ctx context.Context, c *pgx.Conn) error {
		return slots.KeepSlots(ctx, c, names, slots.Own{Member: m.Name, Primary: true}, nil)
	}); err != nil {
		m.t.Fatal(err)
	}
}

// Exec runs statements as the superuser.
func (m *Member) Exec(statements ...string) {
	m.t.Helper()
	for _, sql := range statements {
		err := m.Session.Do(m.t.Context(), func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, sql)
			return err
		})
		if err != nil {
			m.t.Fatalf("%s: %s: %v", m.Name, sql, err)
		}
	}
}

// One reads one text.
func (m *Member) One(sql string) (got string) {
	m.t.Helper()
	err := m.Session.Do(m.t.Context(), func(ctx context.Context, c *pgx.Conn) error { return c.QueryRow(ctx, sql).Scan(&got) })
	if err != nil {
		m.t.Fatalf("%s: %s: %v", m.Name, sql, err)
	}
	return got
}

// Until waits until a query says true.
func (m *Member) Until(sql string) {
	m.t.Helper()
	for end := time.Now().Add(limit); m.One("select ("+sql+")::text") != "true"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("%s: never: %s", m.Name, sql)
		}
	}
}

// WaitStreams waits until a standby streams.
func (m *Member) WaitStreams() {
	m.t.Helper()
	m.Until("exists (select from pg_stat_wal_receiver where status = 'streaming')")
}

// Fill writes rows that distinguish one history from another.
func (m *Member) Fill(tag string, rows int) {
	m.t.Helper()
	m.Exec("create table if not exists public.ledger (n bigserial primary key, tag text, pad text)",
		fmt.Sprintf("insert into public.ledger (tag, pad) select '%s', repeat(md5(g::text), 8) from generate_series(1, %d) g", tag, rows))
}

// Content is a checksum per table, read from the tables themselves.
func (m *Member) Content() string {
	m.t.Helper()
	var sums []string
	err := m.Session.Do(m.t.Context(), func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, "select quote_ident(relname) from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r' order by 1")
		if err != nil {
			return err
		}
		tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, table := range tables {
			var sum string
			if err == nil {
				err = c.QueryRow(ctx, "select count(*) || ':' || coalesce(sum(hashtextextended(t::text, 0)), 0) from public."+table+" t").Scan(&sum)
			}
			sums = append(sums, table+"="+sum)
		}
		return err
	})
	if err != nil {
		m.t.Fatalf("read the tables: %v", err)
	}
	return strings.Join(sums, " ")
}

// SameContent waits until standbys have replayed what the primary has, and compares
// the tables.
func (m *Member) SameContent(standbys ...*Member) {
	m.t.Helper()
	flushed := m.One("select pg_current_wal_flush_lsn()::text")
	want := m.Content()
	for _, standby := range standbys {
		standby.Until("pg_last_wal_replay_lsn() >= '" + flushed + "'")
		if got := standby.Content(); got != want {
			m.t.Errorf("%s holds %s, and %s %s", standby.Name, got, m.Name, want)
		}
	}
}
