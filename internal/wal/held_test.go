package wal

import (
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
