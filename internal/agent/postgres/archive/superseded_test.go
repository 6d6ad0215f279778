package archive

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-db/holdfast/internal/wal"
)

// What a former primary is about to drop is stored: whole segments under their names, its
// half of the last one as partial, and nothing in the place of what the new primary stored.
func TestRule18SupersededWALIsStored(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1, 2)
	a.asks(1, 1, 2)
	a.ready(1, 3, 4) // the new primary left within the third
	a.write(1, 5)
	history := wal.HistoryName(2)
	successor := a.another(t.TempDir())
	mustWrite(t, successor.files.walPath(history), formatTurn(1, 3*uint64(mebibyte)+uint64(mebibyte)/2))
	partial := segmentName(1, 3) + partialSuffix
	data, err := os.ReadFile(a.files.walPath(segmentName(1, 3)))
	if err != nil {
		t.Fatal(err)
	}
	half := string(data[:mebibyte/2]) + string(make([]byte, mebibyte/2-1)) + "x"
	mustWrite(t, successor.files.walPath(partial), half)
	if err := successor.archiveFile(t.Context(), partial); err != nil {
		t.Fatal(err)
	}

	end := wal.Turn{Timeline: 1, Position: 5*uint64(mebibyte) + 100}
	a.down()
	if err := a.StoreSuperseded(t.Context(), a.files.pgdata, end); err == nil {
		t.Error("it is stored without a store")
	}
	if _, err := os.Stat(a.sign(segmentName(1, 3))); err != nil {
		t.Errorf("what is not stored waits no more: %v", err)
	}
	a.up()
	for range 2 {
		if err := a.StoreSuperseded(t.Context(), a.files.pgdata, end); err != nil {
			t.Fatal(err)
		}
		a.holds(1, 1, 2, 3, 4)
	}
	if !a.holdsFile("00000001/" + segmentName(1, 5) + partialSuffix + ".zst") {
		t.Error("the half of the last segment is not stored")
	}
	for _, n := range []uint64{3, 4} {
		if _, err := os.Stat(a.sign(segmentName(1, n))); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("segment %d waits still: %v", n, err)
		}
	}
	if !a.holdsFile("00000001/" + partial + ".zst") {
		t.Error("what the successor stored is gone")
	}
}

// WAL of which the archive holds another file under its name stays out of it, and holds
// nothing up.
func TestRule18SupersededWALReplacesNothing(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1)
	a.asks(1, 1)
	other := a.another(t.TempDir())
	data, err := os.ReadFile(a.files.walPath(segmentName(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	kept := other.files.pgdata
	mustWrite(t, other.files.walPath(segmentName(1, 1)), string(data[:len(data)-1])+"x")
	mustWrite(t, filepath.Join(kept, "pg_wal", "archive_status", segmentName(1, 1)+".ready"), "")
	mustWrite(t, other.files.walPath(segmentName(1, 2)), string(data[:len(data)-1])+"x") // and one that is not its name's
	mustWrite(t, filepath.Join(kept, "pg_wal", "archive_status", segmentName(1, 2)+".ready"), "")
	if err := a.StoreSuperseded(t.Context(), kept, wal.Turn{}); err != nil {
		t.Fatal(err)
	}
	a.holds(1, 1)
	archive, err := wal.Open(t.Context(), a.config.Store, a.config.Prefix, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = archive.Close() }()
	if err := archive.FetchFile(t.Context(), segmentName(1, 1), filepath.Join(kept, "fetched"), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(kept, "fetched")); err != nil || string(got) != string(data) {
		t.Errorf("what was stored first is replaced, %v", err)
	}
	a.nowhere.Store(true)
	if err := a.StoreSuperseded(t.Context(), kept, wal.Turn{Timeline: 1, Position: 0x100}); err != nil {
		t.Errorf("nothing is archived, and it fails: %v", err)
	}
}
