package rolechange

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// UncleanStopError says that a server is gone, and that it did not shut down in order:
// where its WAL ends is not known to its standbys.
type UncleanStopError struct {
	// State is pg_control's.
	State string
}

func (e *UncleanStopError) Error() string {
	return fmt.Sprintf("the server did not shut down in order and was killed: pg_control says %q; another member has to wait for the Lease to expire", e.State)
}

// controlLimit is how long it may take to read what a server left.
const controlLimit = 10 * time.Second

// Stop shuts a primary down in order, and kills it when the context's deadline passes.
// It returns the end of the shutdown checkpoint, the last record: a standby that
// received all up to there lacks nothing. Every process of the server is gone
// then, and also after an UncleanStopError; not after another error.
func (s *Server) Stop(ctx context.Context) (lsn.Point, error) {
	limit := time.Duration(0)
	if deadline, has := ctx.Deadline(); has {
		limit = time.Until(deadline)
	}
	inOrder := s.o.Postmaster.StopInOrder(limit)
	if err := s.o.Postmaster.StopAtOnce(); err != nil {
		return lsn.Point{}, err
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), controlLimit)
	defer cancel()
	control, err := s.o.Programs.ReadControlData(after, s.o.PGData)
	if err != nil {
		return lsn.Point{}, err
	}
	if !inOrder || control.State != server.StateShutDown {
		return lsn.Point{}, &UncleanStopError{control.State}
	}
	return findShutdownEnd(control, s.walDir())
}

// ReadShutdownEnd reads the end of the shutdown checkpoint of a data directory whose
// primary shut down in order.
func ReadShutdownEnd(ctx context.Context, programs server.Programs, pgdata string) (lsn.Point, error) {
	control, err := programs.ReadControlData(ctx, pgdata)
	if err != nil {
		return lsn.Point{}, err
	}
	if control.State != server.StateShutDown {
		return lsn.Point{}, &UncleanStopError{control.State}
	}
	return findShutdownEnd(control, filepath.Join(pgdata, "pg_wal"))
}

// findShutdownEnd finds where the checkpoint ends that pg_control names the start of.
func findShutdownEnd(control server.ControlData, dir string) (lsn.Point, error) {
	start := lsn.Parse(control.Timeline, control.Checkpoint)
	timeline := uint32(start.Timeline) //nolint:gosec // PostgreSQL's are so long
	end, err := wal.FindRecordEnd(dir, timeline, start.Position)
	if err != nil {
		return lsn.Point{}, fmt.Errorf("find the end of the shutdown checkpoint: %w", err)
	}
	last, err := wal.FindExtent(dir, timeline, start.Position, 0)
	if err != nil {
		return lsn.Point{}, fmt.Errorf("find the end of the shutdown checkpoint: %w", err)
	}
	if last.Timeline != timeline || last.Position != end {
		return lsn.Point{}, fmt.Errorf("the shutdown checkpoint at %s is not the last record, which ends at %s of timeline %d: another server wrote to this volume", start, wal.FormatPosition(last.Position), last.Timeline)
	}
	return lsn.Point{Timeline: start.Timeline, Position: end}, nil
}
