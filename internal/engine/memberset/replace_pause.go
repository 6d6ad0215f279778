package memberset

import (
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// current says whether a pod was made of the very template that is declared: a
// new one would be as it is, whatever it differs in.
func (s Set) current(o Observation, d Desired, pod *corev1.Pod) bool {
	set := o.StatefulSet
	return set != nil && set.Status.ObservedGeneration == set.Generation && set.Status.UpdateRevision != "" &&
		pod.Labels[appsv1.ControllerRevisionHashLabelKey] == set.Status.UpdateRevision &&
		set.Spec.Template.Annotations[v1alpha1.AnnotationRollout] == s.RolloutHash(d.Asked)
}

// older says whether a pod was made of what the spec declared before.
func (s Set) older(o Observation, d Desired, pod *corev1.Pod) bool {
	return pod.Annotations[v1alpha1.AnnotationRollout] != s.RolloutHash(d.Asked) && !s.current(o, d, pod)
}

// declared says whether the StatefulSet has what the spec declares for pods. It
// has not while it is still to be applied, or while something changes it back.
func (j *Judgement) declared() bool {
	set := j.Seen.StatefulSet
	if set == nil {
		return true
	}
	hash := set.Spec.Template.Annotations[v1alpha1.AnnotationRollout]
	return hash == "" || hash == j.RolloutHash(j.Desired.Asked)
}

// replacePause is how long a pod is still to stay that would be replaced again
// for the reason that its predecessor was. What was replaced before the operator
// started is not known: a pod whose image was set stays for the first pause.
func (j *Judgement) replacePause(pod *corev1.Pod, why string) time.Duration {
	last, found := j.Seen.Replaced[pod.Name]
	if found && last.Why == why && last.Generation == j.Cluster.GetGeneration() {
		return max(0, last.At.Add(last.pause()).Sub(j.Now))
	}
	if !found && why == j.strays(pod) {
		return max(0, pod.CreationTimestamp.Add(firstReplacePause).Sub(j.Now))
	}
	return 0
}

// nextReplacement is when the first pause ends; 0 for none.
func (j *Judgement) nextReplacement() time.Duration {
	var first time.Duration
	for n, pod := range j.Seen.Pods {
		if why := j.Outdated(n); why != "" {
			if pause := j.replacePause(pod, why); pause > 0 && (first == 0 || pause < first) {
				first = pause
			}
		}
	}
	return first
}

// judgePause reports a pod that would be replaced for the same reason again.
func (j *Judgement) judgePause(ordinal int) {
	pod, why := j.Seen.Pods[ordinal], j.Outdated(ordinal)
	if why == "" || j.replacePause(pod, why) == 0 {
		return
	}
	j.Say(v1alpha1.ConditionDegraded, v1alpha1.ReasonMemberDown,
		"pod %s was made anew and is to be replaced again: %s; it is tried at growing intervals: find the client that changes pods of this namespace", pod.Name, why)
}

// Tolerated says what pods have otherwise than their template: one line for all
// that differ in the same. What is put back by replacing the pod is not among it.
func (j *Judgement) Tolerated() []string {
	pods := map[string][]string{}
	for n := range j.Desired.Count {
		pod := j.Seen.Pods[n]
		if pod == nil || pod.DeletionTimestamp != nil {
			continue
		}
		if text := j.differences(n, pod); text != "" {
			pods[text] = append(pods[text], pod.Name)
		}
	}
	var out []string
	for _, text := range slices.Sorted(maps.Keys(pods)) {
		out = append(out, "Pod/"+strings.Join(pods[text], ", Pod/")+" "+text)
	}
	return out
}

// differences of a pod in words. Of one that was made of an earlier template
// only the image is told.
func (j *Judgement) differences(ordinal int, pod *corev1.Pod) string {
	var out []string
	all := j.Seen.Altered[pod.Name]
	comparable := j.current(j.Seen, j.Desired, pod)
	outdated := j.Outdated(ordinal) != ""
	for _, d := range all {
		image := d.Path == imagePath(j.Container)
		if outdated || !comparable && !image {
			continue
		}
		text := d.Path + " (" + d.Change
		if ctr := j.container(pod.Spec); image && ctr != nil {
			if !comparable && (ctr.Image == j.Desired.Asked || ctr.Image == j.Desired.Pull) {
				continue // the tag, before it was resolved
			}
			text += " to " + ctr.Image
		}
		if d.Manager != "" {
			text += " by " + d.Manager
		}
		out = append(out, text+")")
	}
	return strings.Join(out, ", ")
}
