package postgres

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// requests are the one-shot requests of a cluster. Each is recorded in status before a
// member hears of it.
type requests struct {
	older      olderData
	promotion  promotion
	switchover switchover
	// scaling is the switchover that the operator itself requests, since the member
	// that leads is beyond spec.replicas.
	scaling switchover
	discard discard
	// wait is how long members are still given to answer before a request is decided;
	// 0 for not at all.
	wait time.Duration
}

// planRequests takes up what is requested, and follows what was. Of two ways to go on
// with less data, one is carried out at a time.
func planRequests(c *v1alpha1.PostgresCluster, view *memberset.View, lead leadership, scale scalePlan) requests {
	silence := measureSilence(view.Observed, view.Now)
	promotes := isRunning(findRequest(c, requestPromote))
	r := requests{older: planOlderData(c, view.Observed, lead, promotes || silence > 0)}
	r.promotion = planPromotion(c, view.Observed, lead, scale.count, isRunning(r.older.status) || silence > 0)
	r.switchover = planSwitchover(c, view.Observed, lead)
	r.discard = planDiscard(c, view.Observed, lead, scale.count)
	r.scaling = planScalingSwitchover(c, view.Observed, lead, scale, isRunning(r.switchover.status))
	if isWaiting(c, requestOlderData) || isWaiting(c, requestPromote) {
		r.wait = silence
	}
	return r
}

// listRequests are the one-shot requests that status records.
func (r requests) listRequests() (recorded []v1alpha1.RequestStatus) {
	for _, status := range []*v1alpha1.RequestStatus{r.discard.status, r.older.status, r.promotion.status, r.scaling.status, r.switchover.status} {
		if status != nil {
			recorded = append(recorded, *status)
		}
	}
	return recorded
}

// requestType is the type of a request by its annotation, as status has it.
func requestType(annotation string) string { return memberset.RequestType(annotation) }

// findRequest is a copy of what status records of the last request of a type; nil for
// none.
func findRequest(c *v1alpha1.PostgresCluster, kind string) *v1alpha1.RequestStatus {
	return memberset.FindRequest(c, kind)
}

// isRunning says whether a request was taken up and has no result yet.
func isRunning(r *v1alpha1.RequestStatus) bool { return memberset.IsRunning(r) }

// isWaiting says whether the annotation of a type requests what was not taken up yet.
func isWaiting(c *v1alpha1.PostgresCluster, kind string) bool {
	id, _ := splitRequest(c.Annotations[v1alpha1.GroupVersion.Group+"/"+kind])
	last := findRequest(c, kind)
	return id != "" && (last == nil || last.ID != id)
}

// splitRequest is the ID and the pod of a request that is written as <ID>@<pod>. The
// pod may be missing. A value without an ID is an ID as a whole.
func splitRequest(value string) (id, pod string) { return memberset.SplitRequest(value) }

// silenceLimit is how long a member may be silent before it is decided without it which
// data the cluster goes on with.
const silenceLimit = 30 * time.Second

// measureSilence is how long the members that have pods and do not answer are still
// waited for; 0 where each of them has answered, or was silent for long.
func measureSilence(o memberset.Observation, now time.Time) time.Duration {
	var wait time.Duration
	for n, pod := range o.Pods {
		if o.Member(n) == nil {
			wait = max(wait, silenceLimit-now.Sub(silentSince(o, pod, now)))
		}
	}
	return wait
}

// silentSince is since when a pod that does not answer is known not to. An operator
// that has just started knows that of no pod that it can ask.
func silentSince(o memberset.Observation, pod *corev1.Pod, now time.Time) time.Time {
	m := o.Members[pod.Name]
	switch {
	case m.Err == "" && (pod.Status.PodIP != "" || !o.Asking):
		return now
	case m.Since.After(pod.CreationTimestamp.Time):
		return m.Since
	}
	return pod.CreationTimestamp.Time
}

// discard is how far the request that a volume is discarded has come.
type discard struct {
	// status is what is recorded of the last request; nil for none.
	status *v1alpha1.RequestStatus
	// ordinal of the volume to discard now; memberset.NoLeader for none.
	ordinal int
}

// planDiscard takes up a request once, while a member leads. It names the claim by its
// UID, so that one which stays in Git never discards the next volume.
func planDiscard(c *v1alpha1.PostgresCluster, o memberset.Observation, lead leadership, members int) discard {
	r := discard{status: findRequest(c, memberset.RequestDiscardVolume), ordinal: memberset.NoLeader}
	id, uid := splitRequest(c.Annotations[v1alpha1.AnnotationDiscardVolume])
	switch {
	case isRunning(r.status):
		r.carryOut(c, o, lead, members)
	case id == "" || r.status != nil && r.status.ID == id:
		// nothing is requested
	case c.Status.SystemIdentifier == "":
		r.status = &v1alpha1.RequestStatus{Type: memberset.RequestDiscardVolume, ID: id, VolumeUID: uid, Result: notAtCreation}
	case c.Spec.Suspend || o.AwaitsFirstAnswer() || !lead.isServing():
		// it waits for a primary that can be asked
	default:
		result := refuseDiscard(c, o, lead, members, uid)
		if result == "" && !isRepeated(r.status, uid, lead.term) {
			result = refuseUnconfirmed(c, o, lead, uid)
		}
		r.status = &v1alpha1.RequestStatus{Type: memberset.RequestDiscardVolume, ID: id, VolumeUID: uid, Term: lead.term, Result: result}
		if n, found := o.FindVolumeByUID(uid); found {
			r.status.Target = membersOf(c).PodName(n)
		}
	}
	return r
}

// carryOut discards the volume until it is gone. What made the request safe is judged
// anew until its claim is deleted, which nothing takes back.
func (r *discard) carryOut(c *v1alpha1.PostgresCluster, o memberset.Observation, lead leadership, members int) {
	n, found := o.FindVolumeByUID(r.status.VolumeUID)
	switch {
	case !found:
		r.status.Result = fmt.Sprintf("the volume of %s is gone: the member is copied again on a new one", r.status.Target)
	case c.Spec.Suspend || !lead.isServing():
		// it waits for a primary that can be asked
	case n == lead.leader:
		r.status.Result = refuseDiscard(c, o, lead, members, r.status.VolumeUID)
	case o.Volumes[n].DeletionTimestamp != nil:
		r.ordinal = n
	default:
		r.status.Result = refuseDiscard(c, o, lead, members, r.status.VolumeUID)
		if r.status.Result == "" && r.status.Term != lead.term {
			r.status.Result, r.status.Term = refuseUnconfirmed(c, o, lead, r.status.VolumeUID), lead.term
		}
		if r.status.Result == "" {
			r.ordinal = n
		}
	}
}

// nextDiscard is when to look again at the volume that is discarded; 0 for none.
func (j *judgement) nextDiscard(now time.Time) time.Duration {
	if n := j.requests.discard.ordinal; n != memberset.NoLeader {
		return j.NextDiscard(n, now)
	}
	return 0
}

// refuseDiscard says why a volume is not discarded, and what to do; empty where it is.
func refuseDiscard(c *v1alpha1.PostgresCluster, o memberset.Observation, lead leadership, members int, uid string) string {
	s := membersOf(c)
	n, found := o.FindVolumeByUID(uid)
	name, claim, leader := s.PodName(n), s.VolumeName(n), s.PodName(lead.leader)
	switch m := o.Member(n); {
	case !found:
		return fmt.Sprintf("refused: no member has a volume with the UID %q: write <ID>@<UID>, with volumeUID of the member in status.members and another ID", uid)
	case n >= members:
		return "refused: volume " + claim + " is that of no member: delete its claim, if you do not need it"
	case n == lead.leader || n == lead.holder:
		return "refused: " + name + " leads by the Lease: switch over first, " + askAgain
	case o.DataDiverged(n):
		return "refused: the data of " + name + " has diverged, and no other member has all of it: see the condition of the cluster; to discard it, delete claim " + claim
	case m != nil && m.Serving:
		return "refused: " + name + " serves: its volume is not lost"
	case !lead.takesWrites():
		return "refused: " + leader + " takes no writes: repair it, " + askAgain
	case !slices.Contains(lead.readElection().MayLead, lead.readElection().Volume):
		return "refused: the Lease does not list the volume of " + leader + " as one that may lead: wait until it does, " + askAgain
	}
	if left, need := countQuorumWithout(o, lead, n); left < need {
		return fmt.Sprintf("refused: without %s %d of the %d members of the synchronous quorum are left, and %d are needed: repair another one, %s", name, left, len(lead.readElection().Quorum), need, askAgain)
	}
	return ""
}

// askOnceMore ends the reason for which a request is refused once.
const askOnceMore = "if that WAL is lost or not needed, request it once more, with another ID"

// refuseUnconfirmed says why a volume is not discarded at the first request of a term: it
// may have the only copy of some WAL. It is empty where it has not.
func refuseUnconfirmed(c *v1alpha1.PostgresCluster, o memberset.Observation, lead leadership, uid string) string {
	s := membersOf(c)
	n, _ := o.FindVolumeByUID(uid)
	if !isUnconfirmed(s, planElection(s, o, lead, countDeclared(c)), n) {
		return ""
	}
	return fmt.Sprintf("refused: %s has not followed %s since term %d began, so volume %s may have the only copy of some WAL: bring the member back; or, %s",
		s.PodName(n), s.PodName(lead.leader), lead.term, s.VolumeName(n), askOnceMore)
}

// isRepeated says whether the last request for a volume was refused in the same term for
// what only the volume may have: the person who requests it again knows.
func isRepeated(last *v1alpha1.RequestStatus, uid string, term int64) bool {
	return last != nil && last.VolumeUID == uid && last.Term == term && strings.HasSuffix(last.Result, askOnceMore)
}
