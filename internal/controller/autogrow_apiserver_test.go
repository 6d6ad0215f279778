//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

const mebibyte = int64(1) << 20

// growing is a cluster of two whose volumes of 1Gi may grow.
func (w *world) growing(maxSize string) *v1alpha1.PostgresCluster {
	w.t.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "growing-"}, Provisioner: "example.com/disk", AllowVolumeExpansion: new(true)}
	w.create(class)
	w.t.Cleanup(func() { _ = w.person.Delete(context.Background(), class) })
	c := w.NewPostgresCluster("orders", 2)
	c.Spec.Storage.StorageClass = class.Name
	c.Spec.Storage.AutoGrow = &v1alpha1.AutoGrowSpec{MaxSize: resource.MustParse(maxSize)}
	w.create(c)
	return c
}

// awaitSize waits until all claims ask for a size.
func (w *world) awaitSize(want string, members int) {
	w.t.Helper()
	apitest.Eventually(w.t, "volumes of "+want, func(ctx context.Context) (bool, string) {
		var sizes []string
		for n := range members {
			claim := &corev1.PersistentVolumeClaim{}
			if err := w.person.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: fmt.Sprintf("data-orders-%d", n)}, claim); err != nil {
				return false, err.Error()
			}
			size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
			sizes = append(sizes, size.String())
		}
		all := strings.Join(sizes, " ")
		return all == strings.TrimSpace(strings.Repeat(want+" ", members)), all
	})
}

// growths are the events that tell of one, by their text.
func (w *world) growths() []string {
	w.t.Helper()
	var list eventsv1.EventList
	if err := w.person.List(w.t.Context(), &list, client.InNamespace(w.Namespace)); err != nil {
		w.t.Fatal(err)
	}
	var reported []string
	for _, event := range list.Items {
		if event.Reason == v1alpha1.ReasonVolumeGrows {
			reported = append(reported, event.Note)
		}
	}
	return reported
}

// Volumes grow as they fill, up to their maximum, and what was declared and
// rolled out stays so all the time.
func TestAutoGrow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	c := w.growing("1300Mi")
	o := w.operate(0)
	w.awaitReady(c)
	w.awaitSteady(o)
	w.get(c)
	declared := c.Generation
	versions := w.watch(func(seen v1alpha1.Cluster) {
		if !ready(seen) || seen.GetGeneration() != declared {
			t.Errorf("a growth by itself shows as a change: %s", describeDrifts(seen))
		}
	})

	w.simulation.use("orders-1", 800*mebibyte)
	w.awaitSteady(o)
	w.awaitSize("1Gi", 2)
	w.simulation.use("orders-1", 820*mebibyte)
	w.awaitSize("1229Mi", 2)
	w.awaitSteady(o)

	// The claims remember: another operator keeps what the spec does not say.
	o.stop()
	o = w.operate(0)
	w.awaitSteady(o)
	w.awaitSize("1229Mi", 2)

	w.simulation.use("orders-0", 1100*mebibyte)
	w.awaitSize("1300Mi", 2)
	await(w, c, "at the maximum", func(c *v1alpha1.PostgresCluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionDegraded) == v1alpha1.ReasonStorageAtMaximum && ready(c)
	})
	versions.atLeast(2)
	apitest.Eventually(t, "an event for every growth", func(context.Context) (bool, string) {
		reported := w.growths()
		return len(reported) == 4, strings.Join(reported, "\n")
	})

	// A member that joins gets what the others have.
	w.scale(c, 3)
	w.awaitReady(c)
	w.awaitSize("1300Mi", 3)

	// Without autoGrow the spec is wrong, and says how to fix it.
	edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.Storage.AutoGrow = nil })
	await(w, c, "Stalled", func(c *v1alpha1.PostgresCluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionStalled) == v1alpha1.ReasonStorageShrink &&
			strings.Contains(conditions.GetMessage(c, v1alpha1.ConditionStalled), "1300Mi")
	})
	edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.Storage.Size = resource.MustParse("1300Mi") })
	w.awaitReady(c)
}

// A claim of a living member that a client annotates as a former member's grows
// all the same, and what the client added is drift.
func TestAutoGrowPastAnAnnotationOfFormerMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	c := w.growing("2Gi")
	edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionDelete })
	o := w.operate(0)
	w.awaitReady(c)
	w.awaitSteady(o)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "data-orders-1"}}
	w.get(claim)
	before := claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, v1alpha1.AnnotationScaledAway, string(v1alpha1.DeletionRetain))
	if err := w.person.Patch(t.Context(), claim, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.simulation.use("orders-1", 820*mebibyte)
	w.awaitSize("1229Mi", 2)
	w.awaitEvent(v1alpha1.ReasonDriftReverted, "PersistentVolumeClaim/data-orders-1", fmt.Sprintf(".metadata.annotations[%q]", v1alpha1.AnnotationScaledAway), "kubectl-edit")
	w.awaitSteady(o)
	w.get(claim)
	if value, there := claim.Annotations[v1alpha1.AnnotationScaledAway]; there {
		t.Errorf("it still says %q", value)
	}
	if len(claim.OwnerReferences) != 1 || claim.OwnerReferences[0].UID != c.UID {
		t.Errorf("its owners are %v", claim.OwnerReferences)
	}
}

// sizes that the claims ask for, in mebibytes.
func (w *world) sizes(members int) []int64 {
	w.t.Helper()
	var sizes []int64
	for n := range members {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: fmt.Sprintf("data-orders-%d", n)}}
		w.get(claim)
		sizes = append(sizes, claim.Spec.Resources.Requests.Storage().Value()/mebibyte)
	}
	return sizes
}

// An operator that dies between two volumes leaves the other one to the next,
// which knows of the growth by the claim that was written alone.
func TestCrashWhileGrowing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	c := w.growing("100Gi")
	settled := w.operate(0)
	w.awaitReady(c)
	w.awaitSteady(settled)
	settled.stop()
	between := false
	for n := 1; !between && n < mostWrites; n++ {
		before := w.sizes(2)
		first := w.operate(n)
		w.simulation.use("orders-1", before[1]*mebibyte*9/10)
		<-first.crashed
		first.stop()
		after := w.sizes(2)
		between = after[0] > before[0] && after[1] == before[1]
		w.simulation.use("orders-1", 0)
		second := w.operate(0)
		w.awaitSize(resource.NewQuantity(after[0]*mebibyte, resource.BinarySI).String(), 2)
		w.awaitReady(c)
		second.stop()
	}
	if !between {
		t.Error("no operator died between two volumes")
	}
}
