package etcd

import (
	"fmt"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// Types of the steps that are done through etcd itself. Their subject is the
// member's ID; that of AddLearner its peer URL.
const (
	stepAddLearner    = "AddLearner"
	stepPromoteMember = "PromoteMember"
	stepRemoveMember  = "RemoveMember"
	stepMoveLeader    = "MoveLeader"
	stepCompact       = "Compact"
	stepDefragment    = "Defragment"
	stepDisarm        = "DisarmAlarm"
)

// pauses between attempts at a step whose effect shows late, or that may be in
// vain.
var pauses = map[string]time.Duration{
	stepAddLearner:    2 * time.Second,
	stepPromoteMember: 2 * time.Second,
	stepRemoveMember:  2 * time.Second,
	stepMoveLeader:    2 * time.Second,
	stepDisarm:        5 * time.Second,
	// Members observe the size of their data once a minute.
	stepDefragment: 90 * time.Second,
	stepCompact:    5 * time.Minute,
}

// firstCompact is where it is remembered when history was dropped first since
// there was space for writes.
const firstCompact = "First" + stepCompact

// attemptKey names a step where it is remembered when it was tried. A compaction is
// done to the group, whichever member leads it.
func attemptKey(s engine.Step) string {
	if s.Type == stepCompact {
		return s.Type
	}
	return s.Type + " " + s.Target
}

// paceStep is a step, unless it was tried a moment ago.
func (j *judgement) paceStep(s *engine.Step) *engine.Step {
	at, tried := j.o.Tried[attemptKey(*s)]
	if wait := at.Add(pauses[s.Type]).Sub(j.now); tried && wait > 0 {
		j.recheckIn(wait)
		return nil
	}
	return s
}

// recheckIn looks again after a while, if nothing else comes first.
func (j *judgement) recheckIn(wait time.Duration) {
	if j.recheck == 0 || wait < j.recheck {
		j.recheck = wait
	}
}

// isolateStep is a paced step that nothing else is done beside: what is observed may be
// from before it.
func (j *judgement) isolateStep(s *engine.Step) *engine.Step {
	next := j.paceStep(s)
	j.waits = next == nil
	return next
}

// stepOn makes a step for a member's pod.
func (j *judgement) stepOn(ordinal int, kind, subject, format string, args ...any) *engine.Step {
	s := &engine.Step{Type: kind, Target: j.PodName(ordinal), Subject: subject, Message: fmt.Sprintf(format, args...)}
	if pod := j.Observed.Pods[ordinal]; pod != nil {
		s.UID = pod.UID
	}
	return s
}

// chooseHeir is the member to lead next: healthy, to stay, and up to date where there
// is a choice; -1 for none.
func (j *judgement) chooseHeir() int {
	best := -1
	for n := range min(j.Desired.Count, j.c.Spec.DesiredReplicas()) {
		if n == j.g.leader || !j.g.healthy[n] {
			continue
		}
		if best < 0 || j.FindOutdated(best) != "" && j.FindOutdated(n) == "" {
			best = n
		}
	}
	return best
}

func (j *judgement) moveLeader(heir int, why string) *engine.Step {
	return j.isolateStep(j.stepOn(heir, stepMoveLeader, j.g.members[heir].ID, "%s leads no longer: %s", j.PodName(j.g.leader), why))
}

// removeLostStep removes a member that can never come back as itself, because
// its volume is another one. Its own agent says so: that a member does not answer
// is no reason.
func (j *judgement) removeLostStep() *engine.Step {
	for n := range objects.MostMembers {
		m, member := j.o.Member(n), j.g.members[n]
		if m == nil || !j.g.led {
			continue
		}
		if readGroup(m).LostMember == "" || readGroup(m).LostMember != member.ID {
			j.judgeEmpty(n, m, member)
			continue
		}
		what := removeLost
		if member.Learner || member.Name == "" {
			what = removeLearner
		}
		if why := describeRisk(what, j.g.voters, len(j.g.healthy)); why != "" {
			j.AddMemberFact(n, v1alpha1.ConditionDegraded, v1alpha1.ReasonQuorumAtRisk, "member %s is not removed: %s", j.PodName(n), why)
			continue
		}
		return j.isolateStep(j.stepOn(n, stepRemoveMember, member.ID, "its volume is empty: it can only come back as a new member"))
	}
	return nil
}

// judgeEmpty says that a member's volume is empty although the group has counted
// it, while no record says why.
func (j *judgement) judgeEmpty(n int, m *agentapi.Status, member etcdapi.GroupMember) {
	leader := j.o.Members[j.PodName(j.g.leader)]
	if member.Name != "" && waitsEmpty(m) && j.o.Members[j.PodName(n)].At.After(leader.At) {
		j.AddMemberFact(n, v1alpha1.ConditionDegraded, v1alpha1.ReasonDataMissing,
			"member %s has an empty volume, and no record says that it ran on another one, while the group counts it as %s: bring the volume back, or, when it is gone for good, remove the member with etcdctl member remove %s, and it joins anew",
			j.PodName(n), member.ID, member.ID)
	}
}

// promoteStep gives the joining member its vote. etcd itself refuses that until it
// has caught up.
func (j *judgement) promoteStep() *engine.Step {
	n := j.g.joining
	if n < 0 || !j.g.led || n >= j.c.Spec.DesiredReplicas() {
		return nil
	}
	m, member := j.o.Member(n), j.g.members[n]
	if m == nil || !member.Learner || member.Name == "" || readGroup(m).Group == nil || readGroup(m).Group.Self != member.ID {
		return nil
	}
	return j.paceStep(j.stepOn(n, stepPromoteMember, member.ID, "it has started, and is to vote"))
}

// addStep admits the next member: one at a time, and none while that could cost
// the quorum.
func (j *judgement) addStep() *engine.Step {
	if !j.g.led || j.g.joining >= 0 {
		return nil
	}
	for n := range j.c.Spec.DesiredReplicas() {
		if _, found := j.g.members[n]; found {
			continue
		}
		if why := describeRisk(addMember, j.g.voters, len(j.g.healthy)); why != "" {
			j.AddMemberFact(n, v1alpha1.ConditionDegraded, v1alpha1.ReasonQuorumAtRisk, "member %s is not admitted yet: %s", j.PodName(n), why)
			return nil
		}
		return j.isolateStep(j.stepOn(n, stepAddLearner, peerURL(j.Set, n), "the group has %d members, and %d are declared", len(j.g.members), j.c.Spec.DesiredReplicas()))
	}
	return nil
}

// removeStep removes the member with the highest ordinal that is not declared
// any more, once the pod of the one before it is gone. Leadership is
// transferred first.
func (j *judgement) removeStep() *engine.Step {
	n := j.g.ordinals - 1
	if !j.g.led || n < j.c.Spec.DesiredReplicas() {
		return nil
	}
	if j.Membership.HasPodFrom(n + 1) {
		return nil
	}
	member, what := j.g.members[n], removeLost
	switch {
	case member.Learner || member.Name == "":
		what = removeLearner
	case j.g.healthy[n]:
		what = removeHealthy
	}
	if why := describeRisk(what, j.g.voters, len(j.g.healthy)); why != "" {
		j.AddMemberFact(n, v1alpha1.ConditionDegraded, v1alpha1.ReasonQuorumAtRisk, "member %s is not removed yet: %s", j.PodName(n), why)
		return nil
	}
	if n == j.g.leader {
		heir := j.chooseHeir()
		if heir < 0 {
			j.AddMemberFact(n, v1alpha1.ConditionDegraded, v1alpha1.ReasonQuorumAtRisk, "member %s is not removed yet: it leads, and no member that stays is healthy enough to lead next", j.PodName(n))
			return nil
		}
		return j.moveLeader(heir, "it is scaled away")
	}
	return j.isolateStep(j.stepOn(n, stepRemoveMember, member.ID, "spec.replicas is %d", j.c.Spec.DesiredReplicas()))
}

// judgeGroup says what of the membership is not as declared.
func (j *judgement) judgeGroup() {
	for _, m := range j.g.strangers {
		j.AddFact(v1alpha1.ConditionDegraded, v1alpha1.ReasonUnknownMember,
			"the group counts member %s at %s, which is no pod of the cluster: remove it with etcdctl member remove %s", m.ID, m.PeerURL, m.ID)
	}
	for n := range j.Desired.Count {
		if m := j.o.Member(n); m != nil && j.Repairing[n] {
			j.AddMemberFact(n, v1alpha1.ConditionDegraded, v1alpha1.ReasonDataMissing, "member %s is replaced by a new one: %s", j.PodName(n), m.Message)
		}
	}
	if !j.g.led {
		return
	}
	reason := v1alpha1.ReasonScalingUp
	if !j.IsBootstrapped() {
		reason = v1alpha1.ReasonCreating
	}
	want := j.c.Spec.DesiredReplicas()
	if have := len(j.g.members); have < want {
		j.AddFact(v1alpha1.ConditionReconciling, reason, "from %d members to %d", have, want)
	}
	if n := j.g.joining; n >= 0 && n < want {
		j.AddMemberFact(n, v1alpha1.ConditionReconciling, reason, "member %s has no vote yet", j.PodName(n))
	}
	if j.g.ordinals > want && j.Membership.Count <= want {
		j.AddFact(v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown, "from %d members to %d", len(j.g.members), want)
	}
}
