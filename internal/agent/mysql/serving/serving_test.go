package serving

import (
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

const source = "5b8f3c1e-0000-5000-8000-000000000001"

func set(t *testing.T, text string) mysqlgtid.Set {
	t.Helper()
	s, err := mysqlgtid.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The lag is the age of the oldest transaction that waits, and not of a backlog that
// moves on.
func TestApplier(t *testing.T) {
	steps := []struct {
		name               string
		at                 time.Duration
		received, executed string
		lag                time.Duration
	}{
		{"nothing waits", 0, source + ":1-5", source + ":1-5", 0},
		{"two wait", time.Second, source + ":1-7", source + ":1-5", 0},
		{"one of them still waits", 2 * time.Second, source + ":1-9", source + ":1-6", time.Second},
		{"others wait by now", 3 * time.Second, source + ":1-12", source + ":1-9", 0},
		{"they wait", 5 * time.Second, source + ":1-12", source + ":1-9", 2 * time.Second},
		{"all is applied", 6 * time.Second, source + ":1-12", source + ":1-12", 0},
		{"received before a restart", 7 * time.Second, "", source + ":1-12", 0},
	}
	var a Applier
	for _, s := range steps {
		a = a.Observe(s.at, set(t, s.received), set(t, s.executed))
		if got := a.Lag(s.at); got != s.lag {
			t.Errorf("%s: the lag is %s, not %s", s.name, got, s.lag)
		}
	}
}

func TestJudgeMember(t *testing.T) {
	view := func(own group.State, primary string, others ...group.State) group.View {
		v := group.View{ID: "1", Members: []group.Member{{UUID: "a", State: own, Primary: primary == "a"}}}
		for i, state := range others {
			uuid := string(rune('b' + i))
			v.Members = append(v.Members, group.Member{UUID: uuid, State: state, Primary: primary == uuid})
		}
		return v
	}
	primary := func() Situation {
		return Situation{
			Observation: group.Observation{UUID: "a", State: group.Online, View: view(group.Online, "a", group.Online, group.Online)},
			Drained:     true, Prepared: true, Confirmed: true,
		}
	}
	replica := func() Situation {
		return Situation{Observation: group.Observation{UUID: "a", State: group.Online, SuperReadOnly: true, View: view(group.Online, "b", group.Online, group.Online)}, Confirmed: true}
	}
	cases := []struct {
		name  string
		from  func() Situation
		with  func(*Situation)
		state agentapi.State
		role  string
	}{
		{"a primary", primary, func(*Situation) {}, agentapi.StateRunning, v1alpha1.RolePrimary},
		{"a primary without one other", primary, func(s *Situation) { s.Observation.View.Members[1].State = group.Unreachable }, agentapi.StateRunning, v1alpha1.RolePrimary},
		{"a primary without a majority", primary, func(s *Situation) {
			s.Observation.View.Members[1].State, s.Observation.View.Members[2].State = group.Unreachable, group.Unreachable
		}, agentapi.StateDisconnected, v1alpha1.RoleMember},
		{"a primary with a backlog", primary, func(s *Situation) { s.Drained = false }, agentapi.StateRecovering, v1alpha1.RoleMember},
		{"a primary that takes no writes yet", primary, func(s *Situation) { s.Observation.SuperReadOnly = true }, agentapi.StateRecovering, v1alpha1.RoleMember},
		{"a primary without accounts", primary, func(s *Situation) { s.Prepared = false }, agentapi.StateRecovering, v1alpha1.RoleMember},
		{"a primary whose start may be overtaken", primary, func(s *Situation) { s.Confirmed = false }, agentapi.StateRecovering, v1alpha1.RoleMember},
		{"a primary that accepts no connection", primary, func(s *Situation) { s.Silent = "hangs" }, agentapi.StateHung, v1alpha1.RoleMember},
		{"a replica that becomes the primary", primary, func(s *Situation) { s.Reads, s.Drained = true, false }, agentapi.StateRecovering, v1alpha1.RoleReplica},
		{"a replica that is the primary and takes no writes yet", primary, func(s *Situation) { s.Reads, s.Observation.SuperReadOnly = true, true }, agentapi.StateRecovering, v1alpha1.RoleReplica},
		{"a replica that has become the primary", primary, func(s *Situation) { s.Reads = true }, agentapi.StateRunning, v1alpha1.RolePrimary},
		{"a replica that becomes the primary with much to apply", primary, func(s *Situation) { s.Reads, s.Drained, s.Lag = true, false, LagLimit }, agentapi.StateRecovering, v1alpha1.RoleMember},
		{"a replica whose start as the primary may be overtaken", primary, func(s *Situation) { s.Reads, s.Confirmed = true, false }, agentapi.StateRecovering, v1alpha1.RoleMember},
		{"a replica", replica, func(*Situation) {}, agentapi.StateStreaming, v1alpha1.RoleReplica},
		{"a replica just below the limit", replica, func(s *Situation) { s.Lag = LagLimit - 1 }, agentapi.StateStreaming, v1alpha1.RoleReplica},
		{"a replica that is behind", replica, func(s *Situation) { s.Lag = LagLimit }, agentapi.StateCatchingUp, v1alpha1.RoleMember},
		{"a replica in recovery", replica, func(s *Situation) {
			s.Observation.State, s.Observation.View = group.Recovering, view(group.Recovering, "b", group.Online)
		}, agentapi.StateCatchingUp, v1alpha1.RoleMember},
		{"a replica without a majority", replica, func(s *Situation) {
			s.Observation.View = view(group.Online, "b", group.Unreachable, group.Unreachable)
		}, agentapi.StateDisconnected, v1alpha1.RoleMember},
		{"a replica whose primary is lost", replica, func(s *Situation) {
			s.Observation.View = view(group.Online, "b", group.Unreachable, group.Online)
		}, agentapi.StateDisconnected, v1alpha1.RoleMember},
		{"a member that failed", replica, func(s *Situation) { s.Observation.State = group.Failed }, agentapi.StateDisconnected, v1alpha1.RoleMember},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := c.from()
			c.with(&s)
			j := JudgeMember(s)
			said := j.State == agentapi.StateRunning || j.State == agentapi.StateStreaming
			if j.State != c.state || j.Role != c.role || j.Serving() != (c.role != v1alpha1.RoleMember) || (j.Message == "") != said {
				t.Errorf("%+v", j)
			}
		})
	}
}
