package postgres

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// ledModel is a model in which another member leads now and then. Its leads is the
// member that led last: it has the newest data, whether the operator knows it or not.
type ledModel struct {
	*model
	// declared is how many pods the StatefulSet has by what was applied last.
	declared int
	seed     uint64
	// led are the terms in which a plan found members leading that have not followed
	// another leader since.
	led map[int]int64
	// switched counts the switchovers that were requested and carried out.
	switched int
}

func newLedModel(t *testing.T, seed uint64) *ledModel {
	m := &ledModel{model: newModel(newWorld(t, 3), rand.New(rand.NewPCG(seed, 11))), seed: seed, led: map[int]int64{}}
	m.lease = &postgresapi.LeaseState{}
	if seed%4 > 1 {
		m.election = &postgresapi.ElectionState{Phase: "Standby"}
	}
	if seed%2 == 0 {
		m.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	}
	return m
}

// refreshStatus has a member report what it is now.
func (m *ledModel) refreshStatus(ordinal int) {
	name := membersOf(m.c).PodName(ordinal)
	delete(m.o.ServicePods[suffixRW], name)
	delete(m.o.ServicePods[suffixRO], name)
	m.serveMember(ordinal)
}

// isLeading says whether the member that led last leads now.
func (m *ledModel) isLeading() bool {
	pod, status := m.o.Pods[m.leads], m.o.Member(m.leads)
	return pod != nil && status != nil && status.Role == v1alpha1.RolePrimary && m.lease.HolderUID == string(pod.UID)
}

// moveLeader has a replica that serves lead.
func (m *ledModel) moveLeader() {
	for _, n := range m.random.Perm(objects.MostMembers) {
		if m.canLead(n) {
			m.leadWith(n)
			return
		}
	}
}

// canLead says whether a member is a replica that serves.
func (m *ledModel) canLead(ordinal int) bool {
	s := m.o.Member(ordinal)
	return ordinal != m.leads && s != nil && s.State == agentapi.StateStreaming && m.o.Volumes[ordinal] != nil
}

// leadWith has a replica lead. The former leader may not report yet that it leads no
// longer.
func (m *ledModel) leadWith(ordinal int) {
	was := m.leads
	m.leads = ordinal
	m.claimLease(m.o.Pods[ordinal])
	m.refreshStatus(ordinal)
	if m.o.Member(was) != nil && m.random.IntN(3) > 0 {
		m.refreshStatus(was)
	}
}

// followRequest has the leader carry out a switchover, later or at once, or refuse it.
func (m *ledModel) followRequest() {
	r := m.config().Switchover
	if r == nil || r.Term != m.lease.Term || !m.isLeading() || !m.status(m.leads).Serving || m.random.IntN(3) > 0 {
		return
	}
	for n := range objects.MostMembers {
		if membersOf(m.c).PodName(n) != r.Target {
			continue
		}
		if m.canLead(n) && m.random.IntN(5) > 0 {
			m.switched++
			m.leadWith(n)
			return
		}
	}
	m.reportElection(m.leads, func(e *postgresapi.ElectionState) { e.Refused, e.RefusedReason = r.ID, "why" })
}

// releaseLease has the leader stop in order: for a while no member leads.
func (m *ledModel) releaseLease() {
	if !m.isLeading() {
		return
	}
	status := m.status(m.leads)
	status.Role, status.State, status.Serving = v1alpha1.RoleMember, agentapi.StateWaiting, false
	status.Time, status.DownSince = now, now
	m.lease = &postgresapi.LeaseState{HolderPod: m.lease.HolderPod, Term: m.lease.Term}
	m.reportLease(m.leads, m.lease)
}

// killPod ends a pod. If it was the leader's, no report of an earlier one is left.
func (m *ledModel) killPod(ordinal int) {
	m.removePod(ordinal)
	if ordinal != m.leads {
		return
	}
	for n := range m.o.Pods {
		if s := m.o.Member(n); s != nil && s.Role == v1alpha1.RolePrimary {
			m.refreshStatus(n)
		}
	}
}

// followLease has a leader whose database serves claim the Lease that its pod does not
// hold, and members read it, some of them later.
func (m *ledModel) followLease() {
	pod, status := m.o.Pods[m.leads], m.o.Member(m.leads)
	switch {
	case status == nil:
	case !status.Serving:
		status.Role = v1alpha1.RoleMember
	case m.lease.HolderUID != string(pod.UID):
		m.claimLease(pod)
		m.refreshStatus(m.leads)
	}
	for n := range m.o.Pods {
		if s := m.o.Member(n); s != nil && (n == m.leads || s.Role != v1alpha1.RolePrimary && m.random.IntN(4) > 0) {
			m.reportLease(n, m.lease)
		}
	}
}

// recordLeader notes which member a plan found leading.
func (m *ledModel) recordLeader(p engine.Plan) {
	for n := range objects.MostMembers {
		s := m.o.Member(n)
		switch e := p.Report.Election; {
		case e != nil && e.Leader == membersOf(m.c).PodName(n):
			m.led[n] = e.Term
		case m.o.Volumes[n] == nil, s != nil && s.State == agentapi.StateStreaming && readReplication(s).Lease.Term > m.led[n]:
			delete(m.led, n)
		}
	}
}

// disturbCluster lets something fail, and the leader change.
func (m *ledModel) disturbCluster() {
	if m.c.Status.SystemIdentifier == "" {
		return
	}
	if m.random.IntN(25) == 0 {
		m.editSpec()
	}
	if n := m.random.IntN(objects.MostMembers); m.random.IntN(20) == 0 && m.o.Pods[n] != nil {
		m.killPod(n)
	}
	if m.random.IntN(30) == 0 {
		m.releaseLease()
	}
	if m.random.IntN(15) == 0 {
		m.moveLeader()
	}
}

// applyPlan carries out one plan. The leader may change before the StatefulSet's
// controller acts on what was applied.
func (m *ledModel) applyPlan(p engine.Plan, disturbed bool) {
	m.carryOut(p)
	m.c.Status.Election, m.c.Status.Requests = p.Report.Election, p.Report.Requests
	if d, writable, _ := m.desired(); writable && d.Minted.Complete {
		m.declared = d.Count
		m.followRequest()
	}
	if disturbed && m.random.IntN(10) == 0 {
		m.moveLeader()
		for n := range m.o.Pods {
			if n >= m.declared && m.random.IntN(2) == 0 {
				m.killPod(n)
				break
			}
		}
	}
	m.advanceCluster()
	m.followLease()
	m.o.Ended = map[int]time.Time{}
	for _, n := range memberset.ReadMembership(membersOf(m.c), m.o).Surplus {
		m.o.Ended[n] = now.Add(-time.Minute)
	}
}

// checkPlan finds what a plan must never do.
func (m *ledModel) checkPlan(p engine.Plan) {
	m.t.Helper()
	lead := findLeader(membersOf(m.c), m.o)
	if lead.isLed() != m.isLeading() || lead.isLed() && lead.leader != m.leads {
		m.t.Fatalf("seed %d: member %d is taken for the leader, and %d leads: %v", m.seed, lead.leader, m.leads, m.isLeading())
	}
	d, _, _ := m.desired()
	if m.o.Volumes[m.leads] != nil && d.Count <= m.leads && m.c.Status.SystemIdentifier != "" {
		m.t.Fatalf("seed %d: %d members, and member %d led last", m.seed, d.Count, m.leads)
	}
	if d.Count < m.declared && !lead.isServing() {
		m.t.Fatalf("seed %d: from %d members to %d while none leads", m.seed, m.declared, d.Count)
	}
	m.recordLeader(p)
	if p.Step == nil {
		return
	}
	switch s := p.Step; s.Type {
	case memberset.StepDeleteVolume:
		for n := range m.led {
			if s.Target == membersOf(m.c).VolumeName(n) {
				m.t.Fatalf("seed %d: volume %s is deleted, and its member led and has not followed another one", m.seed, s.Target)
			}
		}
		if s.Target == membersOf(m.c).VolumeName(m.leads) || !m.isLeading() || m.c.Spec.DeletionPolicy != v1alpha1.DeletionDelete {
			m.t.Fatalf("seed %d: volume %s is deleted, and member %d led last", m.seed, s.Target, m.leads)
		}
		if podNamed(m.model, s.Subject) != nil {
			m.t.Fatalf("seed %d: volume %s is deleted, and its pod is there", m.seed, s.Target)
		}
	case memberset.StepReplaceMember:
		m.checkReplacement(s, d)
	}
}

// checkReplacement finds a leader that is replaced before its replicas are, and a pod
// that is replaced while another one is away, or while none leads.
func (m *ledModel) checkReplacement(s *engine.Step, d desired) {
	m.t.Helper()
	if !memberset.IsReady(podNamed(m.model, s.Target)) {
		return
	}
	if m.countAway() > 0 || !m.isLeading() {
		m.t.Fatalf("seed %d: %s is replaced, %d members are away, and %d leads: %v", m.seed, s.Target, m.countAway(), m.leads, m.isLeading())
	}
	if s.Target != membersOf(m.c).PodName(m.leads) {
		return
	}
	view := m.view()
	view.SetDesired(&d.Desired)
	for n := range d.Count {
		if n != m.leads && view.FindOutdated(n) != "" {
			m.t.Fatalf("seed %d: %s leads and is replaced before member %d", m.seed, s.Target, n)
		}
	}
}

// settle runs passes in which nothing fails any more.
func (m *ledModel) settle(passes int) engine.Plan {
	for range passes {
		p := m.plan()
		m.checkPlan(p)
		m.applyPlan(p, false)
	}
	return m.plan()
}

// checkSettled finds what a cluster that came to rest has left undone.
func (m *ledModel) checkSettled(p engine.Plan, want int) {
	m.t.Helper()
	if got := memberset.ReadMembership(membersOf(m.c), m.o).Count; got != want || len(m.o.Pods) != want {
		m.t.Fatalf("seed %d: %d members and %d pods, want %d: %+v", m.seed, got, len(m.o.Pods), want, p.Facts)
	}
	if !m.isLeading() || p.Report.Primary != membersOf(m.c).PodName(m.leads) {
		m.t.Fatalf("seed %d: status names the primary %q, and member %d leads", m.seed, p.Report.Primary, m.leads)
	}
	kept := 0
	for n := range m.o.Volumes {
		if n >= want && isUnconfirmed(membersOf(m.c), p.Report.Election, n) {
			kept++
		}
	}
	if m.c.Spec.DeletionPolicy == v1alpha1.DeletionDelete && len(m.o.Volumes)-kept != want {
		m.t.Fatalf("seed %d: %d volumes of %d members are left, and %d are kept", m.seed, len(m.o.Volumes), want, kept)
	}
}

func testConvergenceWhicheverMemberLeads(t *testing.T, seed uint64) (kept bool, switched int) {
	m := newLedModel(t, seed)
	for range 300 {
		p := m.plan()
		m.checkPlan(p)
		m.applyPlan(p, true)
		m.disturbCluster()
	}
	if seed%3 == 0 {
		m.declareReplicas(1) // whichever member leads
	}
	p := m.settle(200)
	want := m.c.Spec.DesiredReplicas()
	if m.leads >= want {
		kept = true
		// Refused, or another member took over: it is asked once for a generation.
		if r := findRequest(m.c, v1alpha1.RequestScaleDown); m.election != nil && (r == nil || !strings.HasPrefix(r.Result, "refused") && !endedElsewhere(r)) {
			t.Fatalf("seed %d: member %d leads beyond %d, and was not asked to switch over: %+v", seed, m.leads, want, r)
		}
		m.checkSettled(p, m.leads+1)
		waits := fmt.Sprintf("member %s leads and is beyond spec.replicas %d", membersOf(m.c).PodName(m.leads), want)
		if got := messageOf(p.Facts, v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown); !strings.Contains(got, waits) {
			t.Fatalf("seed %d: %q does not say %q", seed, got, waits)
		}
		for m.leads >= want {
			m.moveLeader()
		}
		p = m.settle(200)
	}
	m.checkSettled(p, want)
	for _, f := range p.Facts {
		if f.Type == v1alpha1.ConditionReconciling {
			t.Fatalf("seed %d: never settles: %s: %s", seed, f.Reason, f.Message)
		}
	}
	return kept, m.switched
}

// Whichever member leads, and whenever another one does: the plan takes no other one
// for the leader, scales no leader away and deletes no volume of the member that led
// last. It replaces the leader last, and comes to rest.
func TestPlanConvergesWhicheverMemberLeads(t *testing.T) {
	kept, switched := 0, 0
	for seed := range uint64(30) {
		k, n := testConvergenceWhicheverMemberLeads(t, seed)
		if switched += n; k {
			kept++
		}
	}
	if kept == 0 || switched == 0 {
		t.Errorf("%d leaders were beyond spec.replicas, and %d switchovers were requested", kept, switched)
	}
}

func FuzzPlanConvergesWhicheverMemberLeads(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { testConvergenceWhicheverMemberLeads(t, seed) })
}
