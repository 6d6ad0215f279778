//go:build apiserver

package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// findingLabels are those by which objects are found.
var findingLabels = []string{v1alpha1.LabelCluster, v1alpha1.LabelKind, v1alpha1.LabelManagedBy}

// labelled are the objects of a cluster of every kind that is found by labels, and
// the volumes of members that are gone, too.
func (w *world) labelled(c v1alpha1.Cluster) []*metav1.PartialObjectMetadata {
	w.t.Helper()
	core := corev1.SchemeGroupVersion
	var all []*metav1.PartialObjectMetadata
	for _, gvk := range []schema.GroupVersionKind{
		appsv1.SchemeGroupVersion.WithKind("StatefulSet"), core.WithKind("Service"), core.WithKind("Secret"), core.WithKind("ConfigMap"),
		core.WithKind("ServiceAccount"), rbacv1.SchemeGroupVersion.WithKind("Role"), rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
		policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
		core.WithKind("PersistentVolumeClaim"), core.WithKind("Pod"),
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk)
		if err := w.person.List(w.t.Context(), list, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelCluster: c.GetName()}); err != nil {
			w.t.Fatal(err)
		}
		if len(list.Items) == 0 {
			w.t.Errorf("there is no %s", gvk.Kind)
		}
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(gvk)
			if gvk.Kind == "Pod" {
				delete(list.Items[i].Labels, v1alpha1.LabelManagedBy) // pods are not found by it
			}
			all = append(all, &list.Items[i])
		}
	}
	return all
}

// unlabel takes labels off an object, as kubectl label does.
func (w *world) unlabel(obj *metav1.PartialObjectMetadata, labels ...string) {
	w.t.Helper()
	none := map[string]any{}
	for _, label := range labels {
		none[label] = nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": none}})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.person.Patch(w.t.Context(), obj, client.RawPatch(types.MergePatchType, body)); err != nil {
		w.t.Fatal(err)
	}
}

// awaitLabelled waits until an object, still the same, has its labels again.
func (w *world) awaitLabelled(before *metav1.PartialObjectMetadata) {
	w.t.Helper()
	name := before.Kind + "/" + before.Name
	apitest.Eventually(w.t, name+" has its labels again", func(ctx context.Context) (bool, string) {
		now := &metav1.PartialObjectMetadata{}
		now.SetGroupVersionKind(before.GroupVersionKind())
		if err := w.person.Get(ctx, client.ObjectKeyFromObject(before), now); err != nil {
			return false, err.Error()
		}
		if now.UID != before.UID {
			w.t.Fatalf("%s is another object", name)
		}
		for _, label := range findingLabels {
			if before.Labels[label] != "" && now.Labels[label] != before.Labels[label] {
				return false, fmt.Sprintf("%s is %q", label, now.Labels[label])
			}
		}
		return true, ""
	})
}

// Every label by which an object of any kind is found is put back when it is
// taken, and reported as drift; no object is made anew, and nothing stalls.
func TestLostLabelsComeBack(t *testing.T) { eachKind(t, lostLabelsComeBack) }

func lostLabelsComeBack(t *testing.T, w *world) {
	c, o := w.settled(w.kind.several)
	w.scale(c, 1)
	w.awaitReady(c)
	w.awaitSteady(o)
	for _, labels := range [][]string{{v1alpha1.LabelCluster}, {v1alpha1.LabelKind}, {v1alpha1.LabelManagedBy}, findingLabels} {
		all := w.labelled(c)
		t.Logf("taking %v", labels)
		for _, obj := range all {
			w.unlabel(obj.DeepCopy(), slices.DeleteFunc(slices.Clone(labels), func(label string) bool { return obj.Labels[label] == "" })...)
		}
		for _, obj := range all {
			w.awaitLabelled(obj)
			if len(labels) == 1 && obj.Labels[labels[0]] != "" {
				w.awaitEvent(v1alpha1.ReasonDriftReverted, obj.Kind+"/"+obj.Name, fmt.Sprintf(".metadata.labels[%q]", labels[0]))
			}
		}
		w.awaitReady(c)
		w.awaitSteady(o)
	}
	w.awaitReady(c)
	if why := conditions.GetMessage(c, v1alpha1.ConditionStalled); why != "" {
		t.Errorf("Stalled: %s", why)
	}
	w.awaitSteady(o)

	// An operator that starts afterwards knows no object by sight.
	o.stop()
	all := w.labelled(c)
	for _, obj := range all {
		w.unlabel(obj.DeepCopy(), v1alpha1.LabelCluster)
	}
	o = w.operate(0)
	for _, obj := range all {
		w.awaitLabelled(obj)
	}
	w.awaitReady(c)
	w.awaitSteady(o)
	var events []string
	for _, obj := range w.labelled(c) {
		if slices.ContainsFunc(all, func(was *metav1.PartialObjectMetadata) bool { return was.UID == obj.UID }) {
			continue
		}
		events = append(events, obj.Kind+"/"+obj.Name)
	}
	if len(events) > 0 {
		t.Errorf("made anew: %s", strings.Join(events, ", "))
	}
}
