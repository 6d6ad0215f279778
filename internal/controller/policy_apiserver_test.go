//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// dataObjects are what the deletion policy is about.
func (w *world) dataObjects(c v1alpha1.Cluster) map[string]client.Object {
	w.t.Helper()
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: c.GetNamespace(), Name: name} }
	objects := map[string]client.Object{
		"data-orders-0":   &corev1.PersistentVolumeClaim{ObjectMeta: named("data-orders-0")},
		"orders-ca":       &corev1.Secret{ObjectMeta: named("orders-ca")},
		"orders-internal": &corev1.Secret{ObjectMeta: named("orders-internal")},
	}
	for _, obj := range objects {
		w.get(obj)
	}
	return objects
}

func (w *world) awaitOwned(c v1alpha1.Cluster, want bool) {
	w.t.Helper()
	apitest.Eventually(w.t, fmt.Sprintf("owned by the cluster: %v", want), func(context.Context) (bool, string) {
		for name, obj := range w.dataObjects(c) {
			owners := obj.GetOwnerReferences()
			if owned := len(owners) == 1 && owners[0].UID == c.GetUID(); owned != want || !want && len(owners) > 0 {
				return false, fmt.Sprintf("%s is owned by %v", name, owners)
			}
		}
		return true, ""
	})
}

// wantDataKept deletes a cluster, or the Database that it belongs to. Its data stays.
func (w *world) wantDataKept(deleted client.Object, c v1alpha1.Cluster) {
	w.t.Helper()
	if err := w.person.Delete(w.t.Context(), deleted); err != nil {
		w.t.Fatal(err)
	}
	apitest.Eventually(w.t, "the StatefulSet goes", func(context.Context) (bool, string) {
		found := w.objects(c)
		return len(found["StatefulSet"]) == 0, fmt.Sprint(found)
	})
	w.awaitOwned(c, false)
}

// The policy that a suspended cluster declares is in force, and nothing else
// that it declares is.
func TestPolicyCountsWhileSuspended(t *testing.T) { eachKind(t, policyCountsWhileSuspended) }

func policyCountsWhileSuspended(t *testing.T, w *world) {
	c, o := w.settled(1)
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Suspend = true })
	w.awaitSteady(o)
	before := w.dataObjects(c)
	for _, policy := range []v1alpha1.DeletionPolicy{v1alpha1.DeletionDelete, v1alpha1.DeletionRetain} {
		edit(w, c, func(c v1alpha1.Cluster) {
			c.Common().DeletionPolicy = policy
			w.kind.storage(c).Size = resource.MustParse("2Gi")
			*w.kind.parameters(c) = map[string]string{w.kind.setting: w.kind.value}
		})
		w.awaitOwned(c, policy == v1alpha1.DeletionDelete)
		w.awaitSteady(o)
	}
	for name, obj := range w.dataObjects(c) {
		if diff := cmp.Diff(before[name].GetAnnotations(), obj.GetAnnotations()) + cmp.Diff(before[name].GetLabels(), obj.GetLabels()); diff != "" {
			t.Errorf("%s was changed otherwise:\n%s", name, diff)
		}
	}
	if received := w.memberConfig(t.Context(), c); len(received.Parameters) > 0 {
		t.Errorf("members of a suspended cluster have %v", received.Parameters)
	}
	if v := w.dataObjects(c)["data-orders-0"].(*corev1.PersistentVolumeClaim); v.Spec.Resources.Requests.Storage().String() != "1Gi" {
		t.Errorf("the volume of a suspended cluster grew to %s", v.Spec.Resources.Requests.Storage())
	}

	// Retain was the last word, so the data outlives the cluster.
	w.wantDataKept(c, c)
}

// A growth that is refused is reported, and keeps nothing else of the volume
// from being written.
func TestRefusedGrowthKeepsThePolicy(t *testing.T) { eachKind(t, refusedGrowthKeepsThePolicy) }

func refusedGrowthKeepsThePolicy(t *testing.T, w *world) {
	c, _ := w.settled(1)
	edit(w, c, func(c v1alpha1.Cluster) {
		c.Common().DeletionPolicy = v1alpha1.DeletionDelete
		w.kind.storage(c).Size = resource.MustParse("2Gi")
	})
	// Without a class that allows it, the API server refuses the growth as it
	// refuses one over a quota.
	await(w, c, "Stalled", func(c v1alpha1.Cluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionStalled) == v1alpha1.ReasonForbidden &&
			strings.Contains(conditions.GetMessage(c, v1alpha1.ConditionStalled), "data-orders-0")
	})
	w.awaitOwned(c, true)
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().DeletionPolicy = v1alpha1.DeletionRetain })
	w.awaitOwned(c, false)
}

// What was kept when its member was scaled away stays, whatever the policy says
// later, and when the cluster is deleted; what is scaled away under Delete goes.
func TestKeptVolumesStay(t *testing.T) { eachKind(t, keptVolumesStay) }

func keptVolumesStay(t *testing.T, w *world) {
	c, o := w.settled(w.kind.several)
	all := volumes(c, w.kind.several)
	w.scale(c, 1)
	w.awaitReady(c)
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().DeletionPolicy = v1alpha1.DeletionDelete })
	w.awaitOwned(c, true)
	w.awaitReady(c)
	w.awaitSteady(o)
	kept := func(names []string) {
		t.Helper()
		if diff := cmp.Diff(all, w.objects(c)["PersistentVolumeClaim"]); diff != "" {
			t.Fatalf("volumes (-want +got):\n%s", diff)
		}
		for _, name := range names {
			v := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
			w.get(v)
			if v.DeletionTimestamp != nil || len(v.OwnerReferences) > 0 || v.Annotations[v1alpha1.AnnotationScaledAway] != string(v1alpha1.DeletionRetain) {
				t.Errorf("volume %s is deleted at %v, owned by %v, and says %v", name, v.DeletionTimestamp, v.OwnerReferences, v.Annotations)
			}
		}
	}
	kept(all[1:])
	w.awaitEvent(v1alpha1.ReasonVolumeKept, "kubectl delete pvc", all[1])

	// As a member again it is the cluster's, and goes when it leaves under Delete.
	w.scale(c, w.kind.several)
	w.awaitReady(c)
	w.scale(c, 1)
	apitest.Eventually(t, "the volumes go", func(context.Context) (bool, string) {
		left := w.objects(c)["PersistentVolumeClaim"]
		return cmp.Equal(left, all[:1]), fmt.Sprint(left)
	})
	w.awaitReady(c)
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().DeletionPolicy = v1alpha1.DeletionRetain })
	w.awaitOwned(c, false)
	w.scale(c, w.kind.several)
	w.awaitReady(c)
	w.scale(c, 1)
	w.awaitReady(c)
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().DeletionPolicy = v1alpha1.DeletionDelete })
	w.awaitOwned(c, true)
	w.awaitSteady(o)
	if err := w.person.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	apitest.Eventually(t, "the members' volume goes, and the kept ones stay", func(context.Context) (bool, string) {
		left := w.objects(c)["PersistentVolumeClaim"]
		return cmp.Equal(left, all[1:]), fmt.Sprint(left)
	})
}

// awaitEvent waits for an event of a reason whose note says all that is given.
func (w *world) awaitEvent(reason string, says ...string) {
	w.t.Helper()
	apitest.Eventually(w.t, "an event "+reason, func(ctx context.Context) (bool, string) {
		var list eventsv1.EventList
		if err := w.person.List(ctx, &list, client.InNamespace(w.Namespace)); err != nil {
			return false, err.Error()
		}
		heard := ""
		for i := range list.Items {
			if list.Items[i].Reason != reason {
				continue
			}
			heard += list.Items[i].Note + "\n"
			if !slices.ContainsFunc(says, func(part string) bool { return !strings.Contains(list.Items[i].Note, part) }) {
				return true, ""
			}
		}
		return false, heard
	})
}
