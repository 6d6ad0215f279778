package memberset

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// viewCluster is a cluster of three whose volumes go with it.
func viewCluster() *v1alpha1.PostgresCluster {
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "cluster-uid"}}
	c.Spec.Replicas, c.Spec.DeletionPolicy = new(int32(3)), v1alpha1.DeletionDelete
	return c
}

// membersVolume is the volume of a member, and formersVolume that of one that was
// scaled away while volumes were to go.
func membersVolume(ordinal int) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("data-orders-", ordinal),
		Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelMember: fmt.Sprint(ordinal)}}}
}

func formersVolume(ordinal int) *corev1.PersistentVolumeClaim {
	v := membersVolume(ordinal)
	delete(v.Labels, v1alpha1.LabelMember)
	v.Annotations = map[string]string{v1alpha1.AnnotationScaledAway: string(v1alpha1.DeletionDelete), v1alpha1.AnnotationCluster: "cluster-uid"}
	return v
}

// setOf is a StatefulSet of so many pods.
func setOf(replicas int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: &replicas}}
}

func TestMembership(t *testing.T) {
	pods := func(ordinals ...int) map[int]*corev1.Pod {
		out := map[int]*corev1.Pod{}
		for _, n := range ordinals {
			out[n] = &corev1.Pod{}
		}
		return out
	}
	volumes := func(all ...*corev1.PersistentVolumeClaim) map[int]*corev1.PersistentVolumeClaim {
		return byOrdinal(dereference(all), func(v *corev1.PersistentVolumeClaim) string { return v.Name }, "data-orders-")
	}
	gone := metav1.Now()
	leaving := membersVolume(2)
	leaving.DeletionTimestamp = &gone
	another, diverged := formersVolume(3), formersVolume(4)
	another.Annotations[v1alpha1.AnnotationCluster] = "another-uid"
	diverged.Annotations[v1alpha1.AnnotationDiverged] = "true"
	stray := membersVolume(7)
	stray.Labels[v1alpha1.LabelMember] = "1"
	for _, tc := range []struct {
		name    string
		change  func(c *v1alpha1.PostgresCluster)
		o       Observation
		desired int
		want    Membership
	}{
		{"nothing is there", nil, Observation{}, 3, Membership{Declared: 3}},
		{"all are there", nil, Observation{StatefulSet: setOf(3), Pods: pods(0, 1, 2), Volumes: volumes(membersVolume(0), membersVolume(1), membersVolume(2))}, 3,
			Membership{Declared: 3, Count: 3, Pods: []int{0, 1, 2}}},
		{"a pod is missing", nil, Observation{StatefulSet: setOf(3), Pods: pods(0, 2), Volumes: volumes(membersVolume(0), membersVolume(2))}, 3,
			Membership{Declared: 3, Count: 3, Pods: []int{0, 2}, Missing: []int{1}}},
		{"a pod waits for a volume that is being deleted", nil, Observation{StatefulSet: setOf(3), Pods: pods(0, 1), Volumes: volumes(leaving)}, 3,
			Membership{Declared: 3, Count: 3, Pods: []int{0, 1}}},
		{"one leaves", func(c *v1alpha1.PostgresCluster) { c.Spec.Replicas = new(int32(1)) },
			Observation{StatefulSet: setOf(2), Pods: pods(2, 1, 0), Volumes: volumes(membersVolume(0), membersVolume(1), membersVolume(2))}, 2,
			Membership{Declared: 1, Count: 3, Pods: []int{0, 1, 2}, Leaving: []int{2}}},
		{"volumes of former members may go, once no pod and no doubt is left", nil,
			Observation{Pods: pods(0, 6), Volumes: volumes(membersVolume(0), another, diverged, formersVolume(5), formersVolume(6))}, 1,
			Membership{Declared: 3, Count: 1, Pods: []int{0, 6}, Leaving: []int{6}, Surplus: []int{5}}},
		{"and stay where a member is to have them again", nil, Observation{Pods: pods(0), Volumes: volumes(formersVolume(5))}, 6,
			Membership{Declared: 3, Pods: []int{0}}},
		{"and where volumes are kept", func(c *v1alpha1.PostgresCluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionRetain },
			Observation{Volumes: volumes(formersVolume(5))}, 1, Membership{Declared: 3}},
		{"a label of another ordinal makes no member", nil, Observation{Volumes: volumes(stray)}, 1, Membership{Declared: 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := viewCluster()
			if tc.change != nil {
				tc.change(c)
			}
			got := ReadMembership(objects.Set{Cluster: c}, tc.o).follow(tc.desired)
			if diff := cmp.Diff(tc.want, got, equateEmpty); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// equateEmpty takes an empty list for none.
var equateEmpty = cmp.Transformer("empty", func(in []int) map[int]int {
	out := map[int]int{}
	for at, n := range in {
		out[at] = n
	}
	return out
})

func dereference[T any](all []*T) (out []T) {
	for _, one := range all {
		out = append(out, *one)
	}
	return out
}

func TestMembershipIncludes(t *testing.T) {
	m := Membership{Count: 2, Pods: []int{0, 4}}
	for n, want := range []bool{true, true, false, false, true, false} {
		if m.Includes(n) != want {
			t.Errorf("member %d: %v", n, !want)
		}
	}
	if !m.HasPodFrom(3) || !m.HasPodFrom(4) || m.HasPodFrom(5) || (Membership{}).HasPodFrom(0) {
		t.Errorf("of %v, a pod from 3 %v, from 4 %v, from 5 %v", m.Pods, m.HasPodFrom(3), m.HasPodFrom(4), m.HasPodFrom(5))
	}
}

// The newest event of each missing pod counts, while it speaks of now.
func TestUncreated(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := objects.Set{Cluster: &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop"}}}
	event := func(pod, why string, ago time.Duration) corev1.Event {
		return corev1.Event{LastTimestamp: metav1.NewTime(now.Add(-ago)), Message: "Create Pod " + pod + " in StatefulSet orders failed error: " + why}
	}
	events := []corev1.Event{
		event("orders-1", "old", 10*time.Minute), event("orders-1", "new", time.Minute),
		event("orders-2", "long over", time.Hour), event("orders-0", "it is there by now", time.Minute),
		event("orders-3", "of another kind", 0), {LastTimestamp: metav1.NewTime(now), Message: "Create Claim data-orders-2 Pod orders-2 in StatefulSet orders failed"},
	}
	if diff := cmp.Diff(map[int]string{1: "new"}, explainUncreated(s, []int{1, 2}, events, now)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
