package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
)

// checkpointPause is between what makes a checkpoint worth while and the
// checkpoint: what was discarded a moment ago is marked by then, and several
// requests become one.
const checkpointPause = time.Second

// checkpointRequests holds one when a checkpoint would free disk space.
type checkpointRequests chan struct{}

func newCheckpointRequests() checkpointRequests { return make(checkpointRequests, 1) }

// requestCheckpoint asks the database that runs for a checkpoint soon, or the
// next one that runs.
func (r checkpointRequests) requestCheckpoint() {
	select {
	case r <- struct{}{}:
	default:
	}
}

// freeWAL makes the checkpoints that were asked for: PostgreSQL removes WAL that
// nothing needs at a checkpoint, and at no other time. It has a connection of its
// own, for a checkpoint takes long.
func (l *serverLife) freeWAL(ctx context.Context) {
	s := server.NewSession(l.a.o.RunDir, l.a.o.Port, "holdfast-space")
	defer s.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.a.checkpoints:
		}
		clock.Sleep(ctx, checkpointPause)
		if err := makeCheckpoint(ctx, s); err != nil && ctx.Err() == nil {
			l.a.o.Log.Warn("the checkpoint that frees disk space failed", "error", err.Error())
		}
		l.a.archive.RecordCheckpoint()
	}
}

// makeCheckpoint makes one, however long it takes.
func makeCheckpoint(ctx context.Context, s *server.Session) error {
	return s.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "set statement_timeout = 0")
		if err == nil {
			_, err = c.Exec(ctx, "checkpoint")
		}
		return err
	})
}
