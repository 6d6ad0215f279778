package datavolume

import (
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// FindMissingWAL names the record that a start of this data needs first and that
// pg_wal does not hold; empty where it holds it. PostgreSQL begins at the last
// checkpoint in pg_control and replays from its redo position on.
func FindMissingWAL(pgdata string, control server.ControlData, standby bool) (string, error) {
	if _, err := os.Lstat(filepath.Join(pgdata, "backup_label")); err == nil {
		return "", nil // a start begins where that says
	}
	records := []struct{ kind, position string }{{"the checkpoint", control.Checkpoint}}
	if !standby { // a standby that has its checkpoint has the primary send the rest
		records = append(records, struct{ kind, position string }{"the redo record of the checkpoint", control.Redo})
	}
	for _, record := range records {
		at := lsn.Parse(control.Timeline, record.position)
		if at.Position == 0 {
			continue
		}
		holds, err := wal.HoldsRecord(filepath.Join(pgdata, "pg_wal"), uint32(at.Timeline), at.Position) //nolint:gosec // PostgreSQL's are so long
		if err != nil {
			return "", err
		}
		if !holds {
			return record.kind + " at " + at.String(), nil
		}
	}
	return "", nil
}
