//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// Pods of a new cluster have resources in each container, so that a quota on limits takes
// them and they can be Guaranteed. The StatefulSet of an earlier operator stays as it is until
// a change of the spec replaces its pods.
func TestInstallerHasResources(t *testing.T) { eachKind(t, installerHasResources) }

func installerHasResources(t *testing.T, w *world) {
	want := corev1.ResourceRequirements{
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("2Gi")},
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("2Gi")},
	}
	c := w.cluster("orders", 1)
	c.Common().Resources = want
	w.create(c)
	o := w.operate(0)
	w.awaitReady(c)
	w.awaitSteady(o)
	set := w.memberSet(c)
	if diff := cmp.Diff(want, installerResources(w, set)); diff != "" {
		t.Errorf("resources of the installer (-want +got):\n%s", diff)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-0"}}
	w.get(pod)
	if pod.Status.QOSClass != corev1.PodQOSGuaranteed {
		t.Errorf("the pod is %s, want it Guaranteed", pod.Status.QOSClass)
	}

	// As an earlier operator left it.
	o.stop()
	earlier := []byte(`[
		{"op": "remove", "path": "/metadata/annotations/holdfast.dev~1template-version"},
		{"op": "remove", "path": "/spec/template/spec/initContainers/0/resources"}]`)
	if err := w.As(t, v1alpha1.FieldManager).Patch(t.Context(), set, client.RawPatch(types.JSONPatchType, earlier)); err != nil {
		t.Fatal(err)
	}
	apitest.Eventually(t, "the earlier template is observed", func(context.Context) (bool, string) {
		set = w.memberSet(c)
		return set.Status.ObservedGeneration == set.Generation, fmt.Sprint(set.Status)
	})
	pods := w.podUIDs(c)
	o = w.operate(0)
	w.awaitSteady(o)
	w.awaitReady(c)
	if now := w.memberSet(c); now.Generation != set.Generation || now.Annotations[v1alpha1.AnnotationTemplateVersion] != "" {
		t.Errorf("the operator changed the StatefulSet of an earlier one: generation %d, before %d, annotations %v", now.Generation, set.Generation, now.Annotations)
	}
	if diff := cmp.Diff(pods, w.podUIDs(c)); diff != "" {
		t.Errorf("pods were replaced (-before +now):\n%s", diff)
	}

	edit(w, c, func(c v1alpha1.Cluster) { c.Common().PodLabels = map[string]string{"team": "shop"} })
	w.awaitReady(c)
	w.awaitSteady(o)
	if diff := cmp.Diff(want, installerResources(w, w.memberSet(c))); diff != "" {
		t.Errorf("resources of the installer after a roll-out (-want +got):\n%s", diff)
	}
	// What another client removes is put back.
	removed := []byte(`[{"op": "remove", "path": "/spec/template/spec/initContainers/0/resources"}]`)
	if err := w.person.Patch(t.Context(), w.memberSet(c), client.RawPatch(types.JSONPatchType, removed)); err != nil {
		t.Fatal(err)
	}
	apitest.Eventually(t, "the resources are put back", func(context.Context) (bool, string) {
		got := installerResources(w, w.memberSet(c))
		return cmp.Equal(want, got), cmp.Diff(want, got)
	})
}

// memberSet is the StatefulSet of a cluster as the API server has it now.
func (w *world) memberSet(c v1alpha1.Cluster) *appsv1.StatefulSet {
	w.t.Helper()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: c.GetNamespace(), Name: c.GetName()}}
	w.get(set)
	return set
}

func installerResources(w *world, set *appsv1.StatefulSet) corev1.ResourceRequirements {
	w.t.Helper()
	for _, ctr := range set.Spec.Template.Spec.InitContainers {
		if ctr.Name == objects.InstallerName {
			return ctr.Resources
		}
	}
	w.t.Error("there is no installer")
	return corev1.ResourceRequirements{}
}
