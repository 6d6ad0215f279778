package archive

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// writeSlot writes a replication slot that needs WAL from a position on.
func writeSlot(t *testing.T, pgdata, name string, position uint64) {
	t.Helper()
	data := make([]byte, 200)
	binary.NativeEndian.PutUint32(data, dataspace.SlotMagic)
	binary.NativeEndian.PutUint64(data[dataspace.SlotRestart:], position)
	dir := filepath.Join(pgdata, "pg_replslot", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(dir, "state"), string(data))
}

// stopped is the data directory of a database whose crash recovery begins in
// segment 6: 2 was recorded as neither, 3 and 4 are archived, 5 to 8 wait.
func stopped(t *testing.T) (*archiving, server.ControlData) {
	t.Helper()
	a := newArchiving(t)
	a.Archiver = a.another(filepath.Join(t.TempDir(), "pgdata"))
	a.write(1, 2, 3, 4, 9)
	a.ready(1, 5, 6, 7, 8)
	for _, n := range []uint64{3, 4} {
		mustWrite(t, dataspace.MarkPath(a.files.pgdata, segmentName(1, n), dataspace.DoneSuffix), "")
	}
	if err := os.MkdirAll(filepath.Join(a.files.pgdata, "pg_replslot"), 0o700); err != nil {
		t.Fatal(err)
	}
	return a, server.ControlData{SystemIdentifier: "7", Timeline: 1, Redo: "0/600028", SegmentSize: mebibyte}
}

func TestFindOldWAL(t *testing.T) {
	names := func(numbers ...uint64) (all []string) {
		for _, n := range numbers {
			all = append(all, segmentName(1, n))
		}
		return all
	}
	all := dataspace.OldWAL{Archived: names(3, 4), Waiting: names(5), Unmarked: names(2), Size: mebibyte}
	for _, c := range []struct {
		name    string
		change  func(a *archiving, c *server.ControlData)
		want    dataspace.OldWAL
		refused bool
	}{
		{"what is older than where crash recovery begins", func(*archiving, *server.ControlData) {}, all, false},
		{"a replication slot needs some of it", func(a *archiving, _ *server.ControlData) {
			writeSlot(t, a.files.pgdata, "holdfast_orders_1", 4*uint64(mebibyte)+5)
			writeSlot(t, a.files.pgdata, "holdfast_orders_2", 7*uint64(mebibyte))
		}, dataspace.OldWAL{Archived: names(3), Unmarked: names(2), Size: mebibyte}, false},
		{"a replication slot that was invalidated needs nothing", func(a *archiving, _ *server.ControlData) { writeSlot(t, a.files.pgdata, "lost", 0) }, all, false},
		{"a temporary replication slot ended with its session", func(a *archiving, _ *server.ControlData) {
			writeSlot(t, a.files.pgdata, "pg_basebackup_77", 3*uint64(mebibyte))
			path := filepath.Join(a.files.pgdata, "pg_replslot", "pg_basebackup_77", "state")
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			binary.NativeEndian.PutUint32(data[84:], 2) // RS_TEMPORARY
			mustWrite(t, path, string(data))
		}, all, false},
		{"a replication slot that was never made needs nothing", func(a *archiving, _ *server.ControlData) {
			if err := os.MkdirAll(filepath.Join(a.files.pgdata, "pg_replslot", "x.tmp"), 0o700); err != nil {
				t.Error(err)
			}
		}, all, false},
		{"a replication slot that cannot be read may need all", func(a *archiving, _ *server.ControlData) {
			writeSlot(t, a.files.pgdata, "x", 0)
			mustWrite(t, filepath.Join(a.files.pgdata, "pg_replslot", "x", "state"), "another layout")
		}, dataspace.OldWAL{}, true},
		{"without replication slots nothing is known of them", func(a *archiving, _ *server.ControlData) { _ = os.Remove(filepath.Join(a.files.pgdata, "pg_replslot")) }, dataspace.OldWAL{}, true},
		{"a copy's recovery begins elsewhere", func(a *archiving, _ *server.ControlData) {
			mustWrite(t, filepath.Join(a.files.pgdata, "backup_label"), "")
		}, dataspace.OldWAL{}, true},
		{"so does one from an archive", func(a *archiving, _ *server.ControlData) {
			mustWrite(t, filepath.Join(a.files.pgdata, "recovery.signal"), "")
		}, dataspace.OldWAL{}, true},
		{"where crash recovery begins is not known", func(_ *archiving, c *server.ControlData) { c.Redo = "" }, dataspace.OldWAL{}, true},
		{"how large segments are is not known", func(_ *archiving, c *server.ControlData) { c.SegmentSize = 0 }, dataspace.OldWAL{}, true},
	} {
		a, control := stopped(t)
		c.change(a, &control)
		got, err := dataspace.FindOldWAL(a.files.pgdata, control, false)
		if refused := err != nil; refused != c.refused {
			t.Errorf("%s: %v", c.name, err)
		} else if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(dataspace.OldWAL{})); !refused && diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// A full volume has room again when WAL that nothing needs is removed: what waits
// for the store is stored before, or discarded where the store takes nothing. What
// crash recovery needs stays.
func TestReclaim(t *testing.T) {
	for _, c := range []struct {
		name              string
		change            func(a *archiving, db *StoppedDatabase)
		left              []uint64 // segments
		stored, discarded float64
	}{
		{"the store takes what waits", func(*archiving, *StoppedDatabase) {}, []uint64{2, 6, 7, 8, 9}, 1, 0},
		{"the store holds what waits", func(a *archiving, _ *StoppedDatabase) { a.hangs.Store(true) }, []uint64{2, 6, 7, 8, 9}, 0, 1},
		{"the store is away", func(a *archiving, _ *StoppedDatabase) { a.down() }, []uint64{2, 6, 7, 8, 9}, 0, 1},
		{"nothing is archived", func(a *archiving, _ *StoppedDatabase) { a.nowhere.Store(true) }, []uint64{6, 7, 8, 9}, 0, 0},
		{"another member may lead", func(_ *archiving, db *StoppedDatabase) { db.MayArchive = false }, []uint64{2, 5, 6, 7, 8, 9}, 0, 0},
		{"a promotion of ours was interrupted", func(a *archiving, db *StoppedDatabase) {
			mustWrite(t, filepath.Join(a.files.pgdata, dataspace.RecoverySignal), "")
			db.Promoting = true
		}, []uint64{2, 6, 7, 8, 9}, 1, 0},
		{"a person's recovery was interrupted", func(a *archiving, _ *StoppedDatabase) {
			mustWrite(t, filepath.Join(a.files.pgdata, dataspace.RecoverySignal), "")
		}, []uint64{2, 3, 4, 5, 6, 7, 8, 9}, 0, 0},
		{"a promotion of ours was interrupted on a copy", func(a *archiving, db *StoppedDatabase) {
			mustWrite(t, filepath.Join(a.files.pgdata, dataspace.RecoverySignal), "")
			mustWrite(t, filepath.Join(a.files.pgdata, "backup_label"), "")
			db.Promoting = true
		}, []uint64{2, 3, 4, 5, 6, 7, 8, 9}, 0, 0},
		{"a replication slot needs all", func(a *archiving, _ *StoppedDatabase) { writeSlot(t, a.files.pgdata, "x", uint64(mebibyte)) }, []uint64{2, 3, 4, 5, 6, 7, 8, 9}, 0, 0},
	} {
		a, control := stopped(t)
		if a.left = 0; c.discarded > 0 {
			a.excess.pace.slow = 20 * time.Millisecond
		}
		db := StoppedDatabase{Control: control, Primary: true, MayArchive: true}
		c.change(a, &db)
		freed := a.ReclaimSpace(t.Context(), db)
		var left []uint64
		for n := range uint64(10) {
			if _, err := os.Stat(a.files.walPath(segmentName(1, n))); err == nil {
				left = append(left, n)
			}
		}
		if diff := cmp.Diff(c.left, left); diff != "" {
			t.Errorf("%s: segments on the volume (-want +got):\n%s", c.name, diff)
		}
		if freed != (len(left) < 8) || a.ReadCounts().discarded != c.discarded || a.ReadCounts().archived != c.stored {
			t.Errorf("%s: freed %t, %+v", c.name, freed, a.ReadCounts())
		}
		if c.discarded > 0 && (a.ledger.openGap == nil || a.ledger.openGap.From != segmentName(1, 5) || a.ledger.openGapCause != agentapi.GapDiskSpace) {
			t.Errorf("%s: the gap is %+v", c.name, a.ledger.openGap)
		}
	}
}
