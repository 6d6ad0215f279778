package controller

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func jobEnded(job *batchv1.Job) bool {
	return jobIs(job, batchv1.JobFailed) || jobIs(job, batchv1.JobComplete)
}

func jobIs(job *batchv1.Job, conditionType batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == conditionType && c.Status == corev1.ConditionTrue
	})
}

// podFault says why the pod of a Job does not get on; empty where it does.
func podFault(pods []corev1.Pod, job *batchv1.Job) string {
	for i := range pods {
		pod := &pods[i]
		if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != job.UID {
			continue
		}
		if fault := faultOf(pod, jobEnded(job)); fault != "" {
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

// faultOf a pod; how its containers ended counts only where there is no other
// try.
func faultOf(pod *corev1.Pod, last bool) string {
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
