package mysql

import (
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
	// waitPrimary: without a primary, the others may hold the latest writes.
	waitPrimary
	// waitSwitchover: the next one leads, and another member is asked to take over.
	waitSwitchover
	// waitQuorum: too few of the members that would be left are online.
	waitQuorum
	// waitUnknown: the volume of the next one would be deleted, and the member is not
	// online in the group: it may have the only copy of some writes.
	waitUnknown
)

// scalePlan is how many members there are to be now.
type scalePlan struct {
	count int
	waits scaleWait
	// risk says why of waitQuorum.
	risk string
}

// planScale plans the number of members: what volumes exist as ours is the membership.
// It grows to what is declared at once. It shrinks one by one from the highest ordinal,
// since a StatefulSet knows no other way, and each time only if that very member may go.
func planScale(c *v1alpha1.MySQLCluster, view *memberset.View, g group) scalePlan {
	want, have := view.Membership.Declared, max(view.Membership.Count, g.leader+1)
	last := have - 1
	applied := countApplied(view)
	switch {
	case !g.isLed() && applied > max(want, have) && view.Membership.HasPodFrom(max(want, have)):
		// One of those pods may lead, whatever a client wrote on its volume.
		return scalePlan{count: applied, waits: waitPrimary}
	case have <= want:
		return scalePlan{count: want, waits: waitNone}
	case g.leader == last:
		return scalePlan{count: have, waits: waitSwitchover}
	case view.Membership.HasPodFrom(have):
		return scalePlan{count: have, waits: waitPodEnds}
	case !g.isServing():
		return scalePlan{count: have, waits: waitPrimary}
	case c.Spec.DeletionPolicy == v1alpha1.DeletionDelete && !isExpendable(view.Observed, g, last):
		return scalePlan{count: have, waits: waitUnknown}
	}
	if risk := g.describeRiskWithout(last); risk != "" {
		return scalePlan{count: have, waits: waitQuorum, risk: risk}
	}
	return scalePlan{count: last, waits: waitNone}
}

// isExpendable says whether a member is known to hold no writes that the others lack: it
// is online in the group, or its volume is empty.
func isExpendable(o memberset.Observation, g group, ordinal int) bool {
	return !o.DataDiverged(ordinal) && (g.online[ordinal] || isEmptyMember(o, ordinal))
}

// countApplied is how many pods the StatefulSet makes now.
func countApplied(view *memberset.View) int {
	set := view.Observed.StatefulSet
	if set == nil {
		return 0
	}
	return int(ptr.Deref(set.Spec.Replicas, 0))
}

// judgeKept says that a member is kept beyond what the spec asks for, and why.
func (j *judgement) judgeKept() {
	n, want := j.Desired.Count-1, j.Membership.Declared
	switch j.scale.waits {
	case waitSwitchover:
		j.AddMemberFact(n, v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown,
			"member %s leads and is beyond spec.replicas %d: it is kept until another member leads%s", j.PodName(n), want, j.describeScalingSwitchover())
	case waitQuorum:
		j.AddMemberFact(n, v1alpha1.ConditionDegraded, v1alpha1.ReasonQuorumAtRisk, "member %s is not removed yet: %s", j.PodName(n), j.scale.risk)
	case waitUnknown:
		j.AddMemberFact(n, v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown,
			"member %s is not online in the group: it is kept, as volume %s may have the only copy of some writes; bring the member back, or set spec.deletionPolicy to Retain to remove it and keep its volume",
			j.PodName(n), j.VolumeName(n))
	}
}

// describeScalingSwitchover says who is asked to take over from a member that is scaled
// away.
func (j *judgement) describeScalingSwitchover() string {
	r := j.requests.scaling.status
	if !memberset.IsRunning(r) || r.MemberID != j.g.primary {
		return ""
	}
	progress := "; " + r.Target + " is asked to take over"
	if report := readReport(j.g.status); report.Refused == r.ID && report.RefusedReason != "" {
		progress += ", and cannot yet: " + report.RefusedReason
	}
	return progress
}
