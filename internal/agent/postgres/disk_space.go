package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// checkpointPause is between what makes a checkpoint worth while and the
// checkpoint: what was discarded a moment ago is marked by then, and several
// requests become one.
const checkpointPause = time.Second

// requestCheckpoint asks the database that runs for a checkpoint soon, or the
// next one that runs.
func (a *postgresAgent) requestCheckpoint() {
	select {
	case a.checkpointDue <- struct{}{}:
	default:
	}
}

// freeWAL makes the checkpoints that were asked for: PostgreSQL removes WAL that
// nothing needs at a checkpoint, and at no other time. It has a connection of its
// own, for a checkpoint takes long.
func (l *life) freeWAL(ctx context.Context) {
	s := server.NewSession(l.o.RunDir, l.o.Port, "holdfast-space")
	defer s.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.checkpointDue:
		}
		waitFor(ctx, checkpointPause)
		err := s.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "set statement_timeout = 0")
			if err == nil {
				_, err = c.Exec(ctx, "checkpoint")
			}
			return err
		})
		if err != nil && ctx.Err() == nil {
			l.log.Warn("the checkpoint that frees disk space failed", "error", err.Error())
		}
		l.archive.RecordCheckpoint()
	}
}

// measureSpace measures the volume.
func (a *postgresAgent) measureSpace() diskspace.Space {
	if a.o.space != nil {
		return a.o.space(a.o.DataDir)
	}
	return diskspace.SpaceOf(a.o.DataDir)
}

// allocateFile says whether a file on the volume can grow.
func (a *postgresAgent) allocateFile() error {
	if a.o.allocate != nil {
		return a.o.allocate(a.o.DataDir)
	}
	return diskspace.AllocateIn(a.o.DataDir)
}

// measureInterval is between two measurements of a primary's data.
const measureInterval = 30 * time.Second

// measureData reports how much a copy of a primary's data takes.
func (l *life) measureData(ctx context.Context) {
	for ctx.Err() == nil {
		if size, err := dataspace.MeasureData(ctx, l.o.pgdataPath()); err == nil {
			l.Store.Update(func(s *agentapi.Status) { s.DataSize = size })
		} else if ctx.Err() == nil {
			l.log.Info("the size of the data is not known", "error", err.Error())
		}
		waitFor(ctx, measureInterval)
	}
}
