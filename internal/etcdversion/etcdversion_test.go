package etcdversion

import "testing"

func TestParse(t *testing.T) {
	for text, want := range map[string]Version{"3.5.9": {5, 9}, "3.6.11": {6, 11}, "3.7.0-rc.1": {7, 0}} {
		if got, ok := Parse(text); got != want || !ok {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "3.6", "v3.6.1", "4.0.0", "2.3.8", "newest"} {
		if got, ok := Parse(text); ok {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestBetween(t *testing.T) {
	for _, c := range []struct {
		have, next string
		want       Obstacle
		first      string
	}{
		{"3.5.9", "3.5.9", None, "3.5.9"},
		{"3.5.9", "3.5.35", None, "3.5.35"},
		{"3.5.25", "3.6.16", Patch, "3.5.26"},
		{"3.5.26", "3.6.0", None, "3.6.0"},
		{"3.6.10", "3.7.3", Patch, "3.6.11"},
		{"3.6.11", "3.7.3", None, "3.7.3"},
		{"3.5.9", "3.7.3", Patch, "3.5.26"},
		{"3.5.26", "3.7.3", Minor, "3.6.0"},
		{"3.7.3", "3.8.0", None, "3.8.0"},
		{"3.6.1", "3.6.0", None, "3.6.0"},
		{"3.5.26", "3.5.9", None, "3.5.9"},
		{"3.6.1", "3.5.35", Older, "3.6.1"},
	} {
		have, _ := Parse(c.have)
		next, _ := Parse(c.next)
		if got, first := FindObstacle(have, next); got != c.want || first.String() != c.first {
			t.Errorf("from %s to %s: %d by way of %s, want %d by way of %s", c.have, c.next, got, first, c.want, c.first)
		}
	}
}
