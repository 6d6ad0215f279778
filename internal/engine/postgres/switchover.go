package postgres

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// requestSwitchover is the type of the request for another primary, as status has it.
var requestSwitchover = requestType(v1alpha1.AnnotationSwitchover)

// notAtCreation is the result of a request that a cluster was created with.
const notAtCreation = memberset.NotAtCreation

// askAgain ends the reason for which a request is refused.
const askAgain = "then request it with another ID"

// switchover is how far a request for another primary has come.
type switchover struct {
	// status is what is recorded of the last request; nil for none.
	status *v1alpha1.RequestStatus
	// request for the members; nil while there is none to carry out.
	request *postgresapi.SwitchoverRequest
	// standing is set for a request that the spec makes: it is tried until it is done.
	standing bool
}

// planSwitchover takes up a request by annotation once, while a member leads. It is for
// the leader of that term: what a failover made obsolete changes no primary again.
func planSwitchover(c *v1alpha1.PostgresCluster, o memberset.Observation, lead leadership) switchover {
	r := switchover{status: findRequest(c, requestSwitchover)}
	s := membersOf(c)
	id, target := splitRequest(c.Annotations[v1alpha1.AnnotationSwitchover])
	switch {
	case isRunning(r.status):
		r.carryOut(s, lead)
	case id == "" || r.status != nil && r.status.ID == id:
		// nothing is requested
	case c.Status.SystemIdentifier == "":
		r.status = &v1alpha1.RequestStatus{Type: requestSwitchover, ID: id, Target: target, Result: notAtCreation}
	case c.Spec.Suspend || o.AwaitsFirstAnswer() || !lead.isServing():
		// it waits for a primary that can be asked
	default:
		r.status = &v1alpha1.RequestStatus{Type: requestSwitchover, ID: id, Target: target, Term: lead.term, Result: refuseSwitchover(c, o, lead, id, target)}
	}
	return r
}

// planScalingSwitchover requests another primary while the one that leads is beyond
// spec.replicas. What the spec asks for stands until it is done: the leader tries again,
// and another member is named if the first one cannot take over any more.
func planScalingSwitchover(c *v1alpha1.PostgresCluster, o memberset.Observation, lead leadership, scale scalePlan, requested bool) switchover {
	r := switchover{status: findRequest(c, v1alpha1.RequestScaleDown), standing: true}
	if isRunning(r.status) {
		if lead.isServing() && lead.term == r.status.Term && scale.waits != waitSwitchover {
			r.status.Result = "not needed: " + membersOf(c).PodName(lead.leader) + " is a member by spec.replicas"
			return r
		}
		if r.carryOut(membersOf(c), lead); r.request == nil || lead.term != r.status.Term {
			return r
		}
	}
	mayBegin := !requested && !c.Spec.Suspend && !o.AwaitsFirstAnswer() && lead.isServing() && lead.canSwitchOver()
	if scale.waits != waitSwitchover || !mayBegin || isRunning(r.status) && canTakeOver(c, o, lead, r.status.Target) {
		return r // it is not needed, cannot be carried out, or is
	}
	r.beginScaling(c, findSuccessor(c, o, lead), lead.term)
	return r
}

// beginScaling records a request for a target. One that did not take over is not asked
// again for the same generation: each attempt stops writes.
func (r *switchover) beginScaling(c *v1alpha1.PostgresCluster, target int, term int64) {
	if target == memberset.NoLeader {
		return
	}
	pod, generation := membersOf(c).PodName(target), fmt.Sprintf("generation-%d-", c.Generation)
	id := fmt.Sprintf("%sterm-%d-%s", generation, term, pod)
	if last := r.status; last != nil {
		failed := last.Target == pod && strings.HasPrefix(last.ID, generation) && endedElsewhere(last)
		if failed || last.ID == id {
			return
		}
	}
	r.status, r.request = &v1alpha1.RequestStatus{Type: v1alpha1.RequestScaleDown, ID: id, Target: pod, Term: term}, nil
}

// insteadOf is in the result of a switchover after which another member leads than its
// target.
const insteadOf = ", instead of "

func endedElsewhere(r *v1alpha1.RequestStatus) bool {
	return strings.HasSuffix(r.Result, insteadOf+r.Target)
}

// canTakeOver says whether the member of a pod stays by spec.replicas and can take over
// from the leader.
func canTakeOver(c *v1alpha1.PostgresCluster, o memberset.Observation, lead leadership, pod string) bool {
	for n := range c.Spec.DesiredReplicas() {
		if membersOf(c).PodName(n) == pod {
			return explainUnfit(c, o, lead, n) == ""
		}
	}
	return false
}

// carryOut passes the request on until another term's leader serves. The leader of its
// term may refuse it, unless it stands.
func (r *switchover) carryOut(s objects.Set, lead leadership) {
	switch {
	case lead.isServing() && lead.term != r.status.Term:
		leader := s.PodName(lead.leader)
		r.status.Result = fmt.Sprintf("%s leads since term %d", leader, lead.term)
		if r.status.Target != "" && r.status.Target != leader {
			r.status.Result += insteadOf + r.status.Target
		}
	case !r.standing && lead.refuses(r.status):
		r.status.Result = "refused: " + cmp.Or(lead.readElection().RefusedReason, "the primary gave no reason")
	default:
		r.request = &postgresapi.SwitchoverRequest{ID: r.status.ID, Term: r.status.Term, Target: r.status.Target, Standing: r.standing}
	}
}

// refuses says whether the leader refused a request for its term.
func (l leadership) refuses(r *v1alpha1.RequestStatus) bool {
	return l.isLed() && l.term == r.Term && l.readElection().Refused == r.ID
}

// canSwitchOver says whether the agent of the member that leads takes part in an
// election: agents of earlier versions do not.
func (l leadership) canSwitchOver() bool {
	return l.status != nil && readReplication(l.status).Election != nil
}

// readElection is the leader's part in the election; the zero value without one.
func (l leadership) readElection() (e postgresapi.ElectionState) {
	if l.canSwitchOver() {
		e = *readReplication(l.status).Election
	}
	return e
}

// refuseSwitchover says why a request cannot be carried out, and what to do; empty
// where it can.
func refuseSwitchover(c *v1alpha1.PostgresCluster, o memberset.Observation, lead leadership, id, target string) string {
	s := membersOf(c)
	leader := s.PodName(lead.leader)
	switch {
	case strings.HasPrefix(id, "@"):
		return fmt.Sprintf("refused: %q has no ID: write <ID>@<pod>, with an ID that was not used before", id)
	case !lead.canSwitchOver():
		return "refused: the agent of " + leader + " is of a version without switchover: replace its pod, " + askAgain
	case target == leader:
		return "refused: " + target + " leads already: name another member, with another ID"
	case target == "" && findSuccessor(c, o, lead) == memberset.NoLeader:
		return "refused: no other member streams from " + leader + " and may lead: repair or add one, " + askAgain
	case target == "":
		return ""
	}
	for n := range c.Spec.DesiredReplicas() {
		if s.PodName(n) == target {
			return explainUnfit(c, o, lead, n)
		}
	}
	return fmt.Sprintf("refused: %s is no member by spec.replicas: name one of %s to %s, with another ID", target, s.PodName(0), s.PodName(c.Spec.DesiredReplicas()-1))
}

// explainUnfit says why a member cannot take over from the leader, and what to do;
// empty where it can.
func explainUnfit(c *v1alpha1.PostgresCluster, o memberset.Observation, lead leadership, ordinal int) string {
	name, pod, m := membersOf(c).PodName(ordinal), o.Pods[ordinal], o.Member(ordinal)
	switch {
	case mustNotLead(c, ordinal):
		return "refused: " + name + " is in spec.failover.noFailover: name another member, or remove it there, " + askAgain
	case pod == nil:
		return "refused: " + name + " has no pod: wait until it streams, " + askAgain
	case pod.DeletionTimestamp != nil:
		return "refused: the pod of " + name + " is being deleted: wait until its next pod streams, " + askAgain
	case m == nil || !m.Serving || m.State != agentapi.StateStreaming || lead.doubts[ordinal] != "":
		return "refused: " + name + " does not stream from the primary: wait until it does, " + askAgain
	}
	return ""
}

// findSuccessor is the member that can take over from the leader, stays by
// spec.replicas, and has received the most; memberset.NoLeader for none.
func findSuccessor(c *v1alpha1.PostgresCluster, o memberset.Observation, lead leadership) int {
	found, most := memberset.NoLeader, postgresapi.WALPoint{}
	for n := range c.Spec.DesiredReplicas() {
		if n == lead.leader || explainUnfit(c, o, lead, n) != "" {
			continue
		}
		if end := readWALEnd(o.Member(n)); found == memberset.NoLeader || compareWAL(end, most) > 0 {
			found, most = n, end
		}
	}
	return found
}

// readWALEnd is how far the WAL on a member's volume goes; zero while it is not known.
func readWALEnd(m *agentapi.Status) (end postgresapi.WALPoint) {
	if m == nil {
		return end
	}
	if known := readReplication(m).WALEnd; known != nil {
		end = *known
	}
	return end
}

// compareWAL orders ends of WAL: by timeline, and within one by position.
func compareWAL(a, b postgresapi.WALPoint) int {
	return cmp.Or(cmp.Compare(a.Timeline, b.Timeline), cmp.Compare(a.Position, b.Position))
}

// mustNotLead says whether spec.failover excludes a member from leading.
func mustNotLead(c *v1alpha1.PostgresCluster, ordinal int) bool {
	return c.Spec.Failover != nil && slices.Contains(c.Spec.Failover.NoFailover, int32(ordinal))
}
