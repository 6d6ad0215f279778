package rolechange

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
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
