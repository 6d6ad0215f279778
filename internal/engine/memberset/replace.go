package memberset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// ReplaceStep replaces one outdated pod: first those that are stuck, then one that
// serves and does not count yet, such as for a quorum, then the others from the
// highest ordinal down, the leader of the members last; never while another member
// is away. While no member is known to lead, only one that is
// stuck is replaced: any other may be the leader.
func (view *View) ReplaceStep(leader int) *engine.Step { //nolint:gocyclo // an ordered switch: first match wins
	away, syncs := false, false
	var next *corev1.Pod
	why := ""
	for n := range view.Desired.Count {
		pod, m := view.Observed.Pods[n], view.Observed.Member(n)
		reason := view.FindOutdated(n)
		switch {
		case view.Observed.isVolumeDeleted(n):
			// Its data goes with its pod: no pod is replaced before a person
			// has decided.
			return nil
		case pod == nil || pod.DeletionTimestamp != nil:
			away = true
		case reason != "" && view.replacePause(n) > 0:
			away = true
		case reason != "" && view.isStuck(n):
			return replaceStep(pod, reason)
		case m == nil || !m.Serving || reason == "" && !view.Standings[n].IsDone() && !waitsForPrimary(m):
			away = true
		case reason != "" && (next == nil || n != leader && !syncs):
			next, why = pod, reason
			syncs = n != leader && view.Standings[n].Reason == v1alpha1.ReasonSyncing
		}
	}
	if next == nil || away || leader == NoLeader {
		return nil
	}
	return replaceStep(next, why)
}

// ReplaceStuckStep replaces one outdated pod that will not serve by waiting, and
// no other: whatever else is under way may wait for it.
func (view *View) ReplaceStuckStep() *engine.Step {
	for n := range view.Desired.Count {
		pod := view.Observed.Pods[n]
		if pod == nil || pod.DeletionTimestamp != nil || view.Observed.isVolumeDeleted(n) {
			continue
		}
		if why := view.FindOutdated(n); why != "" && view.replacePause(n) == 0 && view.isStuck(n) {
			return replaceStep(pod, why)
		}
	}
	return nil
}

// isVolumeDeleted says that a member's volume is being deleted, which is held up only
// by its pod.
func (o Observation) isVolumeDeleted(ordinal int) bool {
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

// isStuck says whether a pod will not serve by waiting, so that replacing it
// interrupts nothing. Recovery and copying are work, however long they take; a
// container that has just ended is started again by its kubelet, which says so
// when it is in no hurry.
func (view *View) isStuck(ordinal int) bool {
	pod, m := view.Observed.Pods[ordinal], view.Observed.Member(ordinal)
	if view.isAgentUnfit(ordinal) {
		return true
	}
	if m == nil {
		return waitingReason(pod) != "" || !hasStarted(view.Set, pod) && !hasRunBefore(view.Set, pod)
	}
	switch m.State {
	case agentapi.StateHeld:
		return true
	case agentapi.StateFailed:
		return m.DownSince.IsZero() || m.Failures >= failuresLimit
	case agentapi.StateWaiting:
		return view.stuckIn(ordinal) <= 0
	default:
		return false
	}
}

// stuckIn is when a member that waits is stuck, if it still waits then. An agent
// of an earlier version does not say since when it does.
func (view *View) stuckIn(ordinal int) time.Duration {
	down, known := view.FindDownTime(ordinal)
	if !known {
		return 0
	}
	return waitingLimit - down
}

// FindDownTime is how long a member has not served; not known of one that serves, that does
// not answer, or whose agent does not report it.
func (view *View) FindDownTime(ordinal int) (down time.Duration, known bool) {
	m := view.Observed.Member(ordinal)
	if m == nil || m.DownSince.IsZero() {
		return 0, false
	}
	// The member's clock to its answer, and ours since.
	return m.Time.Sub(m.DownSince) + max(0, view.Now.Sub(view.Observed.Members[view.PodName(ordinal)].At)), true
}

// hasRunBefore says that the database's container has run in this pod, and ended.
func hasRunBefore(s objects.Set, pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == s.Container {
			return status.State.Terminated != nil || status.LastTerminationState.Terminated != nil
		}
	}
	return false
}

// replacementIn is when the first outdated pod is stuck that waits; 0 for none.
func (view *View) replacementIn() time.Duration {
	var first time.Duration
	for n := range view.Desired.Count {
		m := view.Observed.Member(n)
		if m == nil || m.State != agentapi.StateWaiting || view.FindOutdated(n) == "" {
			continue
		}
		if due := view.stuckIn(n); due > 0 && (first == 0 || due < first) {
			first = due
		}
	}
	return first
}

func replaceStep(pod *corev1.Pod, why string) *engine.Step {
	return &engine.Step{Type: StepReplaceMember, Target: pod.Name, UID: pod.UID, Message: why}
}

// podAge is how a pod stands to what is desired.
type podAge struct {
	// current says that it was made of the very template that is declared: a new
	// one would be as it is, whatever it differs in.
	current bool
	// older says that it was made of what the spec declared before.
	older bool
	// stray says which other image it runs that a new pod would not; empty for
	// none.
	stray string
	// agent says that a request replaces the pod for its agent; empty for none.
	agent string
	// outdated says why it must be replaced; empty when it need not be.
	outdated string
}

// comparePods says of each pod how it stands to what is desired, by ordinal.
func comparePods(view *View) map[int]podAge {
	ages := make(map[int]podAge, len(view.Observed.Pods))
	rollout := view.RolloutHash(view.Desired.Asked)
	declared := isTemplateDeclared(view.Observed.StatefulSet, rollout)
	for n, pod := range view.Observed.Pods {
		age := podAge{current: isCurrent(view.Observed.StatefulSet, rollout, pod)}
		age.older = !age.current && pod.Annotations[v1alpha1.AnnotationRollout] != rollout
		age.agent = view.explainAgentUpdate(pod, age.current)
		age.stray = findStrayImage(view, pod, view.Versions.Members[n], age.current)
		if pod.DeletionTimestamp == nil {
			age.outdated = explainOutdated(view, n, age, declared)
		}
		ages[n] = age
	}
	return ages
}

// explainOutdated says why a pod must be replaced; empty when it need not be.
func explainOutdated(view *View, ordinal int, age podAge, declared bool) string {
	pod, m := view.Observed.Pods[ordinal], view.Observed.Member(ordinal)
	switch {
	case age.older && !declared:
		return "" // a new pod would be made of the same template
	case age.older:
		return "the pod is older than what the spec declares for it"
	case age.stray != "":
		return age.stray
	case explainWaiting(pod, view.listAgentContainers(pod)) != "" && view.wouldUpdateAgent(pod, age.current):
		return "the pod does not start, and its agent is older than the operator"
	case view.Observed.isAgentTooOld(pod, m) && view.wouldUpdateAgent(pod, age.current):
		return "its agent is older than what spec.tls asks for"
	case view.isAgentUnfit(ordinal) && view.wouldUpdateAgent(pod, age.current):
		return view.UnfitAgents[ordinal]
	case view.restartNeeded(m):
		return "a restart is needed for " + strings.Join(m.PendingRestart, ", ")
	}
	return age.agent
}

// restartNeeded says whether a member needs a new pod for settings that it has taken up.
func (view *View) restartNeeded(m *agentapi.Status) bool {
	return m != nil && len(m.PendingRestart) > 0 && m.ConfigError == "" && m.ConfigHash == agentapi.HashConfig(view.Desired.Config)
}

// isCurrent says whether a pod was made of the very template that is declared;
// rollout is the hash of what the spec declares for pods.
func isCurrent(set *appsv1.StatefulSet, rollout string, pod *corev1.Pod) bool {
	return set != nil && set.Status.ObservedGeneration == set.Generation && set.Status.UpdateRevision != "" &&
		pod.Labels[appsv1.ControllerRevisionHashLabelKey] == set.Status.UpdateRevision &&
		set.Spec.Template.Annotations[v1alpha1.AnnotationRollout] == rollout
}

// isTemplateDeclared says whether the StatefulSet has what the spec declares for pods. It
// has not while it is still to be applied, or while something changes it back.
func isTemplateDeclared(set *appsv1.StatefulSet, rollout string) bool {
	if set == nil {
		return true
	}
	hash := set.Spec.Template.Annotations[v1alpha1.AnnotationRollout]
	return hash == "" || hash == rollout
}

// findStrayImage says whether the pod runs another image than the cluster's that a new
// pod would not: one that a client set on the pod, or another build of the same
// tag. What admission makes of the image stays: it would make it again.
func findStrayImage(view *View, pod *corev1.Pod, runs MemberVersion, current bool) string {
	d := view.Desired
	if runs.Image == "" || runs.Image == d.Image {
		return ""
	}
	if runs.Asked == d.Asked && digestOf(d.Image) != "" && runs.Digest == digestOf(d.Image) {
		return "" // that very build, by whatever tag
	}
	manager, admitted := imageChanged(view.Set, view.Observed, pod)
	if manager != "" {
		return "the pod's image was changed to " + runs.Image + " by " + manager
	}
	if admitted {
		return ""
	}
	if runs.Asked == "" || current {
		return "" // an older operator's: an upgrade of the operator restarts nothing
	}
	if repositoryOf(runs.Image) != repositoryOf(d.Image) {
		return ""
	}
	want, digest := digestOf(d.Image), cmp.Or(digestOf(runs.Image), runs.Digest)
	if want != "" && digest != "" && digest != want {
		return "the pod runs another build of " + d.Asked + " than the cluster: " + digest
	}
	return ""
}

// imageChanged says which client changed the image of a pod's database since the
// pod was made, or that admission changed it then.
func imageChanged(s objects.Set, o Observation, pod *corev1.Pod) (manager string, admitted bool) {
	altered := o.Altered[pod.Name]
	for _, difference := range altered.Differences {
		if difference.Path == imagePath(s.Container) {
			return difference.Manager, difference.Manager == "" && altered.Made
		}
	}
	return "", false
}

// imagePath is where a pod names the image of a container.
func imagePath(container string) string {
	return fmt.Sprintf(".spec.containers[name=%q].image", container)
}

// replacePause is how long a pod is still to stay that would be replaced again
// for the reason that its predecessor was. What was replaced before the operator
// started is not known: a pod whose image was set stays for the first pause.
func (view *View) replacePause(ordinal int) time.Duration {
	pod, why := view.Observed.Pods[ordinal], view.FindOutdated(ordinal)
	last, found := view.Observed.Replaced[pod.Name]
	if found && last.Why == why && last.Generation == view.Cluster.GetGeneration() {
		return max(0, last.At.Add(last.nextPause()).Sub(view.Now))
	}
	if !found && why == view.ages[ordinal].stray {
		return max(0, pod.CreationTimestamp.Add(firstReplacePause).Sub(view.Now))
	}
	return 0
}

// nextReplacement is when the first pause ends; 0 for none.
func (view *View) nextReplacement() time.Duration {
	var first time.Duration
	for n := range view.Observed.Pods {
		if view.FindOutdated(n) == "" {
			continue
		}
		if pause := view.replacePause(n); pause > 0 && (first == 0 || pause < first) {
			first = pause
		}
	}
	return first
}

// judgePause reports a pod that would be replaced for the same reason again.
func (j *Judgement) judgePause(ordinal int) {
	pod, why := j.Observed.Pods[ordinal], j.FindOutdated(ordinal)
	if why == "" || j.replacePause(ordinal) == 0 {
		return
	}
	j.AddMemberFact(ordinal, v1alpha1.ConditionDegraded, v1alpha1.ReasonMemberDown,
		"pod %s was made anew and is to be replaced again: %s; it is tried at growing intervals: find the client that changes pods of this namespace", pod.Name, why)
}

// ListTolerated is what pods have otherwise than their template, once for all that
// differ in the same. What is put back by replacing the pod is not among it.
func (view *View) ListTolerated() []condition.Tolerated {
	same := map[string]condition.Tolerated{}
	for n := range view.Desired.Count {
		pod := view.Observed.Pods[n]
		if pod == nil || pod.DeletionTimestamp != nil {
			continue
		}
		if differences := view.listDifferences(n, pod); len(differences) > 0 {
			key := strings.Join(differences, "\n")
			same[key] = condition.Tolerated{Objects: append(same[key].Objects, "Pod/"+pod.Name), Differences: differences}
		}
	}
	var out []condition.Tolerated
	for _, key := range slices.Sorted(maps.Keys(same)) {
		out = append(out, same[key])
	}
	return out
}

// part of an object that a path is in: .metadata or .spec.
func part(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "."), ".")
	return name
}

// listDifferences of a pod in words. Where only the image can be compared, since the
// template that the pod was made of is not known, it is the image alone. What the
// pod runs comes before its labels and annotations.
func (view *View) listDifferences(ordinal int, pod *corev1.Pod) []string {
	var out []string
	altered := view.Observed.Altered[pod.Name]
	comparable := altered.Made || view.ages[ordinal].current
	outdated := view.FindOutdated(ordinal) != ""
	for _, d := range altered.Differences {
		image := d.Path == imagePath(view.Container)
		if outdated || !comparable && !image {
			continue
		}
		text := d.Path + " (" + d.Change
		if runs := view.Versions.Members[ordinal].Image; image && runs != "" {
			if !comparable && (runs == view.Desired.Asked || runs == view.Desired.Pull) {
				continue // the tag, before it was resolved
			}
			text += " to " + runs
		}
		if d.Manager != "" {
			text += " by " + d.Manager
		}
		out = append(out, text+")")
	}
	slices.SortStableFunc(out, func(a, b string) int { return strings.Compare(part(b), part(a)) })
	return out
}
