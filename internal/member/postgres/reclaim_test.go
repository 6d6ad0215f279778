package postgres

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/member"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// writeSlot writes a replication slot that needs WAL from a position on.
func writeSlot(t *testing.T, pgdata, name string, position uint64) {
	t.Helper()
	data := make([]byte, 200)
	binary.NativeEndian.PutUint32(data, slotMagic)
	binary.NativeEndian.PutUint64(data[slotRestart:], position)
	dir := filepath.Join(pgdata, "pg_replslot", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(dir, "state"), string(data))
}

// stopped is the data directory of a database whose crash recovery begins in
// segment 6: 2 was recorded as neither, 3 and 4 are archived, 5 to 8 wait.
func stopped(t *testing.T) (*archiving, controlData) {
	t.Helper()
	a := newArchiving(t)
	a.archiver = a.another(filepath.Join(t.TempDir(), dataName))
	a.write(1, 2, 3, 4, 9)
	a.ready(1, 5, 6, 7, 8)
	for _, n := range []uint64{3, 4} {
		mustWrite(t, markPath(a.pgdata, segmentName(1, n), doneSuffix), "")
	}
	if err := os.MkdirAll(filepath.Join(a.pgdata, "pg_replslot"), 0o700); err != nil {
		t.Fatal(err)
	}
	return a, controlData{SystemIdentifier: "7", Timeline: 1, Redo: "0/600028", SegmentSize: mebibyte}
}

func TestFindOldWAL(t *testing.T) {
	names := func(numbers ...uint64) (all []string) {
		for _, n := range numbers {
			all = append(all, segmentName(1, n))
		}
		return all
	}
	all := oldWAL{archived: names(3, 4), waiting: names(5), unmarked: names(2), size: mebibyte}
	for _, c := range []struct {
		name    string
		change  func(a *archiving, c *controlData)
		want    oldWAL
		refused bool
	}{
		{"what is older than where crash recovery begins", func(*archiving, *controlData) {}, all, false},
		{"a replication slot needs some of it", func(a *archiving, _ *controlData) {
			writeSlot(t, a.pgdata, "holdfast_orders_1", 4*uint64(mebibyte)+5)
			writeSlot(t, a.pgdata, "holdfast_orders_2", 7*uint64(mebibyte))
		}, oldWAL{archived: names(3), unmarked: names(2), size: mebibyte}, false},
		{"a replication slot that was invalidated needs nothing", func(a *archiving, _ *controlData) { writeSlot(t, a.pgdata, "lost", 0) }, all, false},
		{"a temporary replication slot ended with its session", func(a *archiving, _ *controlData) {
			writeSlot(t, a.pgdata, "pg_basebackup_77", 3*uint64(mebibyte))
			path := filepath.Join(a.pgdata, "pg_replslot", "pg_basebackup_77", "state")
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			binary.NativeEndian.PutUint32(data[84:], 2) // RS_TEMPORARY
			mustWrite(t, path, string(data))
		}, all, false},
		{"a replication slot that was never made needs nothing", func(a *archiving, _ *controlData) {
			if err := os.MkdirAll(filepath.Join(a.pgdata, "pg_replslot", "x.tmp"), 0o700); err != nil {
				t.Error(err)
			}
		}, all, false},
		{"a replication slot that cannot be read may need all", func(a *archiving, _ *controlData) {
			writeSlot(t, a.pgdata, "x", 0)
			mustWrite(t, filepath.Join(a.pgdata, "pg_replslot", "x", "state"), "another layout")
		}, oldWAL{}, true},
		{"without replication slots nothing is known of them", func(a *archiving, _ *controlData) { _ = os.Remove(filepath.Join(a.pgdata, "pg_replslot")) }, oldWAL{}, true},
		{"a copy's recovery begins elsewhere", func(a *archiving, _ *controlData) { mustWrite(t, filepath.Join(a.pgdata, "backup_label"), "") }, oldWAL{}, true},
		{"so does one from an archive", func(a *archiving, _ *controlData) { mustWrite(t, filepath.Join(a.pgdata, "recovery.signal"), "") }, oldWAL{}, true},
		{"where crash recovery begins is not known", func(_ *archiving, c *controlData) { c.Redo = "" }, oldWAL{}, true},
		{"how large segments are is not known", func(_ *archiving, c *controlData) { c.SegmentSize = 0 }, oldWAL{}, true},
	} {
		a, control := stopped(t)
		c.change(a, &control)
		got, err := findOldWAL(a.pgdata, control)
		if refused := err != nil; refused != c.refused {
			t.Errorf("%s: %v", c.name, err)
		} else if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(oldWAL{})); !refused && diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// A full volume has room again when WAL that nothing needs is removed: what waits
// for the store is stored before, or given up where the store takes nothing. What
// crash recovery needs stays.
func TestReclaim(t *testing.T) {
	for _, c := range []struct {
		name            string
		change          func(a *archiving, f *facts)
		left            []uint64 // segments
		stored, givenUp float64
	}{
		{"the store takes what waits", func(*archiving, *facts) {}, []uint64{2, 6, 7, 8, 9}, 1, 0},
		{"the store holds what waits", func(a *archiving, _ *facts) { a.hangs.Store(true) }, []uint64{2, 6, 7, 8, 9}, 0, 1},
		{"the store is away", func(a *archiving, _ *facts) { a.down() }, []uint64{2, 6, 7, 8, 9}, 0, 1},
		{"nothing is archived", func(a *archiving, _ *facts) { a.nowhere.Store(true) }, []uint64{6, 7, 8, 9}, 0, 0},
		{"another member may lead", func(_ *archiving, f *facts) { f.Lease.Claim = member.ClaimHeld }, []uint64{2, 5, 6, 7, 8, 9}, 0, 0},
		{"a replication slot needs all", func(a *archiving, _ *facts) { writeSlot(t, a.pgdata, "x", uint64(mebibyte)) }, []uint64{2, 3, 4, 5, 6, 7, 8, 9}, 0, 0},
	} {
		a, control := stopped(t)
		if a.left = 0; c.givenUp > 0 {
			a.pace.slow = 20 * time.Millisecond
		}
		agent := &agent{log: a.log, archive: a.archiver}
		agent.o.DataDir = filepath.Dir(a.pgdata)
		agent.o.space = func(string) member.Space { return a.space() }
		f := facts{Volume: volume{Control: control}, Lease: member.Record{Claim: member.ClaimMine}}
		c.change(a, &f)
		freed := agent.reclaim(t.Context(), f)
		var left []uint64
		for n := range uint64(10) {
			if _, err := os.Stat(a.path(segmentName(1, n))); err == nil {
				left = append(left, n)
			}
		}
		if diff := cmp.Diff(c.left, left); diff != "" {
			t.Errorf("%s: segments on the volume (-want +got):\n%s", c.name, diff)
		}
		if freed != (len(left) < 8) || a.numbers().givenUp != c.givenUp || a.numbers().archived != c.stored {
			t.Errorf("%s: freed %t, %+v", c.name, freed, a.numbers())
		}
		if c.givenUp > 0 && (a.giving == nil || a.giving.From != segmentName(1, 5) || a.givingFor != memberapi.GapDiskSpace) {
			t.Errorf("%s: the gap is %+v", c.name, a.giving)
		}
	}
}

// What a server that crashed has left goes before anything else.
func TestRemoveTemporary(t *testing.T) {
	pgdata := t.TempDir()
	keep, drop := []string{"base/5/16384", "pg_wal/000000010000000000000001", "base/pgsql_tmp/other"}, []string{"base/pgsql_tmp/pgsql_tmp77.0", "pg_wal/xlogtemp.77"}
	for _, name := range append(append([]string{}, keep...), drop...) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(pgdata, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, filepath.Join(pgdata, name), "x")
	}
	if !removeTemporary(pgdata) || removeTemporary(pgdata) {
		t.Error("it does not say what it removed")
	}
	for _, name := range keep {
		if _, err := os.Stat(filepath.Join(pgdata, name)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range drop {
		if _, err := os.Stat(filepath.Join(pgdata, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}
