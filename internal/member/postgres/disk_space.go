package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// checkpointPause is between what makes a checkpoint worth while and the
// checkpoint: what was given up a moment ago is marked by then, and several
// requests become one.
const checkpointPause = time.Second

// requestCheckpoint asks the database that runs for a checkpoint soon, or the
// next one that runs.
func (a *agent) requestCheckpoint() {
	select {
	case a.checkpointDue <- struct{}{}:
	default:
	}
}

// freeWAL makes the checkpoints that were asked for: PostgreSQL removes WAL that
// nothing needs at a checkpoint, and at no other time. It has a connection of its
// own, for a checkpoint takes long.
func (l *life) freeWAL(ctx context.Context) {
	s := newSession(l.o, "holdfast-space")
	defer s.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.checkpointDue:
		}
		wait(ctx, checkpointPause)
		err := s.do(ctx, func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "set statement_timeout = 0")
			if err == nil {
				_, err = c.Exec(ctx, "checkpoint")
			}
			return err
		})
		if err != nil && ctx.Err() == nil {
			l.log.Warn("the checkpoint that frees disk space failed", "error", err.Error())
		}
		l.archive.checkpointed()
	}
}
