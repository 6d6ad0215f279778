package memberset

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// LostRemedy is how a person says that the data of a member is lost.
const LostRemedy = "when its volume or its node is gone for good, delete its PersistentVolumeClaim and its pod (a pod of a node that is off: with --force)"

// CountMajority is how many of a group's voters must agree.
func CountMajority(voters int) int { return voters/2 + 1 }

// NameMembers names members by their ordinals; "none" for none.
func NameMembers(s objects.Set, ordinals []int) string {
	if len(ordinals) == 0 {
		return "none"
	}
	var out []string
	for _, n := range ordinals {
		out = append(out, s.PodName(n))
	}
	return strings.Join(out, ", ")
}

// NeverHadVolume says that a member's pod is known to have no data: its claim never had
// a volume, and the scheduler finds no node for the pod. A pod that merely has no node
// yet may have followed one whose process still ends.
func (o Observation) NeverHadVolume(ordinal int) bool {
	pod, volume := o.Pods[ordinal], o.Volumes[ordinal]
	return pod != nil && hasNoNode(pod) &&
		volume != nil && volume.DeletionTimestamp == nil && volume.Status.Phase == corev1.ClaimPending && volume.Spec.VolumeName == ""
}

// hasNoNode says that the scheduler finds no node for a pod.
func hasNoNode(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}
