package postgres

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// setOwner gives an object an owner reference to the cluster.
func (w *world) setOwner(obj metav1.Object) {
	obj.SetOwnerReferences([]metav1.OwnerReference{{Kind: "PostgresCluster", Name: w.c.Name, UID: w.c.UID, Controller: new(true)}})
}

// The last word of a suspended spec counts for what is deleted with it, and
// nothing else is done.
func TestPolicyOfASuspendedCluster(t *testing.T) {
	cases := []struct {
		name   string
		policy v1alpha1.DeletionPolicy
		change func(w *world)
		want   string
	}{
		{"what is as the policy says is left alone", v1alpha1.DeletionRetain, func(w *world) {}, ""},
		{"a volume that would go is retained", v1alpha1.DeletionRetain, func(w *world) { w.setOwner(w.o.Volumes[1]) }, "ApplyDeletionPolicyToVolume data-orders-1"},
		{"a former member's volume that would go is retained", v1alpha1.DeletionRetain, func(w *world) { w.setOwner(w.volume(3, false)) }, "ApplyDeletionPolicyToVolume data-orders-3"},
		{"a secret that would go is retained", v1alpha1.DeletionRetain, func(w *world) { w.setOwner(w.o.DataSecrets["orders-ca"]) }, "ApplyDeletionPolicyToSecret orders-ca"},
		{"what would stay goes", v1alpha1.DeletionDelete, func(w *world) { w.setOwner(w.o.Volumes[0]) }, "ApplyDeletionPolicyToVolume data-orders-1"},
		{"a volume on its way out is left alone", v1alpha1.DeletionRetain, func(w *world) {
			w.setOwner(w.o.Volumes[1])
			w.o.Volumes[1].DeletionTimestamp = &metav1.Time{Time: now}
		}, ""},
		{"a volume of another owner is left alone", v1alpha1.DeletionDelete, func(w *world) {
			w.setOwner(w.o.Volumes[0])
			w.setOwner(w.o.Volumes[1])
			w.setOwner(w.o.DataSecrets["orders-ca"])
			delete(w.volume(3, false).Labels, v1alpha1.LabelManagedBy)
		}, ""},
		{"an outdated pod is not replaced", v1alpha1.DeletionRetain, func(w *world) { w.c.Spec.PodLabels = map[string]string{"a": "b"} }, ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := settled(t, 2)
			w.o.DataSecrets = map[string]*corev1.Secret{"orders-ca": {ObjectMeta: metav1.ObjectMeta{Name: "orders-ca"}}}
			w.c.Spec.Suspend, w.c.Spec.DeletionPolicy = true, tc.policy
			tc.change(w)
			step := w.plan().Step
			if got := judgeStep(step); got != tc.want || step != nil && !step.Suspended {
				t.Errorf("step %q, want %q", got, tc.want)
			}
			w.c.Spec.Suspend = false
			if step := w.plan().Step; step != nil && strings.HasPrefix(step.Type, "ApplyDeletionPolicy") {
				t.Errorf("%s without suspension: the objects say it already", step)
			}
		})
	}
}

// A spec by which no volume may be written keeps nothing from being retained; what stays is
// not made to go by it.
func TestPolicyOfVolumesThatAreNotWritten(t *testing.T) {
	for _, tc := range []struct {
		policy v1alpha1.DeletionPolicy
		class  string
		want   string
	}{
		{v1alpha1.DeletionRetain, "missing", "ApplyDeletionPolicyToVolume data-orders-1"},
		{v1alpha1.DeletionRetain, "", ""},
		{v1alpha1.DeletionDelete, "missing", ""},
	} {
		w := settled(t, 3)
		w.c.Spec.Storage.StorageClass, w.c.Spec.DeletionPolicy = tc.class, tc.policy
		w.setOwner(w.o.Volumes[1])
		delete(w.o.Volumes, 2)
		p := w.plan()
		if got := judgeStep(p.Step); got != tc.want && (tc.want != "" || strings.HasPrefix(got, "ApplyDeletionPolicy")) {
			t.Errorf("%s, class %q: step %q, want %q", tc.policy, tc.class, got, tc.want)
		}
		if (len(p.Objects) == 0) != (tc.class != "") {
			t.Errorf("%s, class %q: %d objects", tc.policy, tc.class, len(p.Objects))
		}
	}
}

// A volume grows in an apply of its own: one that is refused must not keep the
// policy, or the bootstrap, from being written.
func TestVolumeGrowsLast(t *testing.T) {
	cases := []struct {
		name   string
		change func(w *world)
		want   string
	}{
		{"a volume that is as desired grows", func(w *world) {}, "2Gi"},
		{"the deletion policy goes first", func(w *world) { w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete }, "1Gi"},
		{"retaining goes first", func(w *world) { w.setOwner(w.o.Volumes[0]) }, "1Gi"},
		{"the bootstrap goes first", func(w *world) { w.o.Volumes[0].Annotations = nil }, "1Gi"},
		{"nothing waits where drift may stay", func(w *world) {
			w.o.Volumes[0].Annotations = nil
			w.c.Spec.Drift.Mode = v1alpha1.DriftReport
		}, "2Gi"},
		{"nothing waits for what is ignored", func(w *world) {
			w.o.Volumes[0].Annotations = nil
			w.c.Spec.Drift.Ignore = []v1alpha1.DriftIgnore{{Managers: []string{"mine"}}}
		}, "2Gi"},
		{"the first database goes first", func(w *world) { w.reportFirstDatabase("shop", "shop", "") }, "1Gi"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := settled(t, 1)
			w.o.Volumes[0].Annotations = map[string]string{
				v1alpha1.AnnotationSystemIdentifier: w.c.Status.SystemIdentifier, v1alpha1.AnnotationCluster: string(w.c.UID)}
			w.c.Spec.Storage.Size = resource.MustParse("2Gi")
			tc.change(w)
			d, _, _ := w.desired()
			if got := d.Volumes[0].Size.String(); got != tc.want {
				t.Errorf("size %s, want %s", got, tc.want)
			}
			resizing := false
			for _, f := range w.plan().Facts {
				resizing = resizing || f.Type == v1alpha1.ConditionReconciling && f.Reason == v1alpha1.ReasonResizing
			}
			if !resizing {
				t.Error("a volume that is smaller than declared is called done")
			}
		})
	}
}

// obeyVolume gives a volume the annotations that are planned for it.
func obeyVolume(t *testing.T, w *world, ordinal int) {
	t.Helper()
	d, _, _ := w.desired()
	for _, v := range d.Volumes {
		if v.Ordinal == ordinal {
			w.o.Volumes[ordinal].Annotations = objects.VolumeClaim(membersOf(w.c), d.Desired, v).Annotations
		}
	}
}

// What a volume says of newer data goes when its member serves from it.
func TestDivergedMarkIsRemoved(t *testing.T) {
	w := held(t, 1, agentapi.HoldDataDiverged)
	obeyVolume(t, w, 1)
	if w.o.Volumes[1].Annotations[v1alpha1.AnnotationDiverged] == "" {
		t.Fatal("the volume does not say that its data is ahead")
	}
	w.member(1)
	obeyVolume(t, w, 1)
	if w.o.Volumes[1].Annotations[v1alpha1.AnnotationDiverged] != "" {
		t.Error("the volume of a replica that serves is ahead still")
	}
}
