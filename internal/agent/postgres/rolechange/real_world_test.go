//go:build postgres

// These tests run several servers of the PostgreSQL of this machine, with the
// settings, accounts and certificates of members. PostgreSQL refuses to run as root.
package rolechange

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/slots"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// limit is how long anything may take before a test fails.
const limit = time.Minute

// world are the members of one cluster.
type world struct {
	t        *testing.T
	programs server.Programs
	tls      string
	members  []*member
}

// member is one, with the server that runs on its volume, if one does.
type member struct {
	*Server
	w           *world
	t           *testing.T
	name        string
	volume, run string
	port        int
	lock        *volumelock.VolumeLock
	postmaster  *server.Postmaster
	session     *server.Session
	parameters  map[string]string
	floors      map[string]int64
	archives    bool
}

// template is a data directory that is made once.
var template struct {
	once sync.Once
	dir  string
	err  error
}

// newWorld makes a primary, the first member, and standbys that stream from it.
func newWorld(t *testing.T, members int, parameters map[string]string) *world {
	t.Helper()
	bin, err := server.FindPrograms()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, programs: server.Programs{Programs: process.Programs{Dir: bin, Processes: process.NewProcesses()}}, tls: t.TempDir()}
	if _, w.programs.Major, err = w.programs.ReadVersion(t.Context()); err != nil {
		t.Fatal(err)
	}
	writeCertificate(t, w.tls)
	for i := range members {
		w.members = append(w.members, w.newMember("orders-"+strconv.Itoa(i), parameters))
	}
	primary := w.members[0]
	copyDirectory(t, initialData(t, w.programs), primary.pgdata())
	primary.start(Live{})
	primary.exec("create role " + settings.ReplicationRole + " login replication")
	primary.ensureSlots()
	primary.fill("first", 100)
	for _, standby := range w.members[1:] {
		primary.cloneTo(standby)
		standby.start(Live{Upstream: standby.connectionTo(primary).String()})
		standby.waitStreams()
	}
	return w
}

func initialData(t *testing.T, programs server.Programs) string {
	t.Helper()
	template.once.Do(func() {
		if template.dir, template.err = os.MkdirTemp("/tmp", "hfdata"); template.err == nil {
			// Small segments, so that WAL of many of them is quickly written.
			_, template.err = programs.Run(context.Background(), "initdb", "--pgdata="+template.dir+"/pgdata", "--username=postgres", "--encoding=UTF8",
				"--data-checksums", "--wal-segsize=1", "--no-sync", "--locale=C.UTF-8", "--no-instructions", "--auth-local=peer", "--auth-host=scram-sha-256")
		}
	})
	if template.err != nil {
		t.Fatal(template.err)
	}
	return template.dir + "/pgdata"
}

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(template.dir)
	os.Exit(code)
}

func (w *world) newMember(name string, parameters map[string]string) *member {
	w.t.Helper()
	volume := w.t.TempDir()
	run, err := os.MkdirTemp("/tmp", "hf") // a socket's path is short
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = os.RemoveAll(run) })
	m := &member{w: w, t: w.t, name: name, volume: volume, run: run, port: freePort(w.t), parameters: map[string]string{
		"shared_buffers": "16MB", "max_connections": "40", "autovacuum": "off", "max_wal_size": "256MB", "wal_keep_size": "16MB",
	}}
	for name, value := range parameters {
		m.parameters[name] = value
	}
	for from, to := range map[string][]string{"tls.crt": {"tls.crt", "server.crt"}, "tls.key": {"tls.key", "server.key"}, "ca.crt": {"ca.crt", "roots.crt"}} {
		data, err := os.ReadFile(filepath.Join(w.tls, from))
		if err != nil {
			w.t.Fatal(err)
		}
		for _, name := range to {
			mustWrite(w.t, filepath.Join(run, "tls", name), string(data))
		}
	}
	own, err := user.Current()
	if err != nil {
		w.t.Fatal(err)
	}
	mustWrite(w.t, filepath.Join(run, "pg_hba.conf"), settings.RenderHBA())
	mustWrite(w.t, filepath.Join(run, "pg_ident.conf"), settings.RenderIdent(own.Username, agentapi.MemberName))
	if m.lock, err = volumelock.LockVolume(volume); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		m.kill()
		_ = m.lock.Close()
	})
	return m
}

func (m *member) pgdata() string { return filepath.Join(m.volume, "pgdata") }

func (m *member) input(live Live) settings.Input {
	in := settings.Input{
		Major: m.w.programs.Major, Member: m.name, Port: m.port, RunDir: m.run, Parameters: m.parameters, InPlace: true, Floors: m.floors,
		Upstream: live.Upstream, SynchronousNames: live.SynchronousNames, Promoting: live.Promoting,
	}
	if m.archives {
		in.Archive = "true"
	}
	return in
}

func (m *member) configure(ctx context.Context, live Live) error {
	candidate := filepath.Join(m.run, "candidate.conf")
	if err := os.WriteFile(candidate, []byte(settings.RenderSettings(settings.ComputeSettings(m.input(live)))), 0o600); err != nil {
		return err
	}
	if err := os.Rename(candidate, filepath.Join(m.run, "postgresql.conf")); err != nil {
		return err
	}
	return ctx.Err()
}

// begin starts the server, and does not wait for it.
func (m *member) begin(live Live) {
	m.t.Helper()
	if err := m.configure(m.t.Context(), live); err != nil {
		m.t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(m.pgdata(), "postmaster.pid"))
	sockets, _ := filepath.Glob(filepath.Join(m.run, ".s.PGSQL.*"))
	for _, socket := range sockets {
		_ = os.Remove(socket)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("pod", m.name)
	started, err := m.w.programs.StartPostmaster(m.pgdata(), filepath.Join(m.run, "postgresql.conf"), m.lock, func(string) {}, settings.ServerArguments(m.input(live)))
	if err != nil {
		m.t.Fatal(err)
	}
	m.postmaster, m.session = started, server.NewSession(m.run, m.port, "holdfast")
	m.Server = NewServer(Options{
		Log: log, PGData: m.pgdata(), Programs: m.w.programs, Postmaster: started, Lock: m.lock, Session: m.session,
		RunDir: m.run, Port: m.port, Started: live, Configure: m.configure,
	})
}

// start starts the server, and waits until it answers.
func (m *member) start(live Live) {
	m.t.Helper()
	m.begin(live)
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(m.t.Context(), time.Second)
		err := m.session.Do(ctx, func(ctx context.Context, c *pgx.Conn) error { return c.Ping(ctx) })
		cancel()
		if err == nil {
			return
		}
		select {
		case <-m.postmaster.Done():
			m.t.Fatalf("%s: the server ended: %s", m.name, m.postmaster.EndReason())
		default:
		}
		if time.Now().After(end) {
			m.t.Fatalf("%s: the server does not answer: %v", m.name, err)
		}
	}
}

// startStandby starts what is on the volume as a standby that receives nothing.
func (m *member) startStandby() HeldWAL {
	m.t.Helper()
	held, err := PrepareStandby(m.t.Context(), m.w.programs, m.pgdata())
	if err != nil {
		m.t.Fatalf("%s: %v", m.name, err)
	}
	m.start(Live{})
	if got := m.one("select pg_is_in_recovery()::text"); got != "true" {
		m.t.Fatalf("%s is a primary", m.name)
	}
	return held
}

// kill kills every process of the server at once, as the end of a machine does.
func (m *member) kill() {
	if m.postmaster == nil {
		return
	}
	m.session.Close()
	m.lock.KillHolders()
	if err := m.postmaster.StopAtOnce(); err != nil {
		m.t.Error(err)
	}
	m.postmaster = nil
}

// cloneTo copies the data of a running primary, as pg_basebackup does.
func (m *member) cloneTo(to *member) {
	m.t.Helper()
	connection := to.connectionTo(m)
	connection.Application = settings.CopyApplication
	_, err := m.w.programs.Run(m.t.Context(), "pg_basebackup", "--pgdata="+to.pgdata(), "--dbname="+connection.String(), "--wal-method=stream", "--checkpoint=fast", "--no-sync", "--no-password")
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := PrepareStandby(m.t.Context(), m.w.programs, to.pgdata()); err != nil {
		m.t.Fatal(err)
	}
}

// connectionTo is how this member streams from another one.
func (m *member) connectionTo(primary *member) settings.PrimaryConnection {
	return settings.PrimaryConnection{Pod: net.JoinHostPort("localhost", strconv.Itoa(primary.port)), Member: m.name, RunDir: m.run}
}

func (m *member) follow(primary *member, timeline int64) {
	m.t.Helper()
	if err := m.tryFollow(primary, timeline); err != nil {
		m.t.Fatalf("%s does not follow %s: %v", m.name, primary.name, err)
	}
}

func (m *member) tryFollow(primary *member, timeline int64) error {
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	return m.Follow(ctx, Target{Connection: m.connectionTo(primary), Timeline: timeline})
}

func (m *member) stopReceiver() HeldWAL {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	held, err := m.StopReceiver(ctx)
	if err != nil {
		m.t.Fatalf("%s: %v", m.name, err)
	}
	return held
}

func (m *member) promote(timeline int64, quorum Quorum) Promoted {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	promoted, err := m.Promote(ctx, Promotion{Timeline: timeline, Quorum: quorum})
	if err != nil {
		m.t.Fatalf("%s: %v", m.name, err)
	}
	m.ensureSlots()
	return promoted
}

// ensureSlots makes a primary's slots for all other members.
func (m *member) ensureSlots() {
	m.t.Helper()
	var names []string
	for _, other := range m.w.members {
		names = append(names, other.name)
	}
	if err := m.session.Do(m.t.Context(), func(ctx context.Context, c *pgx.Conn) error {
		return slots.KeepSlots(ctx, c, names, slots.Own{Member: m.name, Primary: true}, nil)
	}); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) exec(statements ...string) {
	m.t.Helper()
	for _, sql := range statements {
		if err := m.Server.exec(m.t.Context(), sql); err != nil {
			m.t.Fatalf("%s: %s: %v", m.name, sql, err)
		}
	}
}

// one reads one text.
func (m *member) one(sql string) (got string) {
	m.t.Helper()
	if err := m.query(m.t.Context(), sql, &got); err != nil {
		m.t.Fatalf("%s: %s: %v", m.name, sql, err)
	}
	return got
}

func (m *member) position(sql string) uint64 {
	m.t.Helper()
	return lsn.Parse(1, m.one("select ("+sql+")::text")).Position
}

// until waits until a query says true.
func (m *member) until(sql string) {
	m.t.Helper()
	for end := time.Now().Add(limit); m.one("select ("+sql+")::text") != "true"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("%s: never: %s", m.name, sql)
		}
	}
}

func (m *member) waitStreams() {
	m.t.Helper()
	m.until("exists (select from pg_stat_wal_receiver where status = 'streaming')")
}

// fill writes rows that distinguish one history from another.
func (m *member) fill(tag string, rows int) {
	m.t.Helper()
	m.exec("create table if not exists public.ledger (n bigserial primary key, tag text, pad text)",
		fmt.Sprintf("insert into public.ledger (tag, pad) select '%s', repeat(md5(g::text), 8) from generate_series(1, %d) g", tag, rows))
}

// content is a checksum per table, read from the tables themselves.
func (m *member) content() string {
	m.t.Helper()
	var sums []string
	err := m.session.Do(m.t.Context(), func(ctx context.Context, c *pgx.Conn) error {
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

// sameContent waits until standbys have replayed what the primary has, and compares
// the tables.
func (m *member) sameContent(standbys ...*member) {
	m.t.Helper()
	flushed := m.one("select pg_current_wal_flush_lsn()::text")
	want := m.content()
	for _, standby := range standbys {
		standby.until("pg_last_wal_replay_lsn() >= '" + flushed + "'")
		if got := standby.content(); got != want {
			m.t.Errorf("%s holds %s, and %s %s", standby.name, got, m.name, want)
		}
	}
}

// timeline that a primary writes.
func (m *member) timeline() string {
	m.t.Helper()
	return m.one("select (" + insertTimelineQuery + ")::text")
}

func removeData(t *testing.T, m *member) {
	t.Helper()
	if err := os.RemoveAll(m.pgdata()); err != nil {
		t.Fatal(err)
	}
}

func copyDirectory(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v: %s", err, out)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeCertificate writes one that signs itself: authority and member in one.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: agentapi.MemberName}, DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, certificate, certificate, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	mustWrite(t, filepath.Join(dir, "tls.crt"), text)
	mustWrite(t, filepath.Join(dir, "ca.crt"), text)
	mustWrite(t, filepath.Join(dir, "tls.key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
}
