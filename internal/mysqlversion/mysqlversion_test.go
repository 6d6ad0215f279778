package mysqlversion

import "testing"

func version(t *testing.T, text string) Version {
	t.Helper()
	v, ok := ParseDeclared(text)
	if !ok {
		t.Fatalf("%q is no version", text)
	}
	return v
}

func TestParse(t *testing.T) {
	cases := []struct{ name, text, reported, declared string }{
		{"a release", "9.7.4", "9.7.4", "9.7.4"},
		{"a series", "9.7", "", "9.7"},
		{"a patch of two digits", "8.4.11", "8.4.11", "8.4.11"},
		{"a distribution's mark", "9.7.4-2", "9.7.4", ""},
		{"a build's mark", "8.4.11-debug", "8.4.11", ""},
		{"leading zeros", "9.07.4", "", ""},
		{"four numbers", "9.7.4.1", "", ""},
		{"a major version", "9", "", ""},
		{"no patch", "9.7.", "", ""},
		{"a sign", "9.7.+4", "", ""},
		{"too much", "9.7.99999999999", "", ""},
		{"nothing", "", "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for want, parse := range map[string]func(string) (Version, bool){"r" + c.reported: Parse, "d" + c.declared: ParseDeclared} {
				v, ok := parse(c.text)
				if ok != (want[1:] != "") || ok && v.String() != want[1:] {
					t.Errorf("%q is %s, %t, want %q", c.text, v, ok, want)
				}
			}
		})
	}
}

func TestOrder(t *testing.T) {
	ascending := []string{"8.4.0", "8.4.9", "8.4.11", "8.4", "9.6.0", "9.7.0", "9.7.4", "9.7", "10.0.0"}
	for i, older := range ascending {
		for j, newer := range ascending {
			if got := version(t, older).IsBefore(version(t, newer)); got != (i < j) {
				t.Errorf("%s before %s: %t", older, newer, got)
			}
		}
	}
}

func TestFindObstacle(t *testing.T) {
	cases := []struct {
		name, have, next string
		want             Obstacle
		first            string
		oneWay           bool
	}{
		{"the same", "9.7.4", "9.7.4", None, "9.7.4", false},
		{"a newer patch", "9.7.3", "9.7.4", None, "9.7.4", false},
		{"an older patch, which Git set back", "9.7.4", "9.7.3", None, "9.7.3", false},
		{"any patch", "9.7.4", "9.7", None, "9.7", false},
		{"the next series", "8.4.11", "9.7.4", None, "9.7.4", true},
		{"an older series", "9.7.4", "8.4.11", Older, "9.7.4", false},
		{"a series without long-term support", "9.6.0", "9.7.4", Unsupported, "9.6.0", true},
		{"one to a series without long-term support", "8.4.11", "9.0.1", Unsupported, "8.4.11", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			have, next := version(t, c.have), version(t, c.next)
			got, first := FindObstacle(have, next)
			if got != c.want || first.String() != c.first {
				t.Errorf("got %d, %s first", got, first)
			}
			if got := IsOneWay(have, next); got != c.oneWay {
				t.Errorf("one way: %t", got)
			}
		})
	}
}

// With a third series, the one between is not left out.
func TestNoSeriesIsLeftOut(t *testing.T) {
	order := []Series{{8, 4}, {9, 7}, {10, 7}}
	got, first := findObstacle(order, version(t, "8.4.11"), version(t, "10.7.1"))
	if got != SkipsSeries || first.String() != "9.7" {
		t.Errorf("got %d, %s first", got, first)
	}
}

func TestSupportedSeries(t *testing.T) {
	for _, s := range ListSupported() {
		if !s.IsSupported() {
			t.Errorf("%s is listed and not supported", s)
		}
	}
	if (Series{8, 0}).IsSupported() || (Series{9, 6}).IsSupported() {
		t.Error("a series without support is run")
	}
}
