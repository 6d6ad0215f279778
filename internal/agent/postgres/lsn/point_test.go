package lsn

import (
	"testing"
)

func at(timeline int64, position string) Point { return Parse(timeline, position) }

func TestParsePoint(t *testing.T) {
	if got := at(3, "A/5000028"); got != (Point{3, 0xA_0500_0028}) || got.String() != "A/5000028 on timeline 3" {
		t.Errorf("got %+v, %s", got, got)
	}
	for _, bad := range []string{"", "x", "0", "0/"} {
		if got := at(1, bad); got != (Point{}) {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}
