package postgres

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// positionAge is how old a position in an answer may be.
const positionAge = 100 * time.Millisecond

// positionReader brings positions in the status up to date for those who ask. It has
// a session of its own, and keeps a burst of questions off the database.
type positionReader struct {
	log     *slog.Logger
	store   *statusserver.Store
	session *server.Session
	// runDir and port of the server, for a session that flushes.
	runDir string
	port   int

	mu sync.Mutex
	at time.Time // of the last answer
}

// readStatus is the member's status.
func (r *positionReader) readStatus() agentapi.Status { return r.store.Get() }

// refreshPosition brings the position of a primary up to date; of a replica,
// how far its WAL goes.
func (r *positionReader) refreshPosition(ctx context.Context) {
	status := r.store.Get()
	if !status.Serving {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if status.Role != v1alpha1.RolePrimary {
		r.refreshReceived(ctx)
		return
	}
	if time.Since(r.at) < positionAge {
		return
	}
	query, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	var position int64
	err := r.session.Do(query, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, "select (pg_current_wal_flush_lsn() - '0/0')::int8").Scan(&position)
	})
	if ctx.Err() != nil {
		return // the client that asked has gone
	}
	r.store.Update(func(s *agentapi.Status) {
		changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.PositionOld = err != nil })
		if err == nil {
			s.Position, r.at = uint64(position), time.Now()
		}
	})
}

// refreshReceived brings up to date how far the WAL of a replica goes: a member
// that would lead asks for it.
func (r *positionReader) refreshReceived(ctx context.Context) {
	query, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	var received int64
	err := r.session.Do(query, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, "select coalesce((greatest(pg_last_wal_replay_lsn(), pg_last_wal_receive_lsn()) - '0/0')::int8, 0)").Scan(&received)
	})
	if err != nil {
		return // what was observed last stands
	}
	r.store.Update(func(s *agentapi.Status) {
		changeReplication(s, func(r *postgresapi.ReplicationStatus) {
			if r.WALEnd != nil {
				r.WALEnd = lsn.ChooseFurthest(r.WALEnd, lsn.Point{Timeline: r.WALEnd.Timeline, Position: uint64(received)})
			}
		})
	})
}

// flushRecord has a primary write a record to its WAL and flush it, and says
// whether it did. The session commits by its own disk alone, and is of no other
// use: it may wait for a disk that hangs.
func (r *positionReader) flushRecord(ctx context.Context) bool {
	if status := r.store.Get(); !status.Serving || status.Role != v1alpha1.RolePrimary {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s := server.NewSession(r.runDir, r.port, "holdfast-flush")
	defer s.Close()
	err := s.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "select pg_logical_emit_message(true, 'holdfast', '')")
		return err
	})
	if err != nil {
		r.log.Warn("the primary did not flush a record that the operator asked for", "error", err.Error())
	}
	return err == nil
}
