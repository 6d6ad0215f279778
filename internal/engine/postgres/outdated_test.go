package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// downPrimary is a settled cluster whose primary's pod is outdated, and whose database
// has been in a state for a while.
func downPrimary(t *testing.T, replicas int, state agentapi.State, since time.Duration) (*world, *agentapi.Status) {
	t.Helper()
	w := settled(t, replicas)
	w.o.Pods[0].Annotations[v1alpha1.AnnotationRollout] = "before"
	w.o.ServicePods[suffixRW] = map[string]bool{}
	m := w.status(0)
	m.State, m.Serving, m.Role = state, false, v1alpha1.RoleMember
	m.Time, m.DownSince = now.Add(-time.Hour), now.Add(-time.Hour-since) // by the member's own clock
	return w, m
}

// endedContainer is a container that ended once, and is in a state since.
func endedContainer(w *world, state corev1.ContainerState) {
	s := &w.o.Pods[0].Status.ContainerStatuses[0]
	s.State, s.RestartCount = state, 1
	s.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}}
	delete(w.o.Members, "orders-0")
}

// To restart a database takes its agent seconds, and a new pod
// many more. A pod whose agent does not bring it back is replaced all the same.
func TestOutdatedPodIsFirstItsAgentsToRestart(t *testing.T) {
	terminated := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	cases := map[string]struct {
		world    func(t *testing.T) *world
		replaced bool
		recheck  time.Duration
	}{
		"a database that crashed a moment ago": {world: func(t *testing.T) *world {
			w, m := downPrimary(t, 2, agentapi.StateFailed, time.Second)
			m.Failures = 1
			return w
		}},
		"one that did not start after its crash": {world: func(t *testing.T) *world {
			w, m := downPrimary(t, 2, agentapi.StateFailed, 4*time.Second)
			m.Failures = 2
			return w
		}, replaced: true},
		"one that failed, by an agent that does not count": {world: func(t *testing.T) *world {
			w, m := downPrimary(t, 2, agentapi.StateFailed, 0)
			m.DownSince = time.Time{}
			return w
		}, replaced: true},
		"one that waits for its Lease": {world: func(t *testing.T) *world {
			w, _ := downPrimary(t, 2, agentapi.StateWaiting, 10*time.Second)
			return w
		}, recheck: 20 * time.Second},
		"one that waited before it said so, and since": {world: func(t *testing.T) *world {
			w, _ := downPrimary(t, 2, agentapi.StateWaiting, 20*time.Second)
			o := w.o.Members["orders-0"]
			o.At = now.Add(-11 * time.Second)
			w.o.Members["orders-0"] = o
			return w
		}, replaced: true},
		"one that recovers, however long": {world: func(t *testing.T) *world {
			w, _ := downPrimary(t, 2, agentapi.StateRecovering, time.Hour)
			return w
		}},
		"one that is hung": {world: func(t *testing.T) *world {
			w, _ := downPrimary(t, 2, agentapi.StateHung, time.Minute)
			return w
		}},
		"one that is held": {world: func(t *testing.T) *world {
			w, m := downPrimary(t, 2, agentapi.StateHeld, time.Second)
			m.Hold = agentapi.HoldDataVersion
			return w
		}, replaced: true},
		"a container that has just ended": {world: func(t *testing.T) *world {
			w, _ := downPrimary(t, 2, agentapi.StateFailed, 0)
			endedContainer(w, terminated)
			return w
		}},
		"one that its kubelet starts again": {world: func(t *testing.T) *world {
			w, _ := downPrimary(t, 2, agentapi.StateFailed, 0)
			endedContainer(w, waiting("ContainerCreating"))
			return w
		}},
		"one that its kubelet is in no hurry to start again": {world: func(t *testing.T) *world {
			w, _ := downPrimary(t, 2, agentapi.StateFailed, 0)
			endedContainer(w, waiting("CrashLoopBackOff"))
			return w
		}, replaced: true},
		"one that never ran": {world: func(t *testing.T) *world {
			w, _ := downPrimary(t, 2, agentapi.StateFailed, 0)
			w.setWaiting(0, "PodInitializing")
			return w
		}, replaced: true},
		"one whose image cannot be had": {world: func(t *testing.T) *world {
			w, _ := downPrimary(t, 1, agentapi.StateFailed, 0)
			w.setWaiting(0, "ImagePullBackOff")
			return w
		}, replaced: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := tc.world(t).plan()
			if replaced := p.Step != nil && p.Step.Type == memberset.StepReplaceMember; replaced != tc.replaced {
				t.Errorf("replaced: %v, want %v: %+v", replaced, tc.replaced, p.Step)
			}
			if tc.recheck != 0 && p.Recheck != tc.recheck {
				t.Errorf("checked again in %s, want %s", p.Recheck, tc.recheck)
			}
		})
	}
}

// A primary that accepts no new connection is not available, whatever its old
// sessions do.
func TestHungPrimaryIsNotAvailable(t *testing.T) {
	w := settled(t, 2)
	m := w.status(0)
	m.State, m.Serving, m.Role = agentapi.StateHung, false, v1alpha1.RoleMember
	m.Message = "PostgreSQL accepts no new connection"
	p := w.plan()
	want := outcome{"", []string{"Degraded/MemberDown", "Reconciling/Syncing", "Available/PrimaryUnavailable"}, 2}
	if diff := cmp.Diff(want, outcomeOf(p)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	for _, f := range p.Facts {
		if f.Type == v1alpha1.ConditionAvailable && (f.Status != metav1.ConditionFalse || !strings.Contains(f.Message, m.Message)) {
			t.Errorf("%+v", f)
		}
	}
}
