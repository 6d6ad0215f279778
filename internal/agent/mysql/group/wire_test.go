package group

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

// sameReport compares what reports say.
func sameReport(t *testing.T, want, got Report) {
	t.Helper()
	for name, sets := range map[string][2]string{
		"executed": {want.Executed.String(), got.Executed.String()},
		"received": {want.Received.String(), got.Received.String()},
		"purged":   {want.Purged.String(), got.Purged.String()},
	} {
		if sets[0] != sets[1] {
			t.Errorf("%s: %q, not %q", name, sets[1], sets[0])
		}
	}
	if want.Pod != got.Pod || want.Ordinal != got.Ordinal || want.UUID != got.UUID || want.Group != got.Group || want.Phase != got.Phase || want.SingleLeader != got.SingleLeader || want.JoinsSingleLeader != got.JoinsSingleLeader {
		t.Errorf("%+v, not %+v", got, want)
	}
	if diff := cmp.Diff(want.View, got.View); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want.Persisted, got.Persisted); diff != "" {
		t.Error(diff)
	}
}

// What one agent writes another one reads: the same decisions follow.
func TestReportsOnTheWire(t *testing.T) {
	full := serving(1, "G:1-9:tag:1", 1, 0, 2)
	full.Received, full.Purged, full.Persisted = gtids("G:4-12"), gtids("G:1-3,L:7"), []string{uuidOf(0), uuidOf(1)}
	full.SingleLeader, full.JoinsSingleLeader = true, true
	full.View.ID = "17613862:5"
	full.View.Members[1] = Member{UUID: uuidOf(0), Address: "a-0.a-members.ns.svc:3306", State: Unreachable, Version: "9.7.4"}
	reports := []Report{full, {Pod: "a-0", Phase: Empty}, detached(2, "G:1")}
	for _, phase := range []Phase{Down, Starting} {
		reports = append(reports, with(detached(0, "G:1-3"), func(r *Report) { r.Phase = phase }))
	}
	for _, want := range reports {
		written := want.WriteReport()
		text, err := json.Marshal(mysqlapi.GroupStatus{GroupReplication: &written})
		if err != nil {
			t.Fatal(err)
		}
		var status mysqlapi.GroupStatus
		if err := json.Unmarshal(text, &status); err != nil {
			t.Fatal(err)
		}
		got, err := ReadReport(want.Pod, *status.GroupReplication)
		if err != nil {
			t.Fatal(err)
		}
		sameReport(t, want, got)
	}
}

func TestReportsThatCannotBeRead(t *testing.T) {
	good := detached(0, "G:1-3").WriteReport()
	cases := []struct {
		name, pod string
		change    func(*mysqlapi.MemberReport)
	}{
		{"a phase of a newer agent", "a-0", func(m *mysqlapi.MemberReport) { m.Phase = "merging" }},
		{"no phase", "a-0", func(m *mysqlapi.MemberReport) { m.Phase = "" }},
		{"half a set", "a-0", func(m *mysqlapi.MemberReport) { m.Received = "5b8f3c1e" }},
		{"no member's pod", "a", func(*mysqlapi.MemberReport) {}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := good
			c.change(&m)
			if r, err := ReadReport(c.pod, m); err == nil {
				t.Errorf("%+v", r)
			}
		})
	}
}
