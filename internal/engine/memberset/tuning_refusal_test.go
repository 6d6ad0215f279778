package memberset

import "testing"

// A refusal is about the settings that it names, and about no other.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		fault       string
		about, only bool
	}{
		{"", false, false},
		{"work_mem: 9 is outside the valid range (64 .. 2147483647)", true, true},
		{"WORK_MEM: invalid value: \"x\"", true, true},
		{"jit: invalid value: \"work_mem\"", false, false},
		{"maintenance_work_mem: invalid value: \"x\"", false, false},
		{"work_memm: unrecognized configuration parameter", false, false},
		{"jit: invalid value: \"x\"; work_mem: invalid value: \"y\"", true, false},
		{"work_mem: invalid value: \"y\"; jit: invalid value: \"x\"", true, false},
		{`"work_mem" must be at least something`, true, true},
		{`"max_wal_size" must be at least twice "wal_segment_size"`, false, false},
		{"cannot execute", false, false},
		{"syntax error near token \"off\"", false, false},
	} {
		if about, only := refusesSetting(c.fault, "work_mem"), refusesOnly(c.fault, "work_mem"); about != c.about || only != c.only {
			t.Errorf("%q: it is about work_mem: %v, and only: %v", c.fault, about, only)
		}
	}
	if refusesSetting(`: "" is no name`, "") || refusesOnly("", "") {
		t.Error("a trial without a name is refused")
	}
}
