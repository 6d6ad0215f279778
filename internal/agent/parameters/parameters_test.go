package parameters

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is tuned otherwise now is not what it was, and what is declared stays as it worked last.
func TestFollowTuned(t *testing.T) {
	type values = map[string]string
	for name, c := range map[string]struct {
		ran, tuned   values
		next         values
		names        []string
		want, remain values
	}{
		"a trial was rolled back":                   {values{"jit": "off", "work_mem": "8MB"}, values{"work_mem": "8MB"}, values{"jit": "maybe"}, nil, values{"jit": "off"}, values{}},
		"the kept value before it is in force":      {values{"work_mem": "8MB"}, values{"work_mem": "8MB"}, values{"jit": "maybe", "work_mem": "6MB"}, []string{"work_mem"}, values{"work_mem": "6MB"}, values{"work_mem": "6MB"}},
		"it is still tuned":                         {values{"work_mem": "8MB"}, values{"work_mem": "8MB"}, values{"jit": "maybe", "work_mem": "8MB"}, []string{"work_mem"}, values{"work_mem": "8MB"}, values{"work_mem": "8MB"}},
		"it is declared as it was tuned":            {values{"work_mem": "8MB"}, values{"work_mem": "8MB"}, values{"work_mem": "8MB", "jit": "maybe"}, nil, values{"work_mem": "8MB"}, values{"work_mem": "8MB"}},
		"it is declared otherwise, and maybe wrong": {values{"work_mem": "8MB"}, values{"work_mem": "8MB"}, values{"work_mem": "much"}, nil, values{}, values{}},
		"what was declared is none of it":           {values{"work_mem": "5MB"}, values{"work_mem": "8MB"}, values{"jit": "maybe"}, nil, values{"work_mem": "5MB"}, values{"work_mem": "8MB"}},
		"nothing was tuned":                         {values{"work_mem": "5MB"}, nil, values{"work_mem": "6MB"}, []string{"work_mem"}, values{"work_mem": "5MB"}, nil},
		"nothing ran":                               {nil, nil, values{"work_mem": "6MB"}, []string{"work_mem"}, nil, nil},
	} {
		before := Tuned{Parameters: c.ran, Values: c.tuned}
		got := before.Follow(c.next, c.names)
		if diff := cmp.Diff(Tuned{Parameters: c.want, Values: c.remain}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	ran := map[string]string{"jit": "off", "work_mem": "8MB"}
	tuned := ReadTuned(ran, []string{"work_mem", "max_wal_size"})
	if diff := cmp.Diff(Tuned{Parameters: ran, Values: map[string]string{"work_mem": "8MB"}}, tuned); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if tuned.Follow(nil, nil); ran["work_mem"] != "8MB" || tuned.Values["work_mem"] != "8MB" {
		t.Error("what was read is changed")
	}
}

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
