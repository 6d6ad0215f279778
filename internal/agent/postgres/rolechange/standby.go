package rolechange

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// PrepareStandby makes sure that a data directory starts as a standby on the timeline
// that its data is on, whatever ended its server: also where that was killed while
// it was promoted. It returns what the volume holds; the zero value for a copy that
// has never run.
func PrepareStandby(ctx context.Context, programs server.Programs, pgdata string) (HeldWAL, error) {
	if err := datavolume.MarkStandby(pgdata); err != nil {
		return HeldWAL{}, err
	}
	if _, err := os.Lstat(filepath.Join(pgdata, "backup_label")); err == nil {
		return HeldWAL{}, nil // where it begins is said there, and it was never promoted
	}
	control, err := programs.ReadControlData(ctx, pgdata)
	if err != nil {
		return HeldWAL{}, err
	}
	dir := filepath.Join(pgdata, "pg_wal")
	held, err := measureAtRest(control, dir)
	if err != nil {
		return HeldWAL{}, err
	}
	if err := dropUnreached(dir, held.End.Timeline); err != nil {
		return HeldWAL{}, fmt.Errorf("prepare the standby: %w", err)
	}
	return held, nil
}

// PrepareRewound makes sure that data which pg_rewind has left starts as a standby. Its
// WAL may end before the point at which it is consistent: it receives the rest from its
// primary. What it holds is not known until then.
func PrepareRewound(ctx context.Context, programs server.Programs, pgdata string) error {
	if err := datavolume.MarkStandby(pgdata); err != nil {
		return err
	}
	control, err := programs.ReadControlData(ctx, pgdata)
	if err != nil {
		return err
	}
	dir := filepath.Join(pgdata, "pg_wal")
	reached := max(control.Timeline, control.RecoveryTimeline)
	if _, err := os.Lstat(filepath.Join(pgdata, "backup_label")); err != nil {
		from := lsn.Parse(control.Timeline, control.Checkpoint)
		end, err := wal.FindExtent(dir, uint32(from.Timeline), from.Position, 0) //nolint:gosec // PostgreSQL's are so long
		if err != nil {
			return fmt.Errorf("measure the WAL: %w", err)
		}
		reached = max(reached, int64(end.Timeline))
	}
	if err := dropUnreached(dir, reached); err != nil {
		return fmt.Errorf("prepare the standby: %w", err)
	}
	return nil
}

// LeadsThrough says whether the primary at a connection writes a timeline, and whether its
// WAL leads through a point. An error is a FollowError: that is not known.
func LeadsThrough(ctx context.Context, t Target, point lsn.Point) (bool, error) {
	up, err := ReadUpstream(ctx, t.Connection)
	if err != nil {
		return false, &FollowError{NoAnswer, t.Connection.Pod, err}
	}
	if up.Standby || up.End.Timeline != t.Timeline {
		return false, &FollowError{Problem: NotLeading, Primary: t.Connection.Pod}
	}
	return up.leadsThrough(point), nil
}

// leadsThrough says whether the WAL of a primary leads through a point, or will.
func (up Upstream) leadsThrough(point lsn.Point) bool {
	if up.End.Timeline == point.Timeline {
		return true // it goes on from where it was
	}
	left, found := findTurn(up.History, uint32(point.Timeline)) //nolint:gosec // PostgreSQL's are so long
	return found && point.Position <= left
}
