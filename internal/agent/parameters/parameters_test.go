package parameters

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCandidates(t *testing.T) {
	a, b, none := map[string]string{"a": "1"}, map[string]string{"b": "1"}, map[string]string{}
	cases := []struct {
		name             string
		declared, proven map[string]string
		want             []map[string]string
	}{
		{"nothing declared is tried once", nil, nil, []map[string]string{nil}},
		{"what was never proven falls back to nothing", a, nil, []map[string]string{a, none}},
		{"what is proven falls back to nothing", a, a, []map[string]string{a, none}},
		{"a change falls back to what is proven, then to nothing", b, a, []map[string]string{b, a, none}},
		{"a change from nothing falls back to nothing", a, none, []map[string]string{a, none}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, ListCandidates(c.declared, c.proven)); diff != "" {
				t.Errorf("candidates (-want +got):\n%s", diff)
			}
		})
	}
}
