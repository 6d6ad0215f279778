package postgres

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// findMissingWAL names the record that a start of this data needs first and that
// pg_wal does not hold; empty where it holds it. PostgreSQL begins at the last
// checkpoint in pg_control and replays from its redo position on.
func findMissingWAL(pgdata string, control server.ControlData, standby bool) (string, error) {
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

// observeOwnWAL collects what the WAL lacks of data that does not run, and where it
// lacks nothing, how far it goes.
func (a *postgresAgent) observeOwnWAL(o *observation) (err error) {
	o.Namespace, o.Pod = a.o.Identity.Namespace, a.o.Identity.Pod
	if o.Volume.Control.SystemIdentifier != "" {
		o.MissingWAL, err = findMissingWAL(a.o.pgdataPath(), o.Volume.Control, o.Volume.Standby)
	}
	if err != nil || o.MissingWAL != "" {
		a.reportWALEnd(*o)
		return err
	}
	return a.observeWAL(o)
}

// missingWALMessage says what to do about data whose WAL does not hold what a
// start needs.
func missingWALMessage(o observation) string {
	found := fmt.Sprintf("pg_control of member %s is newer than its WAL: pg_wal does not hold %s. Nothing is started, deleted or overwritten. "+
		"Check whether files of pg_wal were deleted or truncated, or came from an older copy of the volume, and put the WAL of this data back into %s/pg_wal", o.Pod, o.MissingWAL, dataName)
	if o.Ordinal == 0 {
		return found + ". If it is lost, dump what a replica still has, or restore a backup: create a PostgresCluster of another name with spec.restore"
	}
	return found + fmt.Sprintf(". If it is lost and the primary serves with all its rows, delete this volume so that the member is cloned again: kubectl delete pvc data-%s -n %s --wait=false, then kubectl delete pod %s -n %s. If the primary is lost too, restore a backup: create a PostgresCluster of another name with spec.restore", o.Pod, o.Namespace, o.Pod, o.Namespace)
}
