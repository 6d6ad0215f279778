package job

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// RecheckInterval is how often to check a Job, or what a backup waits for, that
	// no watch reports.
	RecheckInterval = 15 * time.Second
	// PodDeadline is how long a Job may start without a pod.
	PodDeadline = time.Minute
	// IdleDeadline is how long a Job may be without a program that runs before it
	// is abandoned. What keeps it from running, such as a node that fits, has not
	// come in that time, and the next slot is to have its turn.
	IdleDeadline = 30 * time.Minute
)

// HasEnded says whether a Job has completed or failed.
func HasEnded(job *batchv1.Job) bool {
	return HasCondition(job, batchv1.JobFailed) || HasCondition(job, batchv1.JobComplete)
}

// HasCondition says whether a condition of a Job is true.
func HasCondition(job *batchv1.Job, conditionType batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == conditionType && c.Status == corev1.ConditionTrue
	})
}

// DescribeFault says why the pod of a Job does not get on; empty where it does.
func DescribeFault(pods []corev1.Pod, job *batchv1.Job) string {
	for i := range pods {
		pod := &pods[i]
		if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != job.UID {
			continue
		}
		if fault := describePodFault(pod, HasEnded(job)); fault != "" {
			return fault
		}
	}
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// describePodFault says why a pod does not get on. How its containers ended counts
// only in the last try.
func describePodFault(pod *corev1.Pod, last bool) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("pod %s finds no node: %s", pod.Name, c.Message)
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
			return fmt.Sprintf("pod %s, container %s: %s: %s", pod.Name, c.Name, w.Reason, w.Message)
		}
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 && last {
			return fmt.Sprintf("pod %s, container %s ended with %d: %s %s", pod.Name, c.Name, t.ExitCode, t.Reason, t.Message)
		}
	}
	return ""
}

// DescribeCause puts a fault in parentheses; empty for none.
func DescribeCause(fault string) string {
	if fault == "" {
		return ""
	}
	return " (" + fault + ")"
}

// EndTime is when a Job completed or failed; zero while it has not.
func EndTime(job *batchv1.Job) time.Time {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobFailed || c.Type == batchv1.JobComplete) && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// FindTerminations reads how the program of a Job ended in each of its pods.
func FindTerminations(job *batchv1.Job, pods []corev1.Pod) []corev1.ContainerStateTerminated {
	var ended []corev1.ContainerStateTerminated
	for i := range pods {
		if !metav1.IsControlledBy(&pods[i], job) {
			continue
		}
		for _, c := range pods[i].Status.ContainerStatuses {
			if c.Name == ContainerName && c.State.Terminated != nil {
				ended = append(ended, *c.State.Terminated)
			}
		}
	}
	return ended
}

// FindPodOutOfMemory names a pod of the Job that was killed for its memory; empty
// for none. Such a program had no time to report it.
func FindPodOutOfMemory(job *batchv1.Job, pods []corev1.Pod) string {
	for i := range pods {
		pod := &pods[i]
		for _, c := range pod.Status.ContainerStatuses {
			if t := c.State.Terminated; t != nil && t.Reason == "OOMKilled" && metav1.IsControlledBy(pod, job) {
				return pod.Name
			}
		}
	}
	return ""
}

// IdleTime is how long no program of the Job has run, counted from the creation
// or the end of its newest pod.
func IdleTime(job *batchv1.Job, pods []corev1.Pod, now time.Time) time.Duration {
	since := job.CreationTimestamp.Time
	for i := range pods {
		pod := &pods[i]
		if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != job.UID {
			continue
		}
		if since.Before(pod.CreationTimestamp.Time) {
			since = pod.CreationTimestamp.Time
		}
		going := pod.DeletionTimestamp != nil
		if going && since.Before(pod.DeletionTimestamp.Time) {
			since = pod.DeletionTimestamp.Time
		}
		for _, c := range pod.Status.ContainerStatuses {
			switch ended := c.State.Terminated; {
			case c.Name != ContainerName:
			case c.State.Running != nil && !going:
				return 0
			case ended != nil && since.Before(ended.FinishedAt.Time):
				since = ended.FinishedAt.Time
			}
		}
	}
	return now.Sub(since)
}
