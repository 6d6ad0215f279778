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

const (
	// positionAge is how old a position in an answer may be.
	positionAge = 100 * time.Millisecond
	// positionPatience is how long a question waits for the database, and how long the
	// database may take for a position that counts as one of now.
	positionPatience = 300 * time.Millisecond
	// positionLimit is how long a position is waited for that may not count: a statement
	// given up costs the database a connection, and where that is slow already, each
	// question would.
	positionLimit = 5 * time.Second
)

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
	// reading is the statement that is under way; nil: none is.
	reading *positionReading
}

// positionReading is a statement that reads a position.
type positionReading struct {
	primary bool          // of a primary
	ended   chan struct{} // is closed at its end
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
	primary := status.Role == v1alpha1.RolePrimary
	patience := time.NewTimer(positionPatience)
	defer patience.Stop()
	for {
		reading := r.beginReading(ctx, primary)
		if reading == nil {
			return
		}
		select {
		case <-reading.ended:
			if reading.primary == primary {
				return
			}
		case <-ctx.Done(): // the client that asked has gone
			return
		case <-patience.C:
			if primary {
				r.store.Update(markOld)
			}
			return
		}
	}
}

// beginReading begins to read the position, or returns the reading that is under way. It
// is nil where the last position is new enough.
func (r *positionReader) beginReading(ctx context.Context, primary bool) *positionReading {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.reading != nil:
		return r.reading
	case primary && time.Since(r.at) < positionAge:
		return nil
	}
	reading := &positionReading{primary, make(chan struct{})}
	r.reading = reading
	go func() {
		defer close(reading.ended)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), positionLimit)
		defer cancel()
		r.readPosition(ctx, primary)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reading = nil
	}()
	return reading
}

func (r *positionReader) readPosition(ctx context.Context, primary bool) {
	query := "select coalesce((greatest(pg_last_wal_replay_lsn(), pg_last_wal_receive_lsn()) - '0/0')::int8, 0)"
	if primary {
		query = "select (pg_current_wal_flush_lsn() - '0/0')::int8"
	}
	began := time.Now()
	var position int64
	err := r.session.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, query).Scan(&position)
	})
	switch {
	case !primary && err == nil:
		r.store.Update(func(s *agentapi.Status) { raiseWALEnd(s, position) })
	case !primary: // what was observed last stands
	case err != nil || time.Since(began) > positionPatience:
		r.store.Update(markOld)
	default:
		r.recordPosition(position)
	}
}

// recordPosition records the position of a primary.
func (r *positionReader) recordPosition(position int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store.Update(func(s *agentapi.Status) {
		if s.Role != v1alpha1.RolePrimary {
			return
		}
		changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.PositionOld = false })
		s.Position, r.at = uint64(position), time.Now()
	})
}

// markOld says that the position of a primary may be an old one.
func markOld(s *agentapi.Status) {
	if s.Role == v1alpha1.RolePrimary {
		changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.PositionOld = true })
	}
}

// raiseWALEnd reports how far the WAL of a replica goes: a member that would lead asks
// for it.
func raiseWALEnd(s *agentapi.Status, received int64) {
	changeReplication(s, func(r *postgresapi.ReplicationStatus) {
		if r.WALEnd != nil {
			r.WALEnd = lsn.ChooseFurthest(r.WALEnd, lsn.Point{Timeline: r.WALEnd.Timeline, Position: uint64(received)})
		}
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
