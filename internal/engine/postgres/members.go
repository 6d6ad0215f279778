package postgres

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// member is what the agent of a pod says; nil while it says nothing that is
// fresh and its own.
func (o Observation) member(ordinal int) *memberapi.Status {
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

// standing is where a member is on its way to serving.
type standing struct {
	// reason of what is under way; empty when the member is done.
	reason string
	// message says what is waited for.
	message string
	// broken says that this is not part of a normal start.
	broken bool
}

func (s standing) done() bool { return s.reason == "" }

// stand judges one member; first match wins.
func stand(c *v1alpha1.PostgresCluster, o Observation, d desired, ordinal int) standing { //nolint:gocyclo // an ordered switch: first match wins
	pod, m := o.Pods[ordinal], o.member(ordinal)
	name := podName(c, ordinal)
	primary := ordinal == 0
	switch {
	case pod == nil:
		return standing{v1alpha1.ReasonScalingUp, "member " + name + " has no pod yet", false}
	case pod.DeletionTimestamp != nil:
		return standing{v1alpha1.ReasonRestarting, "member " + name + " is stopping", false}
	case waitingReason(pod) != "":
		return standing{v1alpha1.ReasonScalingUp, "pod " + name + ": " + waitingReason(pod), true}
	case m == nil && reached(o, pod):
		return standing{v1alpha1.ReasonMemberUnreachable, "the agent of member " + name + " does not answer: " + o.Members[pod.Name].Err, true}
	case m == nil:
		return standing{v1alpha1.ReasonScalingUp, "member " + name + " is starting", false}
	case m.State == memberapi.StateHeld || m.State == memberapi.StateFailed:
		return standing{v1alpha1.ReasonMemberDown, "member " + name + ": " + m.Message, true}
	case !m.Serving || (primary && m.State != memberapi.StateRunning):
		return standing{v1alpha1.ReasonSyncing, waiting(name, m), false}
	case !primary && m.State != memberapi.StateStreaming:
		return standing{v1alpha1.ReasonSyncing, waiting(name, m), m.State == memberapi.StateDisconnected}
	case pod.Annotations[v1alpha1.AnnotationRollout] != rolloutHash(c, d.asked):
		return standing{v1alpha1.ReasonRestarting, "member " + name + " is to be replaced for what spec changed", false}
	case !ready(pod) || !inEndpoints(o, primary, name):
		return standing{v1alpha1.ReasonUpdatingEndpoints, "member " + name + " is not behind its Service yet", false}
	case m.ConfigHash != memberapi.HashConfig(clusterConfig(c, d)) && m.ConfigError == "":
		return standing{v1alpha1.ReasonConfiguring, "member " + name + " has not taken up the settings yet", false}
	case waitsForPrimary(m):
		return standing{v1alpha1.ReasonConfiguring, "member " + name + " follows once the primary runs with the declared " + strings.Join(m.WaitsForPrimary, ", "), false}
	case len(m.PendingRestart) > 0:
		return standing{v1alpha1.ReasonRestarting, "member " + name + " needs a restart for " + strings.Join(m.PendingRestart, ", "), false}
	}
	return standing{}
}

// waitsForPrimary says whether a replica is done but for what its primary has
// to do first.
func waitsForPrimary(m *memberapi.Status) bool { return len(m.WaitsForPrimary) > 0 }

func waiting(name string, m *memberapi.Status) string {
	text := fmt.Sprintf("member %s is %s", name, strings.ToLower(string(m.State)))
	if m.Message != "" {
		text += ": " + m.Message
	}
	return text
}

// reached says whether the pod should answer: it runs, and it was tried.
func reached(o Observation, pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && o.Members[pod.Name].Err != "" && started(pod)
}

// started says whether the database's container runs.
func started(pod *corev1.Pod) bool {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == containerName {
			return s.State.Running != nil
		}
	}
	return false
}

func ready(pod *corev1.Pod) bool {
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodReady {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return false
}

func inEndpoints(o Observation, primary bool, name string) bool {
	if primary {
		return o.ReadWrite[name]
	}
	return o.ReadOnly[name]
}

// imageReasons are the kubelet's words for an image that cannot be had.
var imageReasons = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"}

// imageFault says which image of a pod cannot be had, and why.
func imageFault(pod *corev1.Pod) string {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && slices.Contains(imageReasons, w.Reason) {
			return fmt.Sprintf("image %s: %s", s.Image, w.Reason)
		}
	}
	return ""
}

// installerImage is the image that a pod gets its agent from.
func installerImage(pod *corev1.Pod) string {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == installerName {
			return pod.Spec.InitContainers[i].Image
		}
	}
	return ""
}

// waitingReason says why a pod is not running its database; empty when it is,
// or is about to.
func waitingReason(pod *corev1.Pod) string {
	if fault := imageFault(pod); fault != "" {
		return fault
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && (w.Reason == "CrashLoopBackOff" || strings.HasPrefix(w.Reason, "CreateContainer")) {
			return fmt.Sprintf("container %s: %s; see kubectl logs %s -c %s --previous", s.Name, w.Reason, pod.Name, s.Name)
		}
	}
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse && cond.Reason == corev1.PodReasonUnschedulable {
			return "cannot be scheduled: " + cond.Message
		}
	}
	return ""
}

// report is what status says of a member.
func report(c *v1alpha1.PostgresCluster, o Observation, ordinal int, s standing) v1alpha1.MemberStatus {
	ms := v1alpha1.MemberStatus{Name: podName(c, ordinal), Role: v1alpha1.RoleMember, State: "Pending", Message: s.message}
	pod, m := o.Pods[ordinal], o.member(ordinal)
	if pod != nil {
		ms.Node, ms.State = pod.Spec.NodeName, "Starting"
		if pod.DeletionTimestamp != nil {
			ms.State = "Stopping"
		}
	}
	if m != nil {
		ms.Role, ms.State, ms.Version = m.Role, string(m.State), m.Version
		if ms.Message == "" {
			ms.Message = m.Message
		}
	} else if pod != nil && reached(o, pod) {
		ms.State = "Unreachable"
	}
	return ms
}
