package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/member"
	"github.com/holdfast-db/holdfast/internal/wal"
)

const (
	doneSuffix = ".done"
	// reclaimTime is how long one file may take to be stored before the volume
	// is judged anew.
	reclaimTime = 30 * time.Second
	// reclaimLook is between two checks whether the volume has grown meanwhile.
	reclaimLook = time.Second
)

// reclaim frees disk space on the volume of a database that does not run because
// its volume is full: what PostgreSQL itself would remove when it starts, and at
// its next checkpoint. WAL that crash recovery or a replication slot needs stays.
// WAL that waits for the store is stored first, or given up as the archiver gives
// it up. It says whether anything was freed.
func (a *agent) reclaim(ctx context.Context, f facts) bool {
	freed := removeTemporary(a.o.pgdata())
	old, err := findOldWAL(a.o.pgdata(), f.Volume.Control)
	if err != nil {
		a.log.Warn("no WAL is removed from the full volume", "error", err.Error())
		return freed
	}
	place, err := a.archive.place()
	unwanted := place == nil && err == nil
	var removed []string
	for _, name := range slices.Concat(old.archived, old.unmarked) {
		if a.space().Fits(minimumFree+2*old.size) || !unwanted && slices.Contains(old.unmarked, name) {
			continue
		}
		if err := removeWAL(a.o.pgdata(), name); err != nil {
			a.log.Warn("WAL is not removed from the full volume", "file", name, "error", err.Error())
			break
		}
		removed = append(removed, name)
	}
	if full(a.space()) && len(old.waiting) > 0 && f.mayArchive() {
		if name := old.waiting[0]; a.archiveStopped(ctx, !f.Volume.Standby, name) {
			removed = append(removed, name)
		}
	}
	if len(removed) > 0 {
		a.log.Info("removed WAL that nothing needs from the full volume", "segments", len(removed), "first", removed[0])
	}
	return freed || len(removed) > 0
}

// mayArchive says whether this member's WAL is its own to archive, or to give up.
func (f facts) mayArchive() bool {
	return f.Volume.Standby || f.Ordinal == 0 && f.Lease.Claim != member.ClaimHeld && f.Lease.Claim != member.ClaimUnknown
}

// archiveStopped has a segment archived, or given up, and removes it. It ends
// early when the volume has room.
func (a *agent) archiveStopped(ctx context.Context, primary bool, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, reclaimTime)
	defer cancel()
	go func() {
		for ctx.Err() == nil && full(a.space()) {
			wait(ctx, reclaimLook)
		}
		cancel()
	}()
	if err := a.archive.takeStopped(ctx, primary, name); err != nil {
		if ctx.Err() == nil {
			a.log.Warn("WAL that fills the volume is not archived", "file", name, "error", err.Error())
			wait(ctx, reclaimLook)
		}
		return false
	}
	if err := removeWAL(a.o.pgdata(), name); err != nil {
		a.log.Warn("WAL is not removed from the full volume", "file", name, "error", err.Error())
		return false
	}
	return true
}

// takeStopped archives a file of a database that does not run.
func (s *archiver) takeStopped(ctx context.Context, primary bool, name string) error {
	s.mu.Lock()
	stopped := !s.stoppedAt.IsZero()
	s.mu.Unlock()
	if !stopped {
		s.begins(primary)
		s.mu.Lock()
		s.stoppedAt = time.Now()
		s.mu.Unlock()
	}
	return s.take(ctx, name)
}

// oldWAL are the complete segments that neither crash recovery nor a replication
// slot needs, in order: those that are archived or given up, those that wait to
// be, and those of which PostgreSQL has recorded neither.
type oldWAL struct {
	archived, waiting, unmarked []string
	size                        int64
}

// findOldWAL reads a data directory whose server is stopped. It finds nothing in
// one whose recovery begins elsewhere than at its last checkpoint.
func findOldWAL(pgdata string, control controlData) (old oldWAL, err error) {
	redo := parsePoint(control.Timeline, control.Redo).Position
	if old.size = control.SegmentSize; redo == 0 || old.size <= 0 {
		return old, errors.New("pg_control does not say where crash recovery begins")
	}
	for _, name := range []string{"backup_label", "tablespace_map", "recovery.signal"} {
		if _, err := os.Lstat(filepath.Join(pgdata, name)); !errors.Is(err, os.ErrNotExist) {
			return old, errors.Join(fmt.Errorf("the data directory holds %s", name), err)
		}
	}
	reserved, err := slotPosition(pgdata)
	if err != nil {
		return old, err
	}
	if reserved > 0 {
		redo = min(redo, reserved)
	}
	needed := redo / uint64(old.size)
	entries, err := os.ReadDir(filepath.Join(pgdata, "pg_wal"))
	if err != nil {
		return old, err
	}
	for _, e := range entries { // sorted
		segment, ok := wal.Parse(e.Name(), old.size)
		switch marked := func(suffix string) bool { return hasMark(pgdata, e.Name(), suffix) }; {
		case !ok || segment.Number >= needed || !e.Type().IsRegular():
		case marked(readySuffix):
			old.waiting = append(old.waiting, e.Name())
		case marked(doneSuffix):
			old.archived = append(old.archived, e.Name())
		default:
			old.unmarked = append(old.unmarked, e.Name())
		}
	}
	return old, nil
}

func markPath(pgdata, name, suffix string) string {
	return filepath.Join(pgdata, "pg_wal", "archive_status", name+suffix)
}

// hasMark says whether PostgreSQL has marked a file. A mark that cannot be read
// counts: nothing is removed for it.
func hasMark(pgdata, name, suffix string) bool {
	_, err := os.Lstat(markPath(pgdata, name, suffix))
	return err == nil || suffix == readySuffix && !errors.Is(err, os.ErrNotExist)
}

// removeWAL removes a segment as PostgreSQL does: its marks go last.
func removeWAL(pgdata, name string) error {
	if err := os.Remove(filepath.Join(pgdata, "pg_wal", name)); err != nil {
		return err
	}
	for _, suffix := range []string{doneSuffix, readySuffix} {
		if err := os.Remove(markPath(pgdata, name, suffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return member.SyncDir(filepath.Join(pgdata, "pg_wal"))
}

// The layout of a replication slot on disk, the same in PostgreSQL 14 to 18.
const (
	slotMagic       = 0x1051CA1
	slotPersistency = 84 // where it stands whether the slot is persistent: 0
	slotRestart     = 96 // where its restart_lsn stands
)

// slotPosition is the oldest position that a replication slot needs; 0 where none
// needs any. No server runs.
func slotPosition(pgdata string) (oldest uint64, err error) {
	entries, err := os.ReadDir(filepath.Join(pgdata, "pg_replslot"))
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".tmp") {
			continue // one that was never made, or is removed
		}
		data, err := os.ReadFile(filepath.Join(pgdata, "pg_replslot", e.Name(), "state"))
		if err != nil {
			return 0, fmt.Errorf("replication slot %s: %w", e.Name(), err)
		}
		if len(data) < slotRestart+8 || binary.NativeEndian.Uint32(data) != slotMagic {
			return 0, fmt.Errorf("replication slot %s cannot be read", e.Name())
		}
		if binary.NativeEndian.Uint32(data[slotPersistency:]) != 0 {
			continue // of a session that has ended: PostgreSQL drops it when it starts
		}
		if at := binary.NativeEndian.Uint64(data[slotRestart:]); at > 0 && (oldest == 0 || at < oldest) {
			oldest = at
		}
	}
	return oldest, nil
}

// removeTemporary removes what a server that crashed has left and a start
// removes: files of sorts, and a segment that was being made.
func removeTemporary(pgdata string) (freed bool) {
	for dir, prefix := range map[string]string{
		filepath.Join(pgdata, "base", "pgsql_tmp"): "pgsql_tmp",
		filepath.Join(pgdata, "pg_wal"):            "xlogtemp.",
	} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), prefix) && os.RemoveAll(filepath.Join(dir, e.Name())) == nil {
				freed = true
			}
		}
	}
	return freed
}
