package mysql

import (
	"cmp"
	"fmt"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// requestSwitchover is the type of the request for another primary, as status has it.
var requestSwitchover = memberset.RequestType(v1alpha1.AnnotationSwitchover)

// askAgain ends the reason for which a request is refused.
const askAgain = "then request it with another ID"

// requests are the one-shot requests of a cluster. Each is recorded in status before a
// member hears of it.
type requests struct {
	switchover switchover
	// scaling is the switchover that the operator itself requests, since the member
	// that leads is beyond spec.replicas.
	scaling  switchover
	recovery recovery
}

// switchover is how far a request for another primary has come.
type switchover struct {
	// status is what is recorded of the last request; nil for none.
	status *v1alpha1.RequestStatus
	// request for the members; nil while there is none to carry out.
	request *mysqlapi.SwitchoverRequest
	// standing is set for a request that the spec makes: it is tried until it is done.
	standing bool
}

// planRequests takes up what is requested, and follows what was.
func planRequests(c *v1alpha1.MySQLCluster, view *memberset.View, g group, scale scalePlan) requests {
	r := requests{switchover: planSwitchover(c, view.Observed, g)}
	r.scaling = planScalingSwitchover(c, view.Observed, g, scale, memberset.IsRunning(r.switchover.status))
	r.recovery = planRecovery(c, view, g)
	return r
}

// forMembers are the requests that the members are to carry out; nil for none.
func (r requests) forMembers() *mysqlapi.GroupRequests {
	all := mysqlapi.GroupRequests{Switchover: cmp.Or(r.switchover.request, r.scaling.request), Recovery: r.recovery.request}
	if all == (mysqlapi.GroupRequests{}) {
		return nil
	}
	return &all
}

// listRequests are the one-shot requests that status records.
func (r requests) listRequests() (recorded []v1alpha1.RequestStatus) {
	for _, status := range []*v1alpha1.RequestStatus{r.recovery.status, r.scaling.status, r.switchover.status} {
		if status != nil {
			recorded = append(recorded, *status)
		}
	}
	return recorded
}

// planSwitchover takes up a request by annotation once, while a member leads. It is for
// that leader: what a failover made obsolete changes no primary again.
func planSwitchover(c *v1alpha1.MySQLCluster, o memberset.Observation, g group) switchover {
	r := switchover{status: memberset.FindRequest(c, requestSwitchover)}
	id, target := memberset.SplitRequest(c.Annotations[v1alpha1.AnnotationSwitchover])
	switch {
	case memberset.IsRunning(r.status):
		r.carryOut(c, g)
	case id == "" || r.status != nil && r.status.ID == id:
		// nothing is requested
	case c.Status.SystemIdentifier == "":
		r.status = &v1alpha1.RequestStatus{Type: requestSwitchover, ID: id, Target: target, Result: memberset.NotAtCreation}
	case c.Spec.Suspend || o.AwaitsFirstAnswer() || !g.isServing():
		// it waits for a primary that can be asked
	default:
		r.status = &v1alpha1.RequestStatus{Type: requestSwitchover, ID: id, Target: target, MemberID: g.primary, Result: refuseSwitchover(c, o, g, id, target)}
	}
	return r
}

// planScalingSwitchover requests another primary while the one that leads is beyond
// spec.replicas. What the spec asks for stands until it is done: the leader tries again,
// and another member is named if the first one cannot take over any more.
func planScalingSwitchover(c *v1alpha1.MySQLCluster, o memberset.Observation, g group, scale scalePlan, requested bool) switchover {
	r := switchover{status: memberset.FindRequest(c, v1alpha1.RequestScaleDown), standing: true}
	if memberset.IsRunning(r.status) {
		if g.isServing() && g.primary == r.status.MemberID && scale.waits != waitSwitchover {
			r.status.Result = "not needed: " + membersOf(c).PodName(g.leader) + " is a member by spec.replicas"
			return r
		}
		if r.carryOut(c, g); r.request == nil {
			return r
		}
	}
	mayBegin := !requested && !c.Spec.Suspend && !o.AwaitsFirstAnswer() && g.isServing()
	if scale.waits != waitSwitchover || !mayBegin || memberset.IsRunning(r.status) && canTakeOver(c, o, g, r.status.Target) {
		return r // it is not needed, cannot be carried out, or is
	}
	if target := findSuccessor(c, o, g); target != memberset.NoLeader {
		pod := membersOf(c).PodName(target)
		id := fmt.Sprintf("generation-%d-%s-%s", c.Generation, g.primary, pod)
		r.status, r.request = &v1alpha1.RequestStatus{Type: v1alpha1.RequestScaleDown, ID: id, Target: pod, MemberID: g.primary}, nil
	}
	return r
}

// carryOut passes the request on until another server leads. The one that is asked may
// refuse it, unless it stands.
func (r *switchover) carryOut(c *v1alpha1.MySQLCluster, g group) {
	s := membersOf(c)
	switch {
	case g.isServing() && g.primary != r.status.MemberID:
		leader := s.PodName(g.leader)
		r.status.Result = leader + " leads"
		if r.status.Target != "" && r.status.Target != leader {
			r.status.Result += ", instead of " + r.status.Target
		}
	case !r.standing && g.isServing() && readReport(g.status).Refused == r.status.ID:
		r.status.Result = "refused: " + cmp.Or(readReport(g.status).RefusedReason, "the primary gave no reason")
	default:
		r.request = &mysqlapi.SwitchoverRequest{ID: r.status.ID, From: r.status.MemberID, Target: r.status.Target}
	}
}

// refuseSwitchover says why a request cannot be carried out, and what to do; empty
// where it can.
func refuseSwitchover(c *v1alpha1.MySQLCluster, o memberset.Observation, g group, id, target string) string {
	s := membersOf(c)
	leader := s.PodName(g.leader)
	switch {
	case id[0] == '@':
		return fmt.Sprintf("refused: %q has no ID: write <ID>@<pod>, with an ID that was not used before", id)
	case target == leader:
		return "refused: " + target + " leads already: name another member, with another ID"
	case target == "" && findSuccessor(c, o, g) == memberset.NoLeader:
		return "refused: no other member is online and can take over: repair or add one, " + askAgain
	case target == "":
		return ""
	}
	for n := range c.Spec.DesiredReplicas() {
		if s.PodName(n) == target {
			return explainUnfit(c, o, g, n)
		}
	}
	return fmt.Sprintf("refused: %s is no member by spec.replicas: name one of %s to %s, with another ID", target, s.PodName(0), s.PodName(c.Spec.DesiredReplicas()-1))
}

// explainUnfit says why a member cannot take over from the leader, and what to do;
// empty where it can.
func explainUnfit(c *v1alpha1.MySQLCluster, o memberset.Observation, g group, ordinal int) string {
	name, pod, m := membersOf(c).PodName(ordinal), o.Pods[ordinal], o.Member(ordinal)
	switch {
	case pod == nil:
		return "refused: " + name + " has no pod: wait until it is online, " + askAgain
	case pod.DeletionTimestamp != nil:
		return "refused: the pod of " + name + " is being deleted: wait until its next pod is online, " + askAgain
	case m == nil || m.State != agentapi.StateStreaming || !g.online[ordinal]:
		return "refused: " + name + " does not follow the primary closely: wait until it does, " + askAgain
	}
	return ""
}

// canTakeOver says whether the member of a pod stays by spec.replicas and can take over
// from the leader.
func canTakeOver(c *v1alpha1.MySQLCluster, o memberset.Observation, g group, pod string) bool {
	for n := range c.Spec.DesiredReplicas() {
		if membersOf(c).PodName(n) == pod {
			return explainUnfit(c, o, g, n) == ""
		}
	}
	return false
}

// findSuccessor is the first member that can take over from the leader and stays by
// spec.replicas; memberset.NoLeader for none.
func findSuccessor(c *v1alpha1.MySQLCluster, o memberset.Observation, g group) int {
	for n := range c.Spec.DesiredReplicas() {
		if n != g.leader && explainUnfit(c, o, g, n) == "" {
			return n
		}
	}
	return memberset.NoLeader
}
