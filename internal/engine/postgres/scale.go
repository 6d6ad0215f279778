package postgres

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// scaleWait is why no member is scaled away now, although there are more than the
// spec asks for.
type scaleWait int

const (
	// waitNone: one is scaled away, or there is none to be.
	waitNone scaleWait = iota
	// waitPodEnds: the pod of the one before has not ended.
	waitPodEnds
	// waitPrimary: without a primary that serves, the others may be the last copies.
	waitPrimary
	// waitSwitchover: the next one leads. Its pod and its data stay until another
	// member does, which is asked to take over.
	waitSwitchover
	// waitDiverged: the volume of the next one would be deleted, with what the
	// primary lacks.
	waitDiverged
	// waitUnconfirmed: the volume of the next one would be deleted, and it may have the
	// only copy of some WAL.
	waitUnconfirmed
	// waitQuorum: too few members of the synchronous quorum would be left.
	waitQuorum
)

// scalePlan is how many members there are to be now.
type scalePlan struct {
	count int
	waits scaleWait
}

// planScale plans the number of members: what volumes exist as ours is the
// membership. It grows to what is declared at once. It shrinks one by one from the
// highest ordinal, since a StatefulSet knows no other way, and each time only if that
// very member may go.
func planScale(c *v1alpha1.PostgresCluster, view *memberset.View, lead leadership) scalePlan {
	want, have := view.Membership.Declared, max(view.Membership.Count, findKept(view, lead)+1)
	last := have - 1
	applied := countApplied(view)
	switch {
	case !lead.isLed() && applied > max(want, have) && view.Membership.HasPodFrom(max(want, have)):
		// One of those pods may lead, whatever a client wrote on its volume.
		return scalePlan{applied, waitPrimary}
	case have <= want:
		return scalePlan{want, waitNone}
	case lead.leader == last:
		return scalePlan{have, waitSwitchover}
	case view.Membership.HasPodFrom(have):
		return scalePlan{have, waitPodEnds}
	case !lead.isServing():
		return scalePlan{have, waitPrimary}
	case view.Observed.DataDiverged(last) && c.Spec.DeletionPolicy == v1alpha1.DeletionDelete:
		return scalePlan{have, waitDiverged}
	case c.Spec.DeletionPolicy == v1alpha1.DeletionDelete && isUnconfirmed(view.Set, planElection(view.Set, view.Observed, lead, countDeclared(c)), last):
		return scalePlan{have, waitUnconfirmed}
	case isQuorumBrokenWithout(view.Observed, lead, last):
		return scalePlan{have, waitQuorum}
	}
	return scalePlan{last, waitNone}
}

// countApplied is how many pods the StatefulSet makes now.
func countApplied(view *memberset.View) int {
	set := view.Observed.StatefulSet
	if set == nil {
		return 0
	}
	return int(ptr.Deref(set.Spec.Replicas, 0))
}

// findKept is the member that always stays, whatever its volume says of it: the one
// that leads. While none leads, it is the last holder of the Lease, if its volume is
// there: it has the newest data that is known of. A Lease may outlive its cluster, so
// the volume has to be this cluster's. It is memberset.NoLeader for none.
func findKept(view *memberset.View, lead leadership) int {
	if lead.isLed() {
		return lead.leader
	}
	v := view.Observed.Volumes[lead.holder]
	if v == nil || v.DeletionTimestamp != nil || v.Annotations[v1alpha1.AnnotationCluster] != string(view.Cluster.GetUID()) {
		return memberset.NoLeader
	}
	return lead.holder
}

// keepUnconfirmed keeps the volumes of former members of which it is not known that the
// leader has all of their WAL.
func keepUnconfirmed(view *memberset.View, e *v1alpha1.ElectionStatus) {
	view.Membership.Surplus = slices.DeleteFunc(view.Membership.Surplus, func(n int) bool { return isUnconfirmed(view.Set, e, n) })
}

// judgeUnconfirmed says that a member is kept beyond what the spec asks for, since its
// volume may have the only copy of some WAL.
func (j *judgement) judgeUnconfirmed() {
	if j.scale.waits != waitUnconfirmed {
		return
	}
	n := j.Desired.Count - 1
	j.AddMemberFact(n, v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown,
		"member %s has not followed %s since term %d began: it is kept, as volume %s may have the only copy of some WAL; bring the member back, or set spec.deletionPolicy to Retain to remove it and keep its volume",
		j.PodName(n), j.PodName(j.lead.leader), j.lead.term, j.VolumeName(n))
}

// judgeKeptQuorum says that a member is kept beyond what the spec asks for, since the
// synchronous quorum needs it.
func (j *judgement) judgeKeptQuorum() {
	if j.scale.waits != waitQuorum {
		return
	}
	n := j.Desired.Count - 1
	left, need := countQuorumWithout(j.Observed, j.lead, n)
	j.AddMemberFact(n, v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown,
		"member %s is kept beyond spec.replicas %d: without it %d of the %d members of the synchronous quorum are left, and %d are needed; bring %s back, or set spec.replicas to %d",
		j.PodName(n), j.Membership.Declared, left, len(j.lead.readElection().Quorum), need, j.listNotFollowing(n), n+1)
}

// listNotFollowing names the members that do not stream from the leader, without one.
func (j *judgement) listNotFollowing(except int) string {
	var names []string
	for n := range j.Desired.Count {
		if n != except && n != j.lead.leader && !isHealthyStandby(j.Observed.Member(n), j.lead.term) {
			names = append(names, j.PodName(n))
		}
	}
	if len(names) == 0 {
		return "a member of status.election.synchronous"
	}
	return strings.Join(names, ", ")
}

// judgeKeptLeader says that a member is kept beyond what the spec asks for, since it
// leads, and who is asked to take over.
func (j *judgement) judgeKeptLeader() {
	if j.scale.waits != waitSwitchover {
		return
	}
	n, want, progress := j.lead.leader, j.Membership.Declared, ""
	switch r := j.requests.scaling.status; {
	case r != nil && !isRunning(r) && endedElsewhere(r):
		progress = "; " + r.Target + " did not take over: see what its pod logs; to try again, request a switchover with the annotation " + v1alpha1.AnnotationSwitchover
	case isRunning(r) && r.Term == j.lead.term:
		progress = "; " + r.Target + " is asked to take over"
		if j.lead.refuses(r) {
			progress += ", again and again: " + cmp.Or(j.lead.readElection().RefusedReason, "the primary gave no reason")
		}
	}
	j.AddMemberFact(n, v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown,
		"member %s leads and is beyond spec.replicas %d: it is kept, with its data, until another member leads; to keep it for good, set spec.replicas to %d%s", j.PodName(n), want, n+1, progress)
}
