package rolechange

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
)

// Live are the settings that change with the role, without a restart.
type Live struct {
	// Upstream is primary_conninfo; empty to receive nothing.
	Upstream string
	// SynchronousNames is synchronous_standby_names; empty for none.
	SynchronousNames string
	// Promoting says that replay does not wait for readers.
	Promoting bool
}

// Options are what a Server is made of.
type Options struct {
	Log *slog.Logger
	// PGData is the data directory.
	PGData   string
	Programs server.Programs
	// Postmaster is the running server, and Lock that of the volume, which all
	// processes of the server hold.
	Postmaster *server.Postmaster
	Lock       *volumelock.VolumeLock
	// Session is the reserved connection. RunDir and Port are for more of them.
	Session *server.Session
	RunDir  string
	Port    int
	// Started are the settings that the server was started with.
	Started Live
	// Configure checks settings and writes them to the server's file. The server
	// reads it later.
	Configure func(context.Context, Live) error
}

// Server is one run of a server whose role changes. One goroutine uses it at a time,
// but for Stop and ReadProgress.
type Server struct {
	o    Options
	live Live
	// waits says that commits surely wait for synchronous_standby_names, once there
	// are some: the checkpointer has taken up that names are set.
	waits bool
	// named are the standbys that were in a quorum of this run, in lower case.
	named map[string]bool
	// quorum is the one that the server was given last.
	quorum atomic.Pointer[Quorum]
	// paused says that replay was paused here and not resumed.
	paused bool
}

// NewServer is for a server that was just started.
func NewServer(o Options) *Server {
	return &Server{o: o, live: o.Started, waits: o.Started.SynchronousNames != "", named: map[string]bool{}}
}

func (s *Server) walDir() string { return filepath.Join(s.o.PGData, "pg_wal") }

// poll is between two observations of what the server is about to do.
const poll = 10 * time.Millisecond

// applySettings gives the server settings, and returns when the postmaster has passed
// them on to every process. Those take them up one after the other.
func (s *Server) applySettings(ctx context.Context, live Live) error {
	s.live = live
	if err := s.o.Configure(ctx, live); err != nil {
		return fmt.Errorf("write the settings: %w", err)
	}
	// The postmaster signals its processes in turn, and ours may be the first of
	// them. When it reads the settings again, it has signalled all.
	for range 2 {
		if err := s.reload(ctx); err != nil {
			return err
		}
	}
	return s.checkInEffect(ctx, live)
}

// reloadLimit is how long the server may take to read its settings.
const reloadLimit = 5 * time.Second

// reload has the server read its settings again, and waits until it has.
func (s *Server) reload(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reloadLimit)
	defer cancel()
	var before, after time.Time
	const loaded = "select pg_conf_load_time()"
	if err := s.query(ctx, loaded, &before); err != nil {
		return err
	}
	if err := s.o.Postmaster.ReloadSettings(); err != nil {
		return fmt.Errorf("reload the settings: %w", err)
	}
	for clock.Sleep(ctx, poll) {
		if err := s.query(ctx, loaded, &after); err != nil || !after.Equal(before) {
			return err
		}
	}
	return errors.New("the server does not read its settings again: check its log for errors in them")
}

// checkInEffect fails where ALTER SYSTEM has the last word.
func (s *Server) checkInEffect(ctx context.Context, live Live) error {
	var upstream, names string
	if err := s.query(ctx, "select current_setting('primary_conninfo'), current_setting('synchronous_standby_names')", &upstream, &names); err != nil {
		return err
	}
	for name, differs := range map[string]bool{"primary_conninfo": upstream != live.Upstream, "synchronous_standby_names": names != live.SynchronousNames} {
		if differs {
			return fmt.Errorf("the server does not use the %s that it was given: if ALTER SYSTEM has set it, run ALTER SYSTEM RESET %s", name, name)
		}
	}
	return nil
}

// query reads one row on the reserved connection.
func (s *Server) query(ctx context.Context, sql string, into ...any) error {
	return s.o.Session.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, sql).Scan(into...)
	})
}

// exec runs a statement on the reserved connection.
func (s *Server) exec(ctx context.Context, sql string) error {
	return s.o.Session.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, sql)
		return err
	})
}
