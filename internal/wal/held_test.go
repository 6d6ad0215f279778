package wal

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A timeline that was left where it began holds nothing: a recovery knew of it and
// ended before.
func TestListHeld(t *testing.T) {
	for name, c := range map[string]struct {
		history History
		want    []uint32
	}{
		"the first":               {nil, []uint32{7}},
		"two before":              {History{{1, 0x50}, {4, 0x70}}, []uint32{1, 4, 7}},
		"one that was not begun":  {History{{1, 0x50}, {4, 0x50}}, []uint32{1, 7}},
		"one of them, in between": {History{{1, 0x50}, {4, 0x50}, {5, 0x60}}, []uint32{1, 5, 7}},
	} {
		if diff := cmp.Diff(c.want, c.history.ListHeld(7)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// The history of a timeline is known from one that came of it.
func TestFindHistory(t *testing.T) {
	own := History{{1, 0x50}, {4, 0x70}}
	histories := map[uint32]History{4: nil, 7: own}
	for timeline, want := range map[uint32]History{7: own, 4: {{1, 0x50}}, 1: nil, 9: nil} {
		if diff := cmp.Diff(want, FindHistory(histories, timeline)); diff != "" {
			t.Errorf("timeline %d: %s", timeline, diff)
		}
	}
}

// A segment that is used again holds complete records of earlier positions behind what
// was written last. PostgreSQL does not replay them, as they name another predecessor.
func TestFindHeldLeavesRecordsOfReusedSegments(t *testing.T) {
	const size, base = 1 << 20, 5 << 20
	segment := make([]byte, size)
	binary.NativeEndian.PutUint16(segment, 0xd110)
	binary.NativeEndian.PutUint16(segment[2:], pageLong)
	binary.NativeEndian.PutUint32(segment[4:], 1)
	binary.NativeEndian.PutUint64(segment[8:], base)
	binary.NativeEndian.PutUint32(segment[32:], size)
	binary.NativeEndian.PutUint32(segment[36:], 8192)
	at := uint64(longHeader)
	put := func(previous uint64) (start, end uint64) {
		copy(segment[at:], makeRecord(previous, 16))
		start, at = base+at, at+recordHeader+16
		return start, base + at
	}
	first, firstEnd := put(4<<20 + 96) // of a segment that is gone
	_, secondEnd := put(first)
	_, staleEnd := put(first - size + 40)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, Segment{1, 5}.Name(size)), segment, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ from, redo, want uint64 }{
		"all but the last record are replayed": {firstEnd, first, secondEnd},
		"all are replayed":                     {secondEnd, first, secondEnd},
		"nothing is replayed":                  {first, first, secondEnd},
		"no record ends there":                 {secondEnd + 8, first, secondEnd + 8},
		"what a stale record would begin with": {staleEnd, first, staleEnd},
	} {
		found, err := FindHeld(dir, 1, c.from, c.redo)
		if want := (Extent{1, c.want, c.want}); err != nil || found != want {
			t.Errorf("%s: %+v, %v; want %+v", name, found, err, want)
		}
	}
}

// Where it cannot be read what precedes a record, nothing is known, which is not that the
// WAL ends there.
func TestFindHeldSaysWhatItCannotRead(t *testing.T) {
	dir, size := t.TempDir(), uint64(1<<20)
	segment := make([]byte, size)
	binary.NativeEndian.PutUint16(segment, 0xd110)
	binary.NativeEndian.PutUint16(segment[2:], pageLong)
	binary.NativeEndian.PutUint32(segment[4:], 1)
	binary.NativeEndian.PutUint64(segment[8:], 5*size)
	binary.NativeEndian.PutUint32(segment[32:], uint32(size)) //nolint:gosec // it is one mebibyte
	binary.NativeEndian.PutUint32(segment[36:], 8192)
	copy(segment[longHeader:], makeRecord(4*size+longHeader, 16))
	if err := os.WriteFile(filepath.Join(dir, Segment{1, 5}.Name(int64(size))), segment, 0o600); err != nil { //nolint:gosec // it is one mebibyte
		t.Fatal(err)
	}
	// The segment before it is no file: it opens, and cannot be read.
	if err := os.Mkdir(filepath.Join(dir, Segment{1, 4}.Name(int64(size))), 0o700); err != nil { //nolint:gosec // it is one mebibyte
		t.Fatal(err)
	}
	if found, err := FindHeld(dir, 1, 5*size+longHeader, 0); err == nil {
		t.Errorf("found %+v", found)
	}
}

// makeRecord is a record of this much data, which names the start of the one before.
func makeRecord(previous uint64, data int) []byte {
	record := make([]byte, recordHeader+data)
	binary.NativeEndian.PutUint32(record, uint32(len(record))) //nolint:gosec // it is short
	binary.NativeEndian.PutUint64(record[8:], previous)
	record[17] = 10
	sum := crc32.New(castagnoli)
	sum.Write(record[recordHeader:]) //nolint:errcheck // it never fails
	sum.Write(record[:20])           //nolint:errcheck // it never fails
	binary.NativeEndian.PutUint32(record[20:], sum.Sum32())
	return record
}
