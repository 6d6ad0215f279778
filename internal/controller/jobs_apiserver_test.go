//go:build apiserver

package controller_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/backup"
)

// jobs plays the kubelet of Jobs' pods, and the program in them.
type jobs struct {
	mu sync.Mutex
	// held keeps programs from coming to an end.
	held bool
	// code is what they exit with, and what they say before, where it is not 0.
	code  int32
	fault string
	// began are the pods whose program was started, with their arguments.
	began map[types.UID]string
	tasks []agentapi.BackupTask
}

func (j *jobs) set(change func(j *jobs)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(j)
}

// verbs are what the programs were started for, in any order.
func (j *jobs) verbs() map[string]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	count := map[string]int{}
	for _, verb := range j.began {
		count[verb]++
	}
	return count
}

// step takes a pod one step further.
func (j *jobs) step(ctx context.Context, s *simulation, pod *corev1.Pod) error {
	if runs, err := s.advanceJobPod(ctx, pod); !runs {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	ctr := pod.Spec.Containers[0]
	if j.began == nil {
		j.began = map[types.UID]string{}
	}
	if j.began[pod.UID] == "" {
		var task agentapi.BackupTask
		if err := json.Unmarshal([]byte(ctr.Env[0].Value), &task); err != nil {
			s.t.Errorf("pod %s has the task %q: %v", pod.Name, ctr.Env[0].Value, err)
		}
		j.tasks = append(j.tasks, task)
		j.began[pod.UID] = ctr.Args[len(ctr.Args)-1]
	}
	if j.held {
		return nil
	}
	code := j.code
	if verb := ctr.Args[len(ctr.Args)-1]; verb != "remove" && verb != "sweep" {
		err := j.report(ctx, s, pod)
		switch {
		case backup.InVain(err):
			code = agentapi.ExitPermanent // no request wants it any more
		case ctx.Err() != nil:
			return err // the test is over
		case err != nil:
			s.t.Errorf("pod %s cannot report: %v", pod.Name, err)
			return err
		}
	}
	done := pod.DeepCopy()
	done.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		done.Status.Phase = corev1.PodFailed
	}
	done.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: ctr.Name, Image: ctr.Image,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Ended"}}}}
	return s.kubelet.Status().Patch(ctx, done, client.MergeFrom(pod))
}

// report as the program does, with the rights that its pod has.
func (j *jobs) report(ctx context.Context, s *simulation, pod *corev1.Pod) error {
	as, err := dynamic.NewForConfig(s.actAsPod(pod))
	if err != nil {
		return err
	}
	run := v1alpha1.BackupRun{Pod: pod.Name, Step: v1alpha1.BackupStepCopying, Error: j.fault, Permanent: j.code == agentapi.ExitPermanent}
	if j.code == 0 {
		run = v1alpha1.BackupRun{Pod: pod.Name, Step: v1alpha1.BackupStepDone, Progress: "100%", Result: &v1alpha1.BackupResult{
			Size: resource.MustParse("12Mi"), DataSize: resource.MustParse("40Mi"), Version: s.kind.version, EndPosition: "42", Manifest: "m", Checksum: "sha256:0",
		}}
	}
	var task agentapi.BackupTask
	if err := json.Unmarshal([]byte(pod.Spec.Containers[0].Env[0].Value), &task); err != nil {
		return err
	}
	reporter := &backup.Object{Client: as, Task: task, Log: slog.New(slog.DiscardHandler), Cancel: func(error) {}}
	return reporter.ReportEnd(ctx, run)
}

// A pod whose Backup was deleted and made anew has nothing to say of that.
func TestReportOfAnotherBackup(t *testing.T) {
	t.Parallel()
	w := &world{Cluster: apitest.New(t), t: t, kind: etcdKind}
	b := w.backup("first", v1alpha1.DeletionRetain)
	if err := w.As(t, "kubectl").Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	as, err := dynamic.NewForConfig(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	for uid, gone := range map[types.UID]bool{b.UID: false, "another": true} {
		task := agentapi.BackupTask{Namespace: b.Namespace, Name: b.Name, UID: string(uid)}
		reporter := &backup.Object{Client: as, Task: task, Log: slog.New(slog.DiscardHandler), Cancel: func(error) {}}
		err := reporter.ReportEnd(t.Context(), v1alpha1.BackupRun{Pod: "p", Step: v1alpha1.BackupStepCopying})
		if (err != nil) != gone || gone && !backup.InVain(err) {
			t.Errorf("%s: %v", uid, err)
		}
	}
}
