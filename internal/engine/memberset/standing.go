package memberset

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// Member is what the agent of a pod says; nil while it says nothing that is
// fresh and its own.
func (o Observation) Member(ordinal int) *agentapi.Status {
	pod := o.Pods[ordinal]
	if pod == nil {
		return nil
	}
	m := o.Members[pod.Name]
	if m.Status == nil || m.Err != "" || m.Status.PodUID != string(pod.UID) {
		return nil
	}
	return m.Status
}

// Standing is where a member is on its way to serving.
type Standing struct {
	// Reason of what is under way; empty when the member is done.
	Reason string
	// Message says what is waited for.
	Message string
	// Broken says that this is not part of a normal start.
	Broken bool
}

// IsDone says that the member serves as it should.
func (s Standing) IsDone() bool { return s.Reason == "" }

// JudgePresence judges what comes before the database answers; first match wins. A
// member that is done here says what it does, and is the engine's to judge.
func JudgePresence(view *View, ordinal int) Standing {
	s, o := view.Set, view.Observed
	pod, m := o.Pods[ordinal], o.Member(ordinal)
	name := s.PodName(ordinal)
	switch {
	case pod == nil && o.isVolumeDeleted(ordinal):
		return Standing{v1alpha1.ReasonScalingUp, "member " + name + " has no pod before volume " + s.VolumeName(ordinal) + ", which is being deleted, is gone", false}
	case pod == nil:
		return Standing{v1alpha1.ReasonScalingUp, "member " + name + " has no pod yet", o.Uncreated[ordinal] != ""}
	case pod.DeletionTimestamp != nil:
		return Standing{v1alpha1.ReasonRestarting, "member " + name + " is stopping", false}
	case waitingReason(pod) != "":
		return Standing{v1alpha1.ReasonScalingUp, "pod " + name + ": " + waitingReason(pod), true}
	case m == nil && isUnreachable(s, o, pod):
		return Standing{v1alpha1.ReasonMemberUnreachable, "the agent of member " + name + " does not answer: " + o.Members[pod.Name].Err, true}
	case m == nil:
		return Standing{v1alpha1.ReasonScalingUp, "member " + name + " is starting", false}
	case m.State == agentapi.StateHeld:
		message, _ := view.growth.describeHold(ordinal, m)
		return Standing{v1alpha1.ReasonMemberDown, "member " + name + ": " + message, true}
	case m.State == agentapi.StateFailed:
		return Standing{v1alpha1.ReasonMemberDown, "member " + name + ": " + m.Message, true}
	}
	return Standing{}
}

// JudgeSyncing is the standing of a member that is present and does not serve as it
// should yet.
func JudgeSyncing(view *View, ordinal int, broken bool) Standing {
	m := view.Observed.Member(ordinal)
	text := fmt.Sprintf("member %s is %s", view.PodName(ordinal), spellState(m.State))
	if m.Message != "" {
		text += ": " + m.Message
	}
	return Standing{v1alpha1.ReasonSyncing, text, broken}
}

// spellState is a state as a sentence has it: catching up.
func spellState(state agentapi.State) string {
	var words strings.Builder
	for n, letter := range string(state) {
		if unicode.IsUpper(letter) && n > 0 {
			words.WriteByte(' ')
		}
		words.WriteRune(unicode.ToLower(letter))
	}
	return words.String()
}

// JudgeRollout judges how far a member that serves has taken up what is declared,
// and whether it is behind the Service of a suffix; none where clients are kept out. First
// match wins.
func JudgeRollout(view *View, ordinal int, service string) Standing {
	pod, m := view.Observed.Pods[ordinal], view.Observed.Member(ordinal)
	name := view.PodName(ordinal)
	switch {
	case view.ages[ordinal].older:
		return Standing{v1alpha1.ReasonRestarting, "member " + name + " is to be replaced for what spec changed", false}
	case view.ages[ordinal].agent != "":
		return Standing{v1alpha1.ReasonRestarting, "member " + name + " is to be replaced: " + view.ages[ordinal].agent, false}
	case !IsReady(pod) || service != "" && !view.Observed.ServicePods[service][name]:
		return Standing{v1alpha1.ReasonUpdatingEndpoints, "member " + name + " is not behind its Service yet", false}
	case !view.hasConfig(m) && m.ConfigError == "":
		return Standing{v1alpha1.ReasonConfiguring, "member " + name + " has not taken up the settings yet", false}
	case waitsForPrimary(m):
		return Standing{v1alpha1.ReasonConfiguring, "member " + name + " follows once the primary runs with the declared " + strings.Join(m.WaitsForPrimary, ", "), false}
	case len(m.PendingRestart) > 0:
		return Standing{v1alpha1.ReasonRestarting, "member " + name + " needs a restart for " + strings.Join(m.PendingRestart, ", "), false}
	}
	return Standing{}
}

// waitsForPrimary says whether a replica is done but for what its primary has
// to do first.
func waitsForPrimary(m *agentapi.Status) bool { return len(m.WaitsForPrimary) > 0 }

// isUnreachable says whether the pod should answer: it runs, and it was tried.
func isUnreachable(s objects.Set, o Observation, pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && o.Members[pod.Name].Err != "" && hasStarted(s, pod)
}

// hasStarted says whether the database's container runs.
func hasStarted(s objects.Set, pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == s.Container {
			return status.State.Running != nil
		}
	}
	return false
}

// IsReady says whether Kubernetes counts a pod as ready.
func IsReady(pod *corev1.Pod) bool {
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodReady {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return false
}

// imageReasons are the kubelet's words for an image that cannot be had.
var imageReasons = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"}

// imageFault says which image of containers cannot be had, and why.
func imageFault(containers []corev1.ContainerStatus) string {
	for _, s := range containers {
		if w := s.State.Waiting; w != nil && slices.Contains(imageReasons, w.Reason) {
			return fmt.Sprintf("image %s: %s%s", s.Image, w.Reason, pullFault(w.Message))
		}
	}
	return ""
}

// pullNoise is what container runtimes write around why an image cannot be had.
var pullNoise = regexp.MustCompile(`^(?:.*ErrImagePull: )?(?:rpc error: code = \w+ desc = )?`)

// longestPullFault that is repeated, in bytes.
const longestPullFault = 300

// pullFault is the runtime's own reason for an image that cannot be had; empty
// where the kubelet only says that it waits.
func pullFault(message string) string {
	reason := strings.Join(strings.Fields(pullNoise.ReplaceAllString(message, "")), " ")
	if reason == "" || strings.HasPrefix(reason, "Back-off ") {
		return ""
	}
	if len(reason) > longestPullFault {
		reason = strings.ToValidUTF8(reason[:longestPullFault], "") + "…"
	}
	return ": " + reason
}

// InstallerImage is the image that a pod gets its agent from.
func InstallerImage(pod *corev1.Pod) string { return findInstaller(pod.Spec) }

// findAskedAgent is the image that the template of a pod declares for its agent, whatever
// admission made of it in the pod; the pod's own where the template is not known.
func (o Observation) findAskedAgent(pod *corev1.Pod) string {
	if altered := o.Altered[pod.Name]; altered.Made && altered.Agent != "" {
		return altered.Agent
	}
	return InstallerImage(pod)
}

// findInstaller is the image that pods of a spec get their agents from; empty for none.
func findInstaller(spec corev1.PodSpec) string {
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == objects.InstallerName {
			return spec.InitContainers[i].Image
		}
	}
	return ""
}

// reasonCrashLoop is the kubelet's word for a container that ends again and again.
const reasonCrashLoop = "CrashLoopBackOff"

// waitingReason says why a pod is not running its database; empty when it is,
// or is about to.
func waitingReason(pod *corev1.Pod) string {
	return explainWaiting(pod, slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses))
}

// explainWaiting is waitingReason by some of the pod's containers.
func explainWaiting(pod *corev1.Pod, containers []corev1.ContainerStatus) string {
	if fault := imageFault(containers); fault != "" {
		return fault
	}
	for _, s := range containers {
		if w := s.State.Waiting; w != nil && (w.Reason == reasonCrashLoop || strings.HasPrefix(w.Reason, "CreateContainer")) {
			return fmt.Sprintf("container %s: %s; see kubectl logs %s -c %s --previous", s.Name, w.Reason, pod.Name, s.Name)
		}
	}
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse && cond.Reason == corev1.PodReasonUnschedulable {
			return "cannot be scheduled: " + strings.TrimSuffix(cond.Message, ".") + schedulingFields(cond.Message)
		}
	}
	return ""
}

// schedulingReasons are the scheduler's words, and the fields of the spec that
// they come of.
var schedulingReasons = []struct{ words, fields string }{
	{"Insufficient ", "spec.resources"},
	{"node affinity/selector", "spec.nodeSelector and spec.affinity"},
	{"anti-affinity rules", "spec.affinity"},
	{"pod affinity rules", "spec.affinity"},
	{"untolerated taint", "spec.tolerations"},
	{"topology spread constraints", "spec.topologySpreadConstraints"},
	{"PersistentVolumeClaims", "spec.storage.storageClass"},
	{"available persistent volumes", "spec.storage.storageClass"},
}

// schedulingFields are the fields of the spec to look at where no node is found
// for a pod; empty where the scheduler gives no reason that is known.
func schedulingFields(message string) string {
	var fields []string
	for _, r := range schedulingReasons {
		if strings.Contains(message, r.words) && !slices.Contains(fields, r.fields) {
			fields = append(fields, r.fields)
		}
	}
	if len(fields) == 0 {
		return ""
	}
	return ": check " + strings.Join(fields, " and ") + ", or add nodes"
}

// reportMember is what status says of a member.
func reportMember(s objects.Set, o Observation, ordinal int, standing Standing) v1alpha1.MemberStatus {
	ms := v1alpha1.MemberStatus{Name: s.PodName(ordinal), Role: v1alpha1.RoleMember, State: "Pending", Message: standing.Message}
	pod, m := o.Pods[ordinal], o.Member(ordinal)
	if v := o.Volumes[ordinal]; v != nil {
		ms.VolumeUID = string(v.UID)
	}
	if pod != nil {
		ms.Node, ms.State = pod.Spec.NodeName, "Starting"
		if pod.DeletionTimestamp != nil {
			ms.State = "Stopping"
		}
	}
	if m != nil {
		ms.Role, ms.State, ms.Version, ms.AgentVersion = m.Role, string(m.State), m.Version, m.AgentVersion
		if ms.Message == "" {
			ms.Message = m.Message
		}
	} else if pod != nil && isUnreachable(s, o, pod) {
		ms.State = "Unreachable"
	}
	return ms
}
