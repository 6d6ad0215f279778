package postgres

import (
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
func requestType(annotation string) string {
	return strings.TrimPrefix(annotation, v1alpha1.GroupVersion.Group+"/")
}

// findRequest is a copy of what status records of the last request of a type; nil for
// none.
func findRequest(c *v1alpha1.PostgresCluster, kind string) *v1alpha1.RequestStatus {
	for i := range c.Status.Requests {
		if c.Status.Requests[i].Type == kind {
			return c.Status.Requests[i].DeepCopy()
		}
	}
	return nil
}

// isRunning says whether a request was taken up and has no result yet.
func isRunning(r *v1alpha1.RequestStatus) bool { return r != nil && r.Result == "" }

// isWaiting says whether the annotation of a type requests what was not taken up yet.
func isWaiting(c *v1alpha1.PostgresCluster, kind string) bool {
	id, _ := splitRequest(c.Annotations[v1alpha1.GroupVersion.Group+"/"+kind])
	last := findRequest(c, kind)
	return id != "" && (last == nil || last.ID != id)
}

// splitRequest is the ID and the pod of a request that is written as <ID>@<pod>. The
// pod may be missing. A value without an ID is an ID as a whole.
func splitRequest(value string) (id, pod string) {
	at := strings.LastIndex(value, "@")
	if at <= 0 {
		return value, ""
	}
	return value[:at], value[at+1:]
}

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
