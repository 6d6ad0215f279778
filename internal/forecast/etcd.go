package forecast

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/forecast/settings"
)

// newGroup is the ID of a group that begins in a world.
const newGroup = "cdf818194e3a8c32"

// etcdPeerPort is that by which members reach each other.
const etcdPeerPort = 2380

// Types of the steps that are done through etcd.
const (
	etcdAddLearner    = "AddLearner"
	etcdPromoteMember = "PromoteMember"
	etcdRemoveMember  = "RemoveMember"
	etcdMoveLeader    = "MoveLeader"
)

// EtcdAgents form a group, which elects its leader.
type EtcdAgents struct {
	// group by ID, and the number of IDs that were given out.
	group map[string]etcdapi.GroupMember
	ids   int
	// leader is its ID; empty for none.
	leader string
	// data is the ID of the member whose data a volume has, by ordinal.
	data map[int]string
}

// NewEtcdAgents are those of a cluster, whose status names its members and its leader.
func NewEtcdAgents(c v1alpha1.Cluster) *EtcdAgents {
	a := &EtcdAgents{group: map[string]etcdapi.GroupMember{}, data: map[int]string{}}
	st := c.CommonStatus()
	if st.SystemIdentifier == "" {
		return a
	}
	for _, m := range st.Members {
		n, err := strconv.Atoi(strings.TrimPrefix(m.Name, c.GetName()+"-"))
		if err != nil {
			continue
		}
		id := a.admit(objects.Set{Cluster: c}, n)
		a.group[id] = etcdapi.GroupMember{ID: id, Name: m.Name, PeerURL: etcdPeerURL(objects.Set{Cluster: c}, n)}
		a.data[n] = id
		if m.Name == st.Primary {
			a.leader = id
		}
	}
	return a
}

func etcdPeerURL(s objects.Set, ordinal int) string {
	return fmt.Sprintf("https://%s:%d", s.PodHost(s.PodName(ordinal)), etcdPeerPort)
}

// admit gives a pod an ID in the group, without a vote.
func (a *EtcdAgents) admit(s objects.Set, ordinal int) string {
	a.ids++
	id := strconv.FormatInt(int64(0xa0+a.ids), 16)
	a.group[id] = etcdapi.GroupMember{ID: id, PeerURL: etcdPeerURL(s, ordinal), Learner: true}
	return id
}

// FindLeader is the member that leads and runs.
func (a *EtcdAgents) FindLeader(w *World) int {
	for n, id := range a.data {
		if id == a.leader && id != "" && w.Observed.Pods[n] != nil {
			return n
		}
	}
	return memberset.NoLeader
}

// elect makes sure that a member that runs and votes leads, if a quorum runs.
func (a *EtcdAgents) elect(w *World) {
	if m, found := a.group[a.leader]; found && !m.Learner && a.FindLeader(w) != memberset.NoLeader && a.isQuorate(w) {
		return
	}
	a.leader = ""
	if !a.isQuorate(w) {
		return
	}
	for _, n := range slices.Sorted(maps.Keys(a.data)) {
		if m, found := a.group[a.data[n]]; found && !m.Learner && w.Observed.Pods[n] != nil {
			a.leader = m.ID
			return
		}
	}
}

// isQuorate says whether the voters that run can agree.
func (a *EtcdAgents) isQuorate(w *World) bool {
	voters, present := 0, 0
	for id, m := range a.group {
		if m.Learner {
			continue
		}
		voters++
		for n, data := range a.data {
			if data == id && w.Observed.Pods[n] != nil {
				present++
			}
		}
	}
	return voters > 0 && present > voters/2
}

// ReportStatus implements Agents.
func (a *EtcdAgents) ReportStatus(w *World, ordinal int) agentapi.Status {
	a.elect(w)
	s := w.BaseStatus(ordinal)
	s.State, s.TrustHash = agentapi.StateWaiting, agentapi.HashConfig(w.Observed.Minted.TLS["ca.crt"])
	s.SystemIdentifier = ""
	id := a.data[ordinal]
	if id == "" || w.Reports(ordinal) < 2 {
		return s
	}
	member, counted := a.group[id]
	s.SystemIdentifier = w.identifier(ordinal, w.Cluster.CommonStatus().SystemIdentifier)
	if s.SystemIdentifier == "" {
		s.SystemIdentifier = newGroup
	}
	if !counted {
		s.State, s.Hold = agentapi.StateHeld, agentapi.HoldRemoved
		return s
	}
	s.Engine = etcdapi.GroupStatus{Group: &etcdapi.Group{Self: id, Leader: a.leader, Members: a.listMembers()}, DataLimit: w.lifeOf(ordinal).dataLimit}
	switch {
	case a.leader == "":
		s.State = agentapi.StateDisconnected
	case member.Learner:
		s.State = agentapi.StateCatchingUp
	default:
		s.State, s.Serving = agentapi.StateRunning, true
		s.PendingRestart = w.pendingParameters(ordinal, func(name string) settings.Effect { return a.EffectOf(w, name) })
		if w.lifeOf(ordinal).dataLimit != w.ReadConfig().DataLimit {
			s.PendingRestart = append(s.PendingRestart, etcdapi.PendingLimit)
		}
	}
	return s
}

func (a *EtcdAgents) listMembers() []etcdapi.GroupMember {
	return slices.SortedFunc(maps.Values(a.group), func(one, other etcdapi.GroupMember) int { return strings.Compare(one.ID, other.ID) })
}

// EndPod has another member lead where the pod was the leader's.
func (a *EtcdAgents) EndPod(w *World, _ int) { a.elect(w) }

// FollowRequests has a pod with an empty volume use its join grant.
func (a *EtcdAgents) FollowRequests(w *World) bool {
	for _, n := range slices.Sorted(maps.Keys(w.Observed.Pods)) {
		grant, found := w.ReadConfig().JoinGrants[w.Set().PodName(n)]
		if !found || a.data[n] != "" && a.isCounted(n) {
			continue
		}
		switch member, counted := a.group[grant.MemberID]; {
		case grant.State == etcdapi.JoinNew && len(a.group) == 0:
			id := a.admit(w.Set(), n)
			a.group[id] = etcdapi.GroupMember{ID: id, Name: w.Set().PodName(n), PeerURL: etcdPeerURL(w.Set(), n)}
			a.data[n] = id
		case grant.State == etcdapi.JoinExisting && counted && member.Name == "":
			member.Name = w.Set().PodName(n)
			a.group[member.ID], a.data[n] = member, member.ID
		default:
			continue
		}
		a.elect(w)
		w.Refresh(n)
		return true
	}
	return false
}

func (a *EtcdAgents) isCounted(ordinal int) bool {
	_, counted := a.group[a.data[ordinal]]
	return counted
}

// CarryOut does what is done through etcd. Maintenance changes nothing here.
func (a *EtcdAgents) CarryOut(w *World, s engine.Step) bool {
	switch s.Type {
	case etcdAddLearner:
		for n := range objects.MostMembers {
			if etcdPeerURL(w.Set(), n) == s.Subject {
				a.admit(w.Set(), n)
			}
		}
	case etcdPromoteMember:
		if m, found := a.group[s.Subject]; found {
			m.Learner = false
			a.group[s.Subject] = m
		}
	case etcdRemoveMember:
		delete(a.group, s.Subject)
	case etcdMoveLeader:
		from := a.FindLeader(w)
		a.leader = s.Subject
		w.record(Step{Kind: Switchover, Members: w.podsNamed([]int{from}), Message: s.Message, WritesPause: true, Successor: true})
		w.steps[len(w.steps)-1].Members = append(w.steps[len(w.steps)-1].Members, s.Target)
		return true
	case "Compact", "Defragment", "DisarmAlarm":
		return true
	default:
		return false
	}
	w.record(Step{Kind: GroupChange, Members: []string{s.Target}, Message: describeGroupStep(s)})
	return true
}

// describeGroupStep says what a step does to the group.
func describeGroupStep(s engine.Step) string {
	return map[string]string{
		etcdAddLearner: "is admitted to the group, without a vote", etcdPromoteMember: "gets its vote", etcdRemoveMember: "is removed from the group",
	}[s.Type]
}

// EffectOf implements Agents: etcd reads its flags when it starts.
func (*EtcdAgents) EffectOf(*World, string) settings.Effect { return settings.Restart }
