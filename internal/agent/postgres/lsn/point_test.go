package lsn

import "testing"

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

func TestIsAhead(t *testing.T) {
	cases := []struct {
		name         string
		own, primary Point
		want         bool
	}{
		{"behind on one timeline", Parse(1, "0/10"), Parse(1, "0/20"), false},
		{"equal", Parse(1, "0/20"), Parse(1, "0/20"), false},
		{"beyond on one timeline", Parse(1, "0/30"), Parse(1, "0/20"), true},
		{"beyond across the high word", Parse(1, "1/0"), Parse(1, "0/FFFFFFFF"), true},
		{"of a timeline that the primary does not have", Parse(2, "0/10"), Parse(1, "0/20"), true},
		{"of an older timeline", Parse(1, "0/30"), Parse(2, "0/20"), false},
		{"a primary that does not say where it is", Parse(1, "0/30"), Point{Timeline: 1}, false},
	}
	for _, c := range cases {
		if got := IsAhead(c.own, c.primary); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
