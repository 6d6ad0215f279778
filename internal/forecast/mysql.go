package forecast

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/forecast/settings"
)

// newReplicationGroup is the name of a group that begins in a world.
const newReplicationGroup = "5b8f3c1e-0000-5000-8000-000000000001"

// MySQLAgents form a group with one primary. A member leaves it in order when its pod
// ends, and joins it again.
type MySQLAgents struct {
	// leads is the member that leads, or that led last; memberset.NoLeader before.
	leads int
	// views counts the changes of the group.
	views int
	// group are the members that it counts, ascending.
	group []int
}

// NewMySQLAgents are those of a cluster, with the primary that its status names.
func NewMySQLAgents(c v1alpha1.Cluster) *MySQLAgents {
	a := &MySQLAgents{leads: memberset.NoLeader}
	if n, err := strconv.Atoi(strings.TrimPrefix(c.CommonStatus().Primary, c.GetName()+"-")); err == nil {
		a.leads = n
	}
	return a
}

// mysqlServer is the UUID of a member's server.
func mysqlServer(ordinal int) string {
	return fmt.Sprintf("aaaaaaaa-0000-0000-0000-%012d", ordinal)
}

// FindLeader is the member that leads and runs.
func (a *MySQLAgents) FindLeader(w *World) int {
	if a.leads == memberset.NoLeader || w.Observed.Pods[a.leads] == nil || w.Reports(a.leads) < 2 {
		return memberset.NoLeader
	}
	return a.leads
}

// gather has the members that run be the group, and elects a primary where it has none.
func (a *MySQLAgents) gather(w *World) {
	running := w.listReporting()
	if w.Cluster.CommonStatus().SystemIdentifier == "" {
		running = slices.DeleteFunc(running, func(n int) bool { return n != memberset.BootstrapOrdinal })
	}
	if !slices.Equal(running, a.group) {
		a.group = running
		a.views++
	}
	if !slices.Contains(a.group, a.leads) && len(a.group) > 0 {
		a.leads = a.group[0]
	}
}

// ReportStatus implements Agents.
func (a *MySQLAgents) ReportStatus(w *World, ordinal int) agentapi.Status {
	a.gather(w)
	s := w.BaseStatus(ordinal)
	s.TLSHash = agentapi.HashTLS(w.Observed.Minted.TLS)
	if !slices.Contains(a.group, ordinal) {
		s.State = agentapi.StateWaiting
		r := &mysqlapi.MemberReport{Phase: mysqlapi.PhaseEmpty}
		if s.SystemIdentifier != "" {
			r.Phase, r.ServerUUID, r.Group = mysqlapi.PhaseDown, mysqlServer(ordinal), s.SystemIdentifier
		}
		s.Engine = mysqlapi.GroupStatus{GroupReplication: r}
		return s
	}
	if s.SystemIdentifier == "" {
		s.SystemIdentifier = newReplicationGroup
	}
	s.Role, s.State, s.Serving = v1alpha1.RoleReplica, agentapi.StateStreaming, true
	if ordinal == a.leads {
		s.Role, s.State = v1alpha1.RolePrimary, agentapi.StateRunning
		if config := w.ReadConfig(); config.Archive != nil {
			s.Archive = w.archiveStatus()
		}
	}
	s.PendingRestart = w.pendingParameters(ordinal, func(name string) settings.Effect { return a.EffectOf(w, name) })
	s.Engine = mysqlapi.GroupStatus{GroupReplication: a.describeGroup(w, ordinal, s.SystemIdentifier)}
	return s
}

// describeGroup is a member's part in the group.
func (a *MySQLAgents) describeGroup(w *World, ordinal int, group string) *mysqlapi.MemberReport {
	r := &mysqlapi.MemberReport{
		ServerUUID: mysqlServer(ordinal), Group: group, Phase: mysqlapi.PhaseInGroup, Executed: group + ":1-9", ViewID: fmt.Sprintf("17000000000000000:%d", a.views),
	}
	for _, n := range a.group {
		r.View = append(r.View, mysqlapi.ViewMember{
			ServerUUID: mysqlServer(n), Address: w.Set().PodHost(w.Set().PodName(n)) + ":3306", State: mysqlapi.StateOnline, Primary: n == a.leads, Version: w.lifeOf(n).version,
		})
		r.Persisted = append(r.Persisted, mysqlServer(n))
	}
	return r
}

// EndPod has another member lead where the pod was the primary's: its agent moves the lead
// before it stops.
func (a *MySQLAgents) EndPod(w *World, _ int) { a.gather(w) }

// FollowRequests carries out a switchover that is requested.
func (a *MySQLAgents) FollowRequests(w *World) bool {
	requests := w.ReadConfig().GroupReplication
	if requests == nil || requests.Switchover == nil || !slices.Contains(a.group, a.leads) || requests.Switchover.From != mysqlServer(a.leads) {
		return false
	}
	target := w.ordinalOfPod(requests.Switchover.Target)
	if requests.Switchover.Target == "" {
		i := slices.IndexFunc(a.group, func(n int) bool { return n != a.leads })
		if i < 0 {
			return false
		}
		target = a.group[i]
	}
	if !slices.Contains(a.group, target) || target == a.leads {
		return false
	}
	from := a.leads
	a.leads, a.views = target, a.views+1
	w.record(Step{Kind: Switchover, Members: []string{w.Set().PodName(from), w.Set().PodName(target)}, WritesPause: true, Successor: true})
	for _, n := range slices.Sorted(maps.Keys(w.Observed.Pods)) {
		w.Refresh(n)
	}
	return true
}

// CarryOut implements Agents: MySQL has no steps of its own.
func (*MySQLAgents) CarryOut(*World, engine.Step) bool { return false }

// EffectOf implements Agents.
func (*MySQLAgents) EffectOf(w *World, parameter string) settings.Effect {
	return settings.ForMySQL(w.Cluster.CommonStatus().Version).EffectOf(parameter)
}
