package etcd

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// left is the volume of a member that was scaled away under a policy, whose pod
// has been gone for a while.
func (w *world) left(ordinal int, under v1alpha1.DeletionPolicy) *corev1.PersistentVolumeClaim {
	v := w.volume(ordinal, false)
	v.Annotations = map[string]string{v1alpha1.AnnotationScaledAway: string(under), v1alpha1.AnnotationCluster: string(w.c.UID)}
	if w.o.Ended == nil {
		w.o.Ended = map[int]time.Time{}
	}
	w.o.Ended[ordinal] = now.Add(-time.Minute)
	return v
}

// The volume of a member that was scaled away is deleted by what a quorum answered
// after the pod's end, its leader among it, and by no older answer.
func TestVolumeIsDeletedByFreshEvidence(t *testing.T) {
	old := func(w *world, pods ...string) {
		for _, pod := range pods {
			m := w.o.Members[pod]
			m.Asked = now.Add(-58 * time.Second)
			w.o.Members[pod] = m
		}
	}
	leader := func(w *world) string { return w.plan().Report.Primary }
	follower := func(w *world, n int) string {
		names := []string{"config-0", "config-1", "config-2"}
		for i, name := range names {
			if name == leader(w) {
				names = append(names[:i], names[i+1:]...)
				break
			}
		}
		return names[n]
	}
	cases := []struct {
		name   string
		change func(w *world)
		want   string
	}{
		{"all answered since", func(w *world) {}, "DeleteVolume data-config-3"},
		{"a quorum answered since", func(w *world) { old(w, follower(w, 0)) }, "DeleteVolume data-config-3"},
		{"the leader alone answered since", func(w *world) { old(w, follower(w, 0), follower(w, 1)) }, ""},
		{"the leader has not answered since", func(w *world) { old(w, leader(w)) }, ""},
		{"when the pod ended is unknown", func(w *world) { w.o.Ended = nil }, ""},
		{"it was kept when its member left", func(w *world) { w.left(3, v1alpha1.DeletionRetain) }, ""},
		{"an earlier cluster scaled it away", func(w *world) { w.o.Volumes[3].Annotations[v1alpha1.AnnotationCluster] = "earlier" }, ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := settled(t, 3)
			w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
			w.left(3, v1alpha1.DeletionDelete)
			w.say()
			tc.change(w)
			got := ""
			if s := w.plan().Step; s != nil {
				got = s.Type + " " + s.Target
			}
			if got != tc.want {
				t.Errorf("step %q, want %q", got, tc.want)
			}
		})
	}
}
