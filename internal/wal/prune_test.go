package wal

import (
	"math/rand"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPrune(t *testing.T) {
	a, _ := archive(t)
	dir, ctx := t.TempDir(), t.Context()
	if removed, err := a.PruneFiles(ctx, []string{"1:0/900000"}); removed != 0 || err != nil {
		t.Errorf("an archive that is empty: %d, %v", removed, err)
	}
	if err := a.ClaimArchive(ctx, Owner{SystemIdentifier: identity}); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(8) {
		name := Segment{1, n + 1}.Name(mebibyte)
		if err := a.StoreFile(ctx, segment(t, dir, name, 1), name); err != nil {
			t.Fatal(err)
		}
	}
	left := func(want int) {
		t.Helper()
		found, err := a.ListSegments(ctx, 1)
		if len(found) != want || err != nil {
			t.Errorf("%d are left, want %d, %v", len(found), want, err)
		}
	}
	if removed, err := a.PruneFiles(ctx, nil); removed != 0 || err != nil {
		t.Errorf("without a backup: %d, %v", removed, err)
	}
	if removed, err := a.PruneFiles(ctx, []string{"1:0/700000", "0/400000"}); removed != 0 || !refused(err) {
		t.Errorf("a position that is none: %d, %v", removed, err)
	}
	left(8)
	if removed, err := a.PruneFiles(ctx, []string{"1:0/700000", "1:0/400028"}); removed != 3 || err != nil {
		t.Errorf("removed %d, %v", removed, err)
	}
	left(5)
	if there, err := a.HasFile(ctx, Segment{1, 4}.Name(mebibyte)); !there || err != nil {
		t.Errorf("the segment that a backup begins in: %v, %v", there, err)
	}
	if _, err := a.ReadOwner(ctx); err != nil {
		t.Error(err)
	}
}

func TestSurplus(t *testing.T) {
	name := func(timeline uint32, n uint64) string { return Segment{timeline, n}.Name(mebibyte) }
	all := []string{name(1, 3), name(1, 3) + ".00000028.backup", name(1, 5) + ".partial", name(2, 5), name(3, 2), "00000002.history", "00000003.history", "owner"}
	cases := []struct {
		name string
		kept []Segment
		want []string
	}{
		{"none is kept", nil, nil},
		{"the oldest", []Segment{{1, 3}}, nil},
		{"one on the next timeline", []Segment{{2, 6}}, []string{name(1, 3), name(1, 3) + ".00000028.backup", name(1, 5) + ".partial", name(2, 5)}},
		{"an older timeline that went further", []Segment{{1, 9}}, []string{name(1, 3), name(1, 3) + ".00000028.backup", name(1, 5) + ".partial"}},
		{"two", []Segment{{1, 5}, {3, 2}}, nil},
	}
	for _, c := range cases {
		if diff := cmp.Diff(c.want, listSurplus(all, c.kept, mebibyte)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// Whichever way the WAL took, all that a kept backup may be gone on with stays:
// on its own timeline, and on every one that came of it.
func TestSurplusIsNeverNeeded(t *testing.T) {
	dropped := 0
	for seed := range int64(2000) {
		r := rand.New(rand.NewSource(seed))
		type line struct {
			history    History
			begin, end uint64
		}
		lines := map[uint32]line{1: {nil, 1, 2 + uint64(r.Intn(20))}}
		for n := uint32(2); n <= uint32(1+r.Intn(5)); n++ { // each came of an earlier one, anywhere on it
			parent := uint32(1 + r.Intn(int(n)-1))
			p := lines[parent]
			at := p.begin + uint64(r.Intn(int(p.end-p.begin)))
			lines[n] = line{append(slices.Clone(p.history), Turn{parent, at * mebibyte}), at, at + 1 + uint64(r.Intn(20))}
		}
		var names []string
		for timeline, l := range lines {
			for n := l.begin; n < l.end; n++ {
				names = append(names, Segment{timeline, n}.Name(mebibyte))
			}
		}
		var kept []Segment
		for range r.Intn(4) {
			timeline := uint32(1 + r.Intn(len(lines)))
			l := lines[timeline]
			kept = append(kept, Segment{timeline, l.begin + uint64(r.Intn(int(l.end-l.begin)))})
		}
		drop := listSurplus(names, kept, mebibyte)
		dropped += len(drop)
		for _, start := range kept {
			for timeline, l := range lines {
				if l.history.SegmentAt(timeline, start.Number, mebibyte) != start {
					continue // the backup is not on the way to this one
				}
				for n := start.Number; n < l.end; n++ {
					if needed := l.history.SegmentAt(timeline, n, mebibyte).Name(mebibyte); slices.Contains(drop, needed) {
						t.Fatalf("seed %d: %s is dropped, which %+v needs on the way to timeline %d", seed, needed, start, timeline)
					}
				}
			}
		}
	}
	if dropped < 1000 {
		t.Errorf("only %d segments were dropped", dropped)
	}
}
