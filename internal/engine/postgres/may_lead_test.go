package postgres

import (
	"testing"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// A replica counts as done only once it may lead after the leader.
func TestReplicaIsDoneOnceItMayLead(t *testing.T) {
	report := func(e *postgresapi.ElectionState) *agentapi.Status {
		return &agentapi.Status{Engine: postgresapi.ReplicationStatus{Lease: &postgresapi.LeaseState{Term: 2}, Election: e}}
	}
	leader := report(&postgresapi.ElectionState{Volume: "v0", MayLead: []string{"v0", "v1"}})
	for _, c := range []struct {
		name           string
		leader, member *agentapi.Status
		want           bool
	}{
		{"on the Lease", leader, report(&postgresapi.ElectionState{Volume: "v1"}), true},
		{"not on the Lease yet", leader, report(&postgresapi.ElectionState{Volume: "v2"}), false},
		{"with an agent of an earlier version", leader, report(nil), true},
		{"of a leader with an agent of an earlier version", report(nil), report(&postgresapi.ElectionState{Volume: "v2"}), true},
	} {
		if got := (leadership{leader: 0, status: c.leader}).mayTakeOver(c.member); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
