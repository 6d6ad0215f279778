package dataspace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// ReadySuffix marks a WAL file that waits for the archive.
const ReadySuffix = ".ready"

const (
	// DoneSuffix marks a WAL file that the archive has.
	DoneSuffix = ".done"
)

// OldWAL are the complete segments that neither crash recovery nor a replication
// slot needs, in order: those that are archived or discarded, those that wait to
// be, and those of which PostgreSQL has recorded neither.
type OldWAL struct {
	Archived, Waiting, Unmarked []string
	Size                        int64
}

// FindOldWAL reads a data directory whose server is stopped. It finds nothing in
// one whose recovery begins elsewhere than at its last checkpoint. A promotion of
// our own, which promoting says is pending, begins there: it reads no archive.
func FindOldWAL(pgdata string, control server.ControlData, promoting bool) (old OldWAL, err error) {
	redo := lsn.Parse(control.Timeline, control.Redo).Position
	if old.Size = control.SegmentSize; redo == 0 || old.Size <= 0 {
		return old, errors.New("pg_control does not say where crash recovery begins")
	}
	if err := beginsAtCheckpoint(pgdata, promoting); err != nil {
		return old, err
	}
	reserved, err := findOldestSlot(pgdata)
	if err != nil {
		return old, err
	}
	if reserved > 0 {
		redo = min(redo, reserved)
	}
	needed := redo / uint64(old.Size)
	entries, err := os.ReadDir(filepath.Join(pgdata, "pg_wal"))
	if err != nil {
		return old, err
	}
	for _, e := range entries { // sorted
		segment, ok := wal.ParseSegment(e.Name(), old.Size)
		switch marked := func(suffix string) bool { return hasMark(pgdata, e.Name(), suffix) }; {
		case !ok || segment.Number >= needed || !e.Type().IsRegular():
		case marked(ReadySuffix):
			old.Waiting = append(old.Waiting, e.Name())
		case marked(DoneSuffix):
			old.Archived = append(old.Archived, e.Name())
		default:
			old.Unmarked = append(old.Unmarked, e.Name())
		}
	}
	return old, nil
}

// beginsAtCheckpoint fails where a file says that recovery begins elsewhere than at
// the last checkpoint.
func beginsAtCheckpoint(pgdata string, promoting bool) error {
	for _, name := range []string{"backup_label", "tablespace_map", RecoverySignal} {
		if promoting && name == RecoverySignal {
			continue
		}
		if _, err := os.Lstat(filepath.Join(pgdata, name)); !errors.Is(err, os.ErrNotExist) {
			return errors.Join(fmt.Errorf("the data directory holds %s", name), err)
		}
	}
	return nil
}

// MarkPath returns the file by which PostgreSQL marks a WAL file for its archiver.
func MarkPath(pgdata, name, suffix string) string {
	return filepath.Join(pgdata, "pg_wal", "archive_status", name+suffix)
}

// hasMark says whether PostgreSQL has marked a file. A mark that cannot be read
// counts: nothing is removed for it.
func hasMark(pgdata, name, suffix string) bool {
	_, err := os.Lstat(MarkPath(pgdata, name, suffix))
	return err == nil || suffix == ReadySuffix && !errors.Is(err, os.ErrNotExist)
}

// RemoveWAL removes a segment as PostgreSQL does: its marks go last.
func RemoveWAL(pgdata, name string) error {
	if err := os.Remove(filepath.Join(pgdata, "pg_wal", name)); err != nil {
		return err
	}
	for _, suffix := range []string{DoneSuffix, ReadySuffix} {
		if err := os.Remove(MarkPath(pgdata, name, suffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return atomicfile.SyncDir(filepath.Join(pgdata, "pg_wal"))
}

// The layout of a replication slot on disk, the same in PostgreSQL 14 to 18.
const (
	SlotMagic       = 0x1051CA1
	slotPersistency = 84 // where it stands whether the slot is persistent: 0
	SlotRestart     = 96 // where its restart_lsn stands
)

// findOldestSlot is the oldest position that a replication slot needs; 0 where none
// needs any. No server runs.
func findOldestSlot(pgdata string) (oldest uint64, err error) {
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
		if len(data) < SlotRestart+8 || binary.NativeEndian.Uint32(data) != SlotMagic {
			return 0, fmt.Errorf("replication slot %s cannot be read", e.Name())
		}
		if binary.NativeEndian.Uint32(data[slotPersistency:]) != 0 {
			continue // of a session that has ended: PostgreSQL drops it when it starts
		}
		if at := binary.NativeEndian.Uint64(data[SlotRestart:]); at > 0 && (oldest == 0 || at < oldest) {
			oldest = at
		}
	}
	return oldest, nil
}

// RemoveTemporary removes what a server that crashed has left and a start
// removes: files of sorts, and a segment that was being made.
func RemoveTemporary(pgdata string) (freed bool) {
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

const (
	// RecoverySignal has PostgreSQL begin a timeline when it has recovered.
	RecoverySignal = "recovery.signal"
)
