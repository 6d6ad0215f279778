package mysql

import (
	"math/rand/v2"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// model plays API server, StatefulSet controller and agents around a world: pods follow
// the declared count, members join and leave the group, and the primary moves as requested.
type model struct {
	*world
	count int
	// away are members whose pods do not run, by ordinal.
	away map[int]bool
	// deleted are the volumes that were deleted.
	deleted []int
}

func newModel(t *testing.T, replicas int) *model {
	return &model{world: settled(t, replicas), count: replicas, away: map[int]bool{}}
}

// members of the group: those whose pods run.
func (m *model) members() (all []int) {
	for n := range m.count {
		if !m.away[n] {
			all = append(all, n)
		}
	}
	return all
}

// settle has pods and members follow what is declared, and members elect a primary.
func (m *model) settle() {
	all := m.members()
	led := false
	for n := range memberset.BootstrapOrdinal + 9 {
		if n >= m.count || m.away[n] {
			m.removePod(n)
		}
	}
	for _, n := range all {
		led = led || n == m.leads
	}
	if !led && len(all) > 0 {
		m.leads = all[0]
	}
	m.o.ServicePods = map[string]map[string]bool{suffixRW: {}, suffixRO: {}}
	for _, n := range all {
		if m.o.Volumes[n] == nil {
			m.volume(n, true)
		}
		m.member(n)
	}
	if 2*len(all) > m.count { // else no member leads
		m.report(all...)
	} else {
		for _, n := range all {
			m.detach(n, "1-9", "orders-8")
		}
	}
	m.takeUp()
	if r := m.requested().Switchover; r != nil && r.From == serverUUID(m.leads) {
		for _, n := range all {
			if membersOf(m.c).PodName(n) == r.Target {
				m.leads = n
			}
		}
	}
}

// apply does what the plan says, and checks what must hold of each plan.
func (m *model) apply() {
	m.t.Helper()
	p := m.plan()
	m.c.Status.Requests = p.Report.Requests
	out := outcomeOf(p)
	g := readGroup(membersOf(m.c), m.o)
	if out.Count < m.count {
		if out.Count != m.count-1 {
			m.t.Fatalf("from %d members to %d at once", m.count, out.Count)
		}
		if g.leader == m.count-1 || !g.isLed() {
			m.t.Fatalf("the primary %d is scaled away, or none leads: %+v", g.leader, g)
		}
		if left := len(g.online); g.online[m.count-1] && 2*(left-1) <= g.voters-1 || !g.online[m.count-1] && 2*left <= g.voters {
			m.t.Fatalf("the rest of the group has no majority: %+v", g)
		}
		v := m.volume(m.count-1, false)
		v.Annotations = map[string]string{v1alpha1.AnnotationScaledAway: string(m.c.Spec.DeletionPolicy), v1alpha1.AnnotationCluster: string(m.c.UID)}
	}
	for n := m.count; n < out.Count; n++ {
		m.volume(n, true)
	}
	m.count = out.Count
	if p.Step == nil {
		return
	}
	switch p.Step.Type {
	case memberset.StepReplaceMember:
		for n := range m.count {
			if m.PodNameOf(n) == p.Step.Target && g.online[n] && len(g.online) < g.voters && len(g.online)-1 < memberset.CountMajority(g.voters-1) {
				m.t.Fatalf("%s is replaced while too few are online: %+v", p.Step.Target, g)
			}
		}
	case memberset.StepDeleteVolume:
		if m.c.Spec.DeletionPolicy != v1alpha1.DeletionDelete {
			m.t.Fatalf("%s is deleted under Retain", p.Step.Target)
		}
		for n := range m.o.Volumes {
			if membersOf(m.c).VolumeName(n) == p.Step.Target {
				delete(m.o.Volumes, n)
				m.deleted = append(m.deleted, n)
			}
		}
	}
}

// PodNameOf a member.
func (m *model) PodNameOf(n int) string { return membersOf(m.c).PodName(n) }

// Whatever is declared and whichever members are away, no plan takes the majority, or the primary,
// away; and what is declared comes about when all are back.
func TestConverges(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := newModel(t, []int{1, 3, 5}[r.IntN(3)])
		if r.IntN(2) == 0 {
			m.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
		}
		m.settle()
		for range 60 {
			switch r.IntN(6) {
			case 0:
				m.declareReplicas(int32([]int{1, 3, 5, 7, 9}[r.IntN(5)]))
				m.c.Generation++
			case 1:
				m.away[r.IntN(m.count)] = true
			case 2:
				clear(m.away)
			case 3:
				m.leads = r.IntN(m.count)
			case 4:
				m.c.Spec.PodLabels = map[string]string{"team": string(rune('a' + r.IntN(3)))}
			}
			m.settle()
			m.apply()
		}
		clear(m.away)
		want := int(*m.c.Spec.Replicas)
		for range 40 {
			m.settle()
			m.apply()
		}
		if m.count != want {
			t.Fatalf("seed %d: %d members, and %d are declared; requests %+v", seed, m.count, want, m.c.Status.Requests)
		}
	}
}

// No report makes a plan fail, or act for a primary that is none.
func TestAnyReportIsPlanned(t *testing.T) {
	states := []agentapi.State{agentapi.StateRunning, agentapi.StateStreaming, agentapi.StateWaiting, agentapi.StateHeld, agentapi.StateFailed, agentapi.StateDisconnected, agentapi.StateHung, agentapi.StateCloning}
	phases := []string{mysqlapi.PhaseEmpty, mysqlapi.PhaseDown, mysqlapi.PhaseDetached, mysqlapi.PhaseStarting, mysqlapi.PhaseInGroup, ""}
	views := []string{mysqlapi.StateOnline, mysqlapi.StateRecovering, mysqlapi.StateUnreachable, "ERROR"}
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := settled(t, 3).deletes()
		w.addFormerVolume(3, v1alpha1.DeletionDelete)
		w.declareReplicas([]int32{1, 3, 5}[r.IntN(3)])
		if r.IntN(3) == 0 {
			w.c.Annotations = map[string]string{v1alpha1.AnnotationSwitchover: "1", v1alpha1.AnnotationRecoverQuorum: "2"}
		}
		for n := range 3 {
			m := w.status(n)
			m.State, m.Serving = states[r.IntN(len(states))], r.IntN(2) == 0
			if r.IntN(4) == 0 {
				m.Engine = nil
				continue
			}
			part := *w.part(n)
			part.Phase = phases[r.IntN(len(phases))]
			part.View = nil
			for k := range 3 {
				part.View = append(part.View, mysqlapi.ViewMember{ServerUUID: serverUUID(k), State: views[r.IntN(len(views))], Primary: r.IntN(2) == 0})
			}
			m.Engine = mysqlapi.GroupStatus{GroupReplication: &part}
		}
		for range 3 {
			p := w.plan()
			w.c.Status.Requests = p.Report.Requests
			g := readGroup(membersOf(w.c), w.o)
			if p.Step != nil && p.Step.Type == memberset.StepDeleteVolume && (!g.takesWrites() || len(g.online) < memberset.CountMajority(g.voters)) {
				t.Fatalf("seed %d: %s with the group %+v", seed, p.Step, g)
			}
			if p.Report.Primary != "" && !g.takesWrites() {
				t.Fatalf("seed %d: primary %s", seed, p.Report.Primary)
			}
		}
	}
}
