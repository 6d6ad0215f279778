package postgres

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// How the first member's volume is filled follows from what is declared.
func TestPlanRestore(t *testing.T) {
	w := newWorld(t, 3)
	r := (&Engine{}).PlanRestore(w.c, w.o)
	if r.Living || r.Volume != nil || len(r.Others)+len(r.Faults) > 0 {
		t.Errorf("before anything is there: %+v", r)
	}
	if r.Program != "postgres" || r.Image != specImage(w.c, w.o.Settings) || r.User != 999 || r.Member != "orders-0" || r.CompleteTask != nil || r.Size != 1<<30 || *r.Account.Name != "orders-backup" {
		t.Errorf("%+v", r)
	}
	if *r.Claim.Name != "data-orders-0" || r.Claim.Labels[v1alpha1.LabelMember] != "0" || r.Claim.Annotations[v1alpha1.AnnotationRestoredBy] != "cluster-uid" || r.Claim.Annotations[v1alpha1.AnnotationSystemIdentifier] != "" {
		t.Errorf("%+v", r.Claim)
	}
	w.volume(0, true)
	w.volume(2, false)
	r = (&Engine{}).PlanRestore(w.c, w.o)
	if r.Living || r.Volume != w.o.Volumes[0] || !cmp.Equal(r.Others, []string{"data-orders-2"}) {
		t.Errorf("with volumes: %+v", r)
	}
	w.c.CreationTimestamp = metav1.NewTime(now)
	w.o.Volumes[2].DeletionTimestamp = &metav1.Time{Time: now}
	if r = (&Engine{}).PlanRestore(w.c, w.o); r.Leaving != "data-orders-2" {
		t.Errorf("%q is being deleted", r.Leaving)
	}
	w.o.Volumes[2].CreationTimestamp = w.c.CreationTimestamp
	if r = (&Engine{}).PlanRestore(w.c, w.o); r.Leaving != "" {
		t.Errorf("its own %s passes for an earlier cluster's", r.Leaving)
	}
	w.c.Spec.Storage.StorageClass = "nowhere"
	clear(w.o.Volumes)
	if r = (&Engine{}).PlanRestore(w.c, w.o); len(r.Faults) != 1 || r.Faults[0].Reason != v1alpha1.ReasonStorageClassMissing {
		t.Errorf("without its class: %+v", r.Faults)
	}
	if w := settled(t, 1); !(&Engine{}).PlanRestore(w.c, w.o).Living {
		t.Error("a database runs, and it is not observed")
	}
}

// A part of a database is none: no member starts on what an earlier cluster of
// the name began to restore.
func TestHalfRestored(t *testing.T) {
	cases := []struct {
		name   string
		change func(w *world)
		wants  bool // that it is left alone
	}{
		{"by an earlier cluster", func(*world) {}, true},
		{"to the end", func(w *world) { w.o.Volumes[0].Annotations[v1alpha1.AnnotationSystemIdentifier] = "7" }, false},
		{"never", func(w *world) { delete(w.o.Volumes[0].Annotations, v1alpha1.AnnotationRestoredBy) }, false},
		{"and it is being deleted", func(w *world) { w.o.Volumes[0].DeletionTimestamp = &metav1.Time{Time: now} }, false},
		{"and members run on it", func(w *world) { w.statefulSet() }, false},
		{"by this one", func(w *world) { w.c.Status.Restore = &v1alpha1.RestoreStatus{} }, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.mintSecrets()
			w.volume(0, true)
			w.o.Volumes[0].Annotations = map[string]string{v1alpha1.AnnotationRestoredBy: "another-uid"}
			c.change(w)
			p := planCluster(w.c, w.o, now)
			refused := false
			for _, f := range p.Facts {
				refused = refused || f.Reason == v1alpha1.ReasonRestoreRefused && strings.Contains(f.Message, "data-orders-0")
			}
			if refused != c.wants || len(p.Objects) == 0 != c.wants {
				t.Errorf("refused %t, %d objects", refused, len(p.Objects))
			}
		})
	}
}
