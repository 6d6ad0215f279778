package memberset

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// ReplaceStep replaces one outdated pod: first those that are stuck, then the
// others from the highest ordinal down, the leader of the members last; never
// while another member is away.
func (j *Judgement) ReplaceStep(leader int) *engine.Step { //nolint:gocyclo // an ordered switch: first match wins
	away := false
	var next *corev1.Pod
	why := ""
	for n := range j.Desired.Count {
		pod, m := j.Seen.Pods[n], j.Seen.Member(n)
		reason := j.Outdated(n)
		switch {
		case j.Seen.leaving(n):
			// Its data goes with its pod: nobody is replaced before a person
			// has decided.
			return nil
		case pod == nil || pod.DeletionTimestamp != nil:
			away = true
		case reason != "" && j.replacePause(pod, reason) > 0:
			away = true
		case reason != "" && j.stuck(n):
			return replace(pod, reason)
		case m == nil || !m.Serving || reason == "" && !j.Standings[n].Done() && !waitsForPrimary(m):
			away = true
		case reason != "" && (next == nil || n != leader):
			next, why = pod, reason
		}
	}
	if next == nil || away {
		return nil
	}
	return replace(next, why)
}

// ReplaceStuckStep replaces one outdated pod that will not serve by waiting, and
// no other: whatever else is under way may wait for it.
func (j *Judgement) ReplaceStuckStep() *engine.Step {
	for n := range j.Desired.Count {
		pod := j.Seen.Pods[n]
		if pod == nil || pod.DeletionTimestamp != nil || j.Seen.leaving(n) {
			continue
		}
		if why := j.Outdated(n); why != "" && j.replacePause(pod, why) == 0 && j.stuck(n) {
			return replace(pod, why)
		}
	}
	return nil
}

// leaving says that a member's volume is being deleted, which is held up only
// by its pod.
func (o Observation) leaving(ordinal int) bool {
	v := o.Volumes[ordinal]
	return v != nil && v.DeletionTimestamp != nil
}

// Claims are the volumes, by whose state it is said how they should be.
func (o Observation) Claims() map[string]types.UID {
	claims := map[string]types.UID{}
	for _, v := range o.Volumes {
		claims[v.Name] = v.UID
	}
	return claims
}

// Limits of what an outdated pod's own agent may do to serve again before the pod
// is replaced: to restart a database takes seconds, a new pod many more.
const (
	// failuresLimit is how many failures in a row there must be: the first is the
	// crash, the second a start that came to nothing.
	failuresLimit = 2
	// waitingLimit is how long the member may wait: a Lease expires, and a primary
	// comes back, before that.
	waitingLimit = 30 * time.Second
)

// stuck says whether a pod will not serve by waiting, so that replacing it
// interrupts nothing. Recovery and copying are work, however long they take; a
// container that has just ended is started again by its kubelet, which says so
// when it is in no hurry.
func (j *Judgement) stuck(ordinal int) bool {
	pod, m := j.Seen.Pods[ordinal], j.Seen.Member(ordinal)
	if m == nil {
		return waitingReason(pod) != "" || !j.started(pod) && !j.ranBefore(pod)
	}
	switch m.State {
	case memberapi.StateHeld:
		return true
	case memberapi.StateFailed:
		return m.DownSince.IsZero() || m.Failures >= failuresLimit
	case memberapi.StateWaiting:
		return j.stuckIn(ordinal) <= 0
	default:
		return false
	}
}

// stuckIn is when a member that waits is stuck, if it still waits then. An agent
// of an earlier version does not say since when it does.
func (j *Judgement) stuckIn(ordinal int) time.Duration {
	m := j.Seen.Member(ordinal)
	if m == nil || m.DownSince.IsZero() {
		return 0
	}
	// The member's clock to its answer, and ours since.
	down := m.Time.Sub(m.DownSince) + max(0, j.Now.Sub(j.Seen.Members[j.PodName(ordinal)].At))
	return waitingLimit - down
}

// ranBefore says that the database's container has run in this pod, and ended.
func (s Set) ranBefore(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == s.Container {
			return status.State.Terminated != nil || status.LastTerminationState.Terminated != nil
		}
	}
	return false
}

// replacementIn is when the first outdated pod is stuck that waits; 0 for none.
func (j *Judgement) replacementIn() time.Duration {
	var first time.Duration
	for n := range j.Desired.Count {
		m := j.Seen.Member(n)
		if m == nil || m.State != memberapi.StateWaiting || j.Outdated(n) == "" {
			continue
		}
		if due := j.stuckIn(n); due > 0 && (first == 0 || due < first) {
			first = due
		}
	}
	return first
}

func replace(pod *corev1.Pod, why string) *engine.Step {
	return &engine.Step{Type: StepReplaceMember, Target: pod.Name, UID: pod.UID, Message: why}
}

// Outdated says why a pod must be replaced; empty when it need not be.
func (j *Judgement) Outdated(ordinal int) string {
	pod := j.Seen.Pods[ordinal]
	if pod == nil || pod.DeletionTimestamp != nil {
		return ""
	}
	if j.older(j.Seen, j.Desired, pod) {
		if !j.declared() {
			return "" // a new pod would be made of the same template
		}
		return "the pod is older than what the spec declares for it"
	}
	if why := j.strays(pod); why != "" {
		return why
	}
	if !j.current(j.Seen, j.Desired, pod) {
		if waitingReason(pod) != "" && installerImage(pod) != j.Seen.Settings.AgentImage {
			return "the pod does not start, and its agent is older than the operator"
		}
		if j.tooOld(pod, j.Seen.Member(ordinal)) {
			return "its agent is older than what spec.tls asks for"
		}
	}
	if m := j.Seen.Member(ordinal); m != nil && len(m.PendingRestart) > 0 && m.ConfigError == "" &&
		m.ConfigHash == memberapi.HashConfig(j.Desired.Config) {
		return "a restart is needed for " + strings.Join(m.PendingRestart, ", ")
	}
	return ""
}
