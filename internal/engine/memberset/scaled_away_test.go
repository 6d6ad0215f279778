package memberset

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// liveObjects answers that every object exists, and refuses to delete one.
type liveObjects struct {
	client.Client
	t *testing.T
}

func (l *liveObjects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	into.SetName(key.Name)
	into.SetUID("cluster-uid")
	return nil
}

func (l *liveObjects) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	l.t.Errorf("%s is deleted", obj.GetName())
	return nil
}

// The time since which a former member has had no pod begins anew when a pod of
// its name is found: in the cache, or by the API server alone.
func TestEndingsRestartWhenAPodIsFound(t *testing.T) {
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "cluster-uid"}}
	c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	s := objects.Set{Cluster: c}
	volume := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-orders-1", UID: "volume", Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
		Annotations: map[string]string{v1alpha1.AnnotationScaledAway: string(v1alpha1.DeletionDelete), v1alpha1.AnnotationCluster: "cluster-uid"}}}
	gone := Observation{Volumes: map[int]*corev1.PersistentVolumeClaim{1: volume}}
	found := gone
	found.Pods = map[int]*corev1.Pod{1: {}}
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	clock := clocktesting.NewFakePassiveClock(start)
	k := &MemberEngine{Clock: clock, Writer: &liveObjects{t: t}}
	since := func(at time.Duration, o Observation) time.Time {
		clock.SetTime(start.Add(at))
		return k.endings.observeEndings(s, o, clock.Now())[1]
	}
	if got := since(0, gone); !got.Equal(start) {
		t.Errorf("it ended at %s", got)
	}
	if got := since(time.Minute, gone); !got.Equal(start) {
		t.Errorf("it ended at %s", got)
	}
	if got := since(2*time.Minute, found); !got.IsZero() {
		t.Errorf("a pod that is there ended at %s", got)
	}
	if got := since(3*time.Minute, gone); !got.Equal(start.Add(3 * time.Minute)) {
		t.Errorf("after the cache showed a pod, it ended at %s", got)
	}
	err := k.Act(t.Context(), s, engine.Step{Type: StepDeleteVolume, Target: volume.Name, Subject: "orders-1", UID: volume.UID})
	if err == nil || !strings.Contains(err.Error(), "pod orders-1 exists") {
		t.Errorf("the volume of a pod that exists is deleted: %v", err)
	}
	if got := since(4*time.Minute, gone); !got.Equal(start.Add(4 * time.Minute)) {
		t.Errorf("after the API server showed a pod, it ended at %s", got)
	}
}

// The volume of a member that has a pod is discarded, and then the member is scaled away:
// the time since which it has had no pod begins with its end, not with the request.
func TestEndOfAPodIsNotThatOfADiscard(t *testing.T) {
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "cluster-uid"}}
	c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	c.Status.Requests = []v1alpha1.RequestStatus{{Type: RequestDiscardVolume, ID: "go", VolumeUID: "volume"}}
	s := objects.Set{Cluster: c}
	volume := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-orders-1", UID: "volume", Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
		Annotations: map[string]string{v1alpha1.AnnotationScaledAway: string(v1alpha1.DeletionDelete), v1alpha1.AnnotationCluster: "cluster-uid"}}}
	gone := Observation{Volumes: map[int]*corev1.PersistentVolumeClaim{1: volume}}
	runs := gone
	runs.Pods = map[int]*corev1.Pod{1: {}}
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var e endings
	for _, step := range []struct {
		what     string
		at, want time.Duration
		o        Observation
	}{
		{"it is discarded while it has a pod", 0, 0, runs},
		{"the same later", time.Minute, 0, runs},
		{"its pod has ended", 2 * time.Minute, 2 * time.Minute, gone},
		{"the same later", 3 * time.Minute, 2 * time.Minute, gone},
	} {
		if got := e.observeEndings(s, step.o, start.Add(step.at))[1].Sub(start); got != step.want {
			t.Errorf("%s: since %s, want %s", step.what, got, step.want)
		}
	}
	e.forgetVolume(s.Key(), volume.UID)
	if got := e.observeEndings(s, gone, start.Add(4*time.Minute))[1].Sub(start); got != 4*time.Minute {
		t.Errorf("after a pod was found, it ended after %s", got)
	}
	c.Status.Requests[0].Result = "done"
	if got := e.observeEndings(s, runs, start.Add(5*time.Minute)); got != nil {
		t.Errorf("nothing ends, and %v is said", got)
	}
}
