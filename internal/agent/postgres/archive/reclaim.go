package archive

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
)

const (
	// reclaimTime is how long one file may take to be stored before the volume
	// is judged anew.
	reclaimTime = 30 * time.Second
	// reclaimLook is between two checks whether the volume has grown meanwhile.
	reclaimLook = time.Second
)

// StoppedDatabase is what is known of a database that does not run.
type StoppedDatabase struct {
	Control server.ControlData
	// Promoting says that a promotion of this member is pending, and Primary that
	// the data is not a standby's.
	Promoting, Primary bool
	// MayArchive says whether its WAL is its own to archive, or to discard.
	MayArchive bool
}

// ReclaimSpace frees disk space on the volume of a database that does not run because
// its volume is full: what PostgreSQL itself would remove when it starts, and at
// its next checkpoint. WAL that crash recovery or a replication slot needs stays.
// WAL that waits for the store is stored first, or discarded as the archiver discards
// it up. It says whether anything was freed.
func (s *Archiver) ReclaimSpace(ctx context.Context, db StoppedDatabase) bool {
	freed := dataspace.RemoveTemporary(s.files.pgdata)
	old, err := dataspace.FindOldWAL(s.files.pgdata, db.Control, db.Promoting)
	if err != nil {
		s.log.Warn("no WAL is removed from the full volume", "error", err.Error())
		return freed
	}
	place, err := s.place()
	unwanted := place == nil && err == nil
	var removed []string
	for _, name := range slices.Concat(old.Archived, old.Unmarked) {
		if s.excess.space().Fits(dataspace.MinimumFree+2*old.Size) || !unwanted && slices.Contains(old.Unmarked, name) {
			continue
		}
		if err := dataspace.RemoveWAL(s.files.pgdata, name); err != nil {
			s.log.Warn("WAL is not removed from the full volume", "file", name, "error", err.Error())
			break
		}
		removed = append(removed, name)
	}
	if dataspace.IsFull(s.excess.space()) && len(old.Waiting) > 0 && db.MayArchive {
		if name := old.Waiting[0]; s.archiveStopped(ctx, db.Primary, name) {
			removed = append(removed, name)
		}
	}
	if len(removed) > 0 {
		s.log.Info("removed WAL that nothing needs from the full volume", "segments", len(removed), "first", removed[0])
	}
	return freed || len(removed) > 0
}

// archiveStopped has a segment archived, or discarded, and removes it. It ends
// early when the volume has room.
func (s *Archiver) archiveStopped(ctx context.Context, primary bool, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, reclaimTime)
	defer cancel()
	go func() {
		for ctx.Err() == nil && dataspace.IsFull(s.excess.space()) {
			clock.Sleep(ctx, reclaimLook)
		}
		cancel()
	}()
	if err := s.archiveStoppedFile(ctx, primary, name); err != nil {
		if ctx.Err() == nil {
			s.log.Warn("WAL that fills the volume is not archived", "file", name, "error", err.Error())
			clock.Sleep(ctx, reclaimLook)
		}
		return false
	}
	if err := dataspace.RemoveWAL(s.files.pgdata, name); err != nil {
		s.log.Warn("WAL is not removed from the full volume", "file", name, "error", err.Error())
		return false
	}
	return true
}

// archiveStoppedFile archives a file of a database that does not run.
func (s *Archiver) archiveStoppedFile(ctx context.Context, primary bool, name string) error {
	if !s.run.isStopped() {
		s.BeginRun(primary)
		s.run.recordStopped()
	}
	return s.archiveFile(ctx, name)
}
