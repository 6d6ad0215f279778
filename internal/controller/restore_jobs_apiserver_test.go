//go:build apiserver

package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/restore"
)

// restores plays the kubelet of the pods that restore, and the program in them.
type restores struct {
	mu sync.Mutex
	// held keeps programs from coming to an end.
	held bool
	// fault is what they end with, in vain; empty for success.
	fault string
	// tasks of the programs that were begun, by pod.
	tasks map[types.UID]agentapi.RestoreTask
	// filled are the volumes that hold a whole database.
	filled map[types.UID]bool
}

func (r *restores) set(change func(r *restores)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

// began is how many programs were begun.
func (r *restores) began() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tasks)
}

// halfFilled says whether a volume is for a restore that has not filled it.
func (r *restores) halfFilled(claim *corev1.PersistentVolumeClaim) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return claim.Annotations[v1alpha1.AnnotationRestoredBy] != "" && !r.filled[claim.UID]
}

// step takes a pod one step further.
func (r *restores) step(ctx context.Context, s *simulation, pod *corev1.Pod) error {
	if runs, err := s.advanceJobPod(ctx, pod); !runs {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	task, err := r.begin(pod)
	if err != nil || r.held {
		return err
	}
	run := restore.Run{Step: v1alpha1.RestoreStepCopying, Progress: "45%"}
	if r.fault != "" {
		run.Err = &backup.Permanent{Err: errors.New(r.fault)}
	} else {
		if err := r.fill(ctx, s, pod, task); err != nil {
			return err
		}
		run = restore.Run{Step: v1alpha1.RestoreStepDone, Result: &v1alpha1.RestoreResult{
			Backup: "monday", ClusterUID: "o-uid", Manifest: task.Manifest, Checksum: "sha256:0", Version: s.kind.version,
			SystemIdentifier: system, EndPosition: "42", Target: task.Target, Size: resource.MustParse("40Mi"),
		}}
	}
	if err := r.report(ctx, s, pod, task, run); err != nil {
		return err
	}
	return r.end(ctx, s, pod)
}

func (r *restores) begin(pod *corev1.Pod) (task agentapi.RestoreTask, err error) {
	for _, env := range pod.Spec.Containers[0].Env {
		if env.Name == agentapi.EnvTask {
			err = json.Unmarshal([]byte(env.Value), &task)
		}
	}
	if r.tasks == nil {
		r.tasks, r.filled = map[types.UID]agentapi.RestoreTask{}, map[types.UID]bool{}
	}
	r.tasks[pod.UID] = task
	return task, err
}

// fill the volume that the pod mounts.
func (r *restores) fill(ctx context.Context, s *simulation, pod *corev1.Pod, task agentapi.RestoreTask) error {
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "data" })
	claim := &corev1.PersistentVolumeClaim{}
	if err := s.world.Cache.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Spec.Volumes[i].PersistentVolumeClaim.ClaimName}, claim); err != nil {
		return err
	}
	if !r.filled[claim.UID] && s.kind.restored != nil {
		s.kind.restored(s, task, claim)
	}
	r.filled[claim.UID] = true
	return nil
}

// report as the program does, with the rights that its pod has.
func (r *restores) report(ctx context.Context, s *simulation, pod *corev1.Pod, task agentapi.RestoreTask, run restore.Run) error {
	as, err := kubernetes.NewForConfig(s.actAsPod(pod))
	if err != nil {
		return err
	}
	reporter := &restore.ConfigMap{Client: as, Task: task, Pod: pod.Name, Log: slog.New(slog.DiscardHandler), Pause: 50 * time.Millisecond, Limit: time.Minute}
	return reporter.ReportEnd(ctx, run)
}

func (r *restores) end(ctx context.Context, s *simulation, pod *corev1.Pod) error {
	done, code := pod.DeepCopy(), int32(0)
	done.Status.Phase = corev1.PodSucceeded
	if r.fault != "" {
		done.Status.Phase, code = corev1.PodFailed, agentapi.ExitPermanent
	}
	ctr := pod.Spec.Containers[0]
	done.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: ctr.Name, Image: ctr.Image,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Ended"}}}}
	return s.kubelet.Status().Patch(ctx, done, client.MergeFrom(pod))
}
