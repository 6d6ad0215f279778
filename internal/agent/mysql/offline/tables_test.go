package offline

import "testing"

// Names are those that InnoDB's dictionary has for tables and their partitions.
func TestHasTablespace(t *testing.T) {
	cases := []struct {
		table table
		name  string
		want  bool
	}{
		{table{"app", "t"}, "app/t", true},
		{table{"a b", "x/é#y"}, "a b/x/é#y", true},
		{table{"app", "parts"}, "app/parts#p#p1", true},
		{table{"app", "t"}, "app/t2", false},
		{table{"app", "t"}, "other/t", false},
		{table{"app", "t"}, "app/T", false},
	}
	for _, c := range cases {
		if got := c.table.hasTablespace(c.name); got != c.want {
			t.Errorf("%+v and %s: %t", c.table, c.name, got)
		}
	}
}
