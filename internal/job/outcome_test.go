package job

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var start = time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)

func jobWith(conditions ...batchv1.JobCondition) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "orders-copy", UID: "job", CreationTimestamp: metav1.NewTime(start)},
		Status:     batchv1.JobStatus{Conditions: conditions},
	}
}

func podOf(j *batchv1.Job, state corev1.ContainerState) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "orders-copy-x", CreationTimestamp: metav1.NewTime(start.Add(time.Minute)),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: ContainerName, State: state}}},
	}
}

func TestEndTime(t *testing.T) {
	end := start.Add(time.Hour)
	for name, tc := range map[string]struct {
		condition batchv1.JobCondition
		want      time.Time
	}{
		"a Job that completed": {batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(end)}, end},
		"a Job that failed":    {batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(end)}, end},
		"a Job that is about to fail has not ended": {
			batchv1.JobCondition{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(end)}, time.Time{}},
	} {
		j := jobWith(tc.condition)
		if got := EndTime(j); !got.Equal(tc.want) || HasEnded(j) != !tc.want.IsZero() {
			t.Errorf("%s: ended %v at %s, want %s", name, HasEnded(j), got, tc.want)
		}
	}
}

func TestIdleTime(t *testing.T) {
	j, now := jobWith(), start.Add(10*time.Minute)
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(start.Add(4 * time.Minute))}}
	running := podOf(j, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	leaving := *running.DeepCopy()
	leaving.DeletionTimestamp = &metav1.Time{Time: start.Add(6 * time.Minute)}
	other := podOf(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "other"}}, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	for name, tc := range map[string]struct {
		pods []corev1.Pod
		want time.Duration
	}{
		"without a pod, since the Job was created":   {nil, 10 * time.Minute},
		"a program that runs":                        {[]corev1.Pod{running}, 0},
		"a pod that waits, since it was created":     {[]corev1.Pod{podOf(j, corev1.ContainerState{})}, 9 * time.Minute},
		"a program that ended, since its end":        {[]corev1.Pod{podOf(j, ended)}, 6 * time.Minute},
		"a pod that is being deleted, since then":    {[]corev1.Pod{leaving}, 4 * time.Minute},
		"the pod of another Job of the same cluster": {[]corev1.Pod{other}, 10 * time.Minute},
	} {
		if got := IdleTime(j, tc.pods, now); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestTerminationsAreOfTheProgramOfTheJob(t *testing.T) {
	j := jobWith()
	pod := podOf(j, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "said", Reason: "OOMKilled"}})
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses,
		corev1.ContainerStatus{Name: "mesh", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "of a sidecar"}}})
	stranger := podOf(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: "other"}}, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled"}})
	pods := []corev1.Pod{stranger, pod}
	if got := FindTerminations(j, pods); len(got) != 1 || got[0].Message != "said" {
		t.Errorf("%+v", got)
	}
	if got := FindPodOutOfMemory(j, pods); got != pod.Name {
		t.Errorf("out of memory: %q", got)
	}
}
