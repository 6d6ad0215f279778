//go:build apiserver

package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/importer"
)

// imports plays the kubelet of the pods that import, and the program in them. It watches over
// what the operator owes the database: one program at a time, and no client meanwhile.
type imports struct {
	mu sync.Mutex
	// runs says that programs do something; else the test reports in their place.
	runs bool
	// away are hosts that no source answers at: programs report it, and run on.
	away map[string]bool
	// programs that were begun, by pod.
	programs map[types.UID]*importProgram
}

// importProgram is one that was begun.
type importProgram struct {
	task agentapi.ImportTask
	// stopped is when it was asked to stop, and ended says that it writes nothing any more.
	stopped time.Time
	ended   bool
	// copied says that it has committed: it only reports any more, until an answer says that
	// the report arrived.
	copied bool
}

// stopTime is how long a program goes on that was asked to stop.
const stopTime = 200 * time.Millisecond

func (i *imports) set(change func(i *imports)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change(i)
}

// sourcesOf are the hosts that programs were begun for, with how many, for a cluster.
func (i *imports) sourcesOf(c v1alpha1.Cluster) map[string]int {
	i.mu.Lock()
	defer i.mu.Unlock()
	sources := map[string]int{}
	for _, program := range i.programs {
		if program.task.UID == string(c.GetUID()) {
			sources[program.task.Source.Host]++
		}
	}
	return sources
}

// step takes a pod one step further.
func (i *imports) step(ctx context.Context, s *simulation, pod *corev1.Pod) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	program := i.programs[pod.UID]
	if pod.DeletionTimestamp != nil && program.goesOn() {
		i.wantKeptOut(ctx, s, program)
		return nil
	}
	if runs, err := s.advanceJobPod(ctx, pod); !runs || !i.runs {
		return err
	}
	if program == nil {
		return i.begin(s, pod)
	}
	i.wantKeptOut(ctx, s, program)
	run := importer.Run{Result: &v1alpha1.ImportResult{SourceVersion: "15.18", Tables: 2, Rows: 7}}
	if i.away[program.task.Source.Host] {
		run = importer.Run{Err: errors.New("the source gives no answer")}
	}
	program.copied = program.copied || run.Err == nil
	if err := reportImport(ctx, s, pod, program.task, run); err != nil || run.Err != nil {
		return nil //nolint:nilerr // the program tries again, and so does this
	}
	program.ended = true
	done, ctr := pod.DeepCopy(), pod.Spec.Containers[0]
	done.Status.Phase = corev1.PodSucceeded
	done.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: ctr.Name, Image: ctr.Image,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Ended"}}}}
	return s.kubelet.Status().Patch(ctx, done, client.MergeFrom(pod))
}

// goesOn says whether a program that is asked to stop still runs.
func (p *importProgram) goesOn() bool {
	if p == nil || p.ended {
		return false
	}
	if p.stopped.IsZero() {
		p.stopped = time.Now()
	}
	p.ended = time.Since(p.stopped) > stopTime
	return !p.ended
}

// begin a program, beside which no other may run.
func (i *imports) begin(s *simulation, pod *corev1.Pod) error {
	program := &importProgram{}
	for _, env := range pod.Spec.Containers[0].Env {
		if env.Name == agentapi.EnvTask {
			if err := json.Unmarshal([]byte(env.Value), &program.task); err != nil {
				return err
			}
		}
	}
	for _, other := range i.programs {
		if !other.ended && other.task.UID == program.task.UID {
			s.t.Errorf("two programs import into %s at a time: from %s, and from %s", program.task.Name, other.task.Source.Host, program.task.Source.Host)
		}
	}
	if i.programs == nil {
		i.programs = map[types.UID]*importProgram{}
	}
	i.programs[pod.UID] = program
	return nil
}

// wantKeptOut checks that no client is let into a database that a program writes into.
func (i *imports) wantKeptOut(ctx context.Context, s *simulation, program *importProgram) {
	if program.copied {
		return
	}
	service := &corev1.Service{}
	err := s.world.Client.Get(ctx, client.ObjectKey{Namespace: program.task.Namespace, Name: program.task.Name + "-rw"}, service)
	if err == nil && service.Spec.Selector[v1alpha1.LabelImport] == "" {
		s.t.Errorf("clients are let into %s while it is imported into", program.task.Name)
	}
}

// reportImport as the program does, with the rights that its pod has.
func reportImport(ctx context.Context, s *simulation, pod *corev1.Pod, task agentapi.ImportTask, run importer.Run) error {
	as, err := kubernetes.NewForConfig(s.actAsPod(pod))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	reporter := &importer.Reporter{Client: as, Task: task, Pod: pod.Name, Log: slog.New(slog.DiscardHandler), Interval: 50 * time.Millisecond}
	return reporter.ReportEnd(ctx, run)
}
