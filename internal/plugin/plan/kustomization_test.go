package plan

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/forecast"
)

// newPlanner reads what it is given.
func newPlanner(t *testing.T, objects ...client.Object) *Planner {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	scheme.AddKnownTypeWithName(kustomizationGVK, &unstructured.Unstructured{})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	return &Planner{Client: c, ReadOnly: true, Now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

func newKustomization(prune bool) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"prune": prune},
		"status": map[string]any{"inventory": map[string]any{"entries": []any{
			map[string]any{"id": "shop_orders_holdfast.dev_PostgresCluster", "v": "v1alpha1"},
			map[string]any{"id": "shop_billing_holdfast.dev_PostgresCluster", "v": "v1alpha1"},
			map[string]any{"id": "shop_kept_holdfast.dev_PostgresCluster", "v": "v1alpha1"},
			map[string]any{"id": "shop_web_apps_Deployment", "v": "v1"},
		}}},
	}}
	u.SetGroupVersionKind(kustomizationGVK)
	u.SetNamespace("flux-system")
	u.SetName("apps")
	return u
}

// newRunning is a cluster that runs, with its volume.
func newRunning(name string, policy v1alpha1.DeletionPolicy) []client.Object {
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-of-cluster", Generation: 1}}
	c.Spec.Version, c.Spec.DeletionPolicy = "17", policy
	c.Status.SystemIdentifier, c.Status.Version, c.Status.Primary, c.Status.ObservedGeneration = "73", "17.4", name+"-0", 1
	labels := map[string]string{v1alpha1.LabelCluster: name, v1alpha1.LabelKind: "postgrescluster", v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels, UID: "uid-of-set"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name + "-0", Labels: labels, UID: "uid-of-pod"}}
	member := map[string]string{v1alpha1.LabelMember: "0"}
	for key, value := range labels {
		member[key] = value
	}
	volume := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-" + name + "-0", Labels: member, UID: "uid-of-volume"}}
	if policy == v1alpha1.DeletionDelete {
		volume.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(c, v1alpha1.GroupVersion.WithKind("PostgresCluster"))}
	}
	return []client.Object{c, set, pod, volume}
}

// Clusters of the inventory that the input lacks are deletions, and what becomes of their
// data follows from the volumes' owners.
func TestMissingClustersAreDeletions(t *testing.T) {
	kept := newRunning("kept", v1alpha1.DeletionRetain)
	kept[0].SetAnnotations(map[string]string{"kustomize.toolkit.fluxcd.io/prune": "disabled"})
	for policy, want := range map[v1alpha1.DeletionPolicy]struct {
		code int
		kind forecast.StepKind
	}{
		v1alpha1.DeletionRetain: {ExitChanges, forecast.VolumeKept},
		v1alpha1.DeletionDelete: {ExitAtRisk, forecast.VolumeDeleted},
	} {
		all := append(newRunning("billing", policy), newKustomization(true), kept[0])
		p := newPlanner(t, all...)
		in := Input{}
		in.Objects = append(in.Objects, named("PostgresCluster", "shop", "orders"))
		k, err := p.ReadKustomization(t.Context(), client.ObjectKey{Namespace: "flux-system", Name: "apps"}, &in)
		if err != nil {
			t.Fatal(err)
		}
		if len(k.Missing) != 1 || k.Missing[0].GetName() != "billing" || len(k.Notes) != 1 || !strings.Contains(k.Notes[0], "shop/kept") {
			t.Fatalf("missing %v, notes %v", k.Missing, k.Notes)
		}
		r, err := p.Plan(t.Context(), Input{}, k.Missing)
		if err != nil {
			t.Fatal(err)
		}
		steps := r.Clusters[0].Steps
		if r.ExitCode != want.code || len(steps) != 2 || steps[1].Kind != want.kind {
			t.Errorf("%s: exit code %d, %+v", policy, r.ExitCode, steps)
		}
	}
}

func TestNothingIsPruned(t *testing.T) {
	p := newPlanner(t, append(newRunning("billing", v1alpha1.DeletionRetain), newKustomization(false))...)
	k, err := p.ReadKustomization(t.Context(), client.ObjectKey{Namespace: "flux-system", Name: "apps"}, &Input{})
	if err != nil || len(k.Missing) != 0 || len(k.Notes) != 3 {
		t.Errorf("missing %v, notes %v: %v", k.Missing, k.Notes, err)
	}
}

// A read-only plan of a live cluster.
func TestReadOnlyPlan(t *testing.T) {
	p := newPlanner(t, newRunning("orders", v1alpha1.DeletionRetain)...)
	u := named("PostgresCluster", "shop", "orders")
	u.Object["spec"] = map[string]any{"version": "17", "podLabels": map[string]any{"team": "shop"}}
	r, err := p.Plan(t.Context(), Input{Objects: []*unstructured.Unstructured{u}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := r.Clusters[0]
	if r.ExitCode != ExitChanges || len(c.Steps) != 1 || c.Steps[0].Kind != forecast.MemberRestarts || !c.Steps[0].WritesPause {
		t.Errorf("exit code %d: %+v", r.ExitCode, c)
	}
}

// A plan of a live cluster goes by the image that its status names.
func TestPlanGoesByTheOperatorsImage(t *testing.T) {
	running := newRunning("orders", v1alpha1.DeletionRetain)
	c := running[0].(*v1alpha1.PostgresCluster)
	c.Status.Agent = &v1alpha1.AgentStatus{Image: "holdfast:v1", Available: "holdfast:v2"}
	w, _, err := newPlanner(t, running...).observe(t.Context(), kinds["PostgresCluster"], c, true)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Observed.Settings.AgentImage; got != "holdfast:v2" {
		t.Errorf("the operator is of %s", got)
	}
}
