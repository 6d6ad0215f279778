package leadership

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// threeJoined are a leader and two members that stream from it, all of which may lead.
func threeJoined() membership {
	return membership{
		pod: "orders-0", own: "v0", declared: []string{"orders-0", "orders-1", "orders-2"},
		volumes:  map[string]string{"orders-1": "v1", "orders-2": "v2"},
		recorded: []string{"v0", "v1", "v2"}, reached: []string{"orders-1", "orders-2"},
	}
}

func TestPlanMembersVolumes(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*membership)
		want []string
	}{
		{"all that have joined", func(*membership) {}, []string{"v0", "v1", "v2"}},
		{"the leader alone", func(m *membership) { m.declared, m.volumes, m.recorded, m.reached = m.declared[:1], nil, nil, nil }, []string{"v0"}},
		{"a member that has received nothing yet does not join", func(m *membership) { m.recorded, m.reached = []string{"v0", "v1"}, []string{"orders-1"} }, []string{"v0", "v1"}},
		{"a member joins with the first that it received", func(m *membership) { m.recorded = []string{"v0", "v1"} }, []string{"v0", "v1", "v2"}},
		{"a member does not join that would wait for a shorter Lease", func(m *membership) { m.recorded, m.uninformed = []string{"v0", "v1"}, []string{"v1", "v2"} }, []string{"v0", "v1"}},
		{"a member that stopped streaming stays", func(m *membership) { m.reached = nil }, []string{"v0", "v1", "v2"}},
		{"a stream of a member whose volume is not known adds nothing", func(m *membership) { m.recorded, m.volumes = []string{"v0", "v1"}, map[string]string{"orders-1": "v1"} }, []string{"v0", "v1"}},
		{"a member that does not answer stays", func(m *membership) { m.volumes = map[string]string{"orders-1": "v1"} }, []string{"v0", "v1", "v2"}},
		{"no member has answered yet", func(m *membership) { m.volumes, m.reached = nil, nil }, []string{"v0", "v1", "v2"}},
		{"a member that was scaled away leaves", func(m *membership) { m.declared = m.declared[:2] }, []string{"v0", "v1"}},
		{"one that was scaled away before it answered leaves", func(m *membership) {
			m.declared, m.volumes = m.declared[:2], map[string]string{"orders-1": "v1"}
		}, []string{"v0", "v1"}},
		{"one that was scaled away stays while another one may run on its volume", func(m *membership) { m.declared, m.volumes = m.declared[:2], nil }, []string{"v0", "v1", "v2"}},
		{"a volume stays until the one that replaces it has joined", func(m *membership) {
			m.volumes["orders-2"], m.reached = "v9", []string{"orders-1"}
		}, []string{"v0", "v1", "v2"}},
		{"a volume leaves when the one that replaces it has joined", func(m *membership) { m.volumes["orders-2"] = "v9" }, []string{"v0", "v1", "v9"}},
		{"the leader's own volume joins on another pod of its name", func(m *membership) { m.recorded = []string{"v1", "v2"} }, []string{"v0", "v1", "v2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := threeJoined()
			c.edit(&m)
			if diff := cmp.Diff(election.MembersWanted{Volumes: c.want}, planMembers(m)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRule15PlanOfTheQuorum(t *testing.T) {
	recorded := &lease.Quorum{Volumes: []string{"v0", "v1", "v2"}, Write: 2}
	for _, c := range []struct {
		name   string
		number int
		edit   func(*membership)
		want   *lease.Quorum
	}{
		{"one standby acknowledges", 1, func(*membership) {}, &lease.Quorum{Volumes: []string{"v0", "v1", "v2"}, Write: 2}},
		{"all standbys acknowledge", 2, func(*membership) {}, &lease.Quorum{Volumes: []string{"v0", "v1", "v2"}, Write: 3}},
		{"before a standby has joined there is none", 1, func(m *membership) { m.declared, m.recorded = m.declared[:1], []string{"v0"} }, nil},
		{"what was promised holds until members are back", 2, func(m *membership) {
			m.quorum, m.declared, m.volumes = recorded, m.declared[:2], map[string]string{"orders-1": "v1"}
		}, recorded},
		{"commits wait while no standby streams", 1, func(m *membership) { m.reached = nil }, &lease.Quorum{Volumes: []string{"v0", "v1", "v2"}, Write: 2}},
		{"degraded, they do not", 1, func(m *membership) { m.reached, m.synchronous.Degrade = nil, true }, &lease.Quorum{Volumes: []string{"v0"}, Write: 1}},
		{"degraded to the one that streams", 2, func(m *membership) { m.reached, m.synchronous.Degrade = m.reached[:1], true }, &lease.Quorum{Volumes: []string{"v0", "v1"}, Write: 2}},
		{"it does not degrade for a moment", 1, func(m *membership) {
			m.reached, m.synchronous.Degrade, m.waits = nil, true, true
			m.quorum = &lease.Quorum{Volumes: []string{"v0", "v1"}, Write: 2}
		}, &lease.Quorum{Volumes: []string{"v0", "v1"}, Write: 2}},
		{"it does if one of the quorum is no member any more", 1, func(m *membership) {
			m.reached, m.synchronous.Degrade, m.waits = nil, true, true
			m.quorum = &lease.Quorum{Volumes: []string{"v0", "v7"}, Write: 2}
		}, &lease.Quorum{Volumes: []string{"v0"}, Write: 1}},
		{"degrading never asks for more than is declared", 1, func(m *membership) { m.synchronous.Degrade = true }, &lease.Quorum{Volumes: []string{"v0", "v1", "v2"}, Write: 2}},
		{"a stream of a member that may not lead does not count", 1, func(m *membership) {
			m.reached, m.synchronous.Degrade = []string{"orders-7"}, true
			m.volumes["orders-7"] = "v7"
		}, &lease.Quorum{Volumes: []string{"v0"}, Write: 1}},
		{"asynchronous mode gives the quorum up", 1, func(m *membership) { m.quorum, m.synchronous = recorded, nil }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := threeJoined()
			m.synchronous = &postgresapi.SynchronousConfig{Number: c.number}
			c.edit(&m)
			got := planMembers(m)
			if diff := cmp.Diff(c.want, got.Quorum); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got.Quorum != nil && c.want != recorded {
				if err := got.Quorum.Validate(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
