//go:build apiserver

package apply_test

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
)

// beforeApply is an API server to which another client writes right before the first
// apply arrives.
type beforeApply struct {
	client.Client
	write func()
}

func (b *beforeApply) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if b.write != nil {
		b.write()
		b.write = nil
	}
	return b.Client.Patch(ctx, obj, patch, opts...)
}

// declared is a cluster that is the owner's by its controller reference.
func (w *world) declared(parameters map[string]any) runtime.ApplyConfiguration {
	c := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"version": "17", "storage": map[string]any{"size": "1Gi"}, "parameters": parameters,
	}}}
	c.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PostgresCluster"))
	c.SetNamespace(w.Namespace)
	c.SetName("declared")
	c.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(w.owner, v1alpha1.GroupVersion.WithKind("PostgresCluster"))})
	return client.ApplyConfigurationFromUnstructured(c)
}

// interposeWrite has another client write right before the first apply.
func (w *world) interposeWrite(write func()) {
	w.t.Helper()
	applier, err := apply.New(w.Cache, &beforeApply{Client: w.Client, write: write}, apply.Options{Clock: w.clock})
	if err != nil {
		w.t.Fatal(err)
	}
	w.applier = applier
}

// What another client made in the moment between the look and the apply is not taken
// over: it has no reference to the owner.
func TestWhatAnotherMadeInThatMomentIsNotTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	theirs := w.NewPostgresCluster("declared", 3)
	w.interposeWrite(func() {
		if err := w.As(t, intruder).Create(t.Context(), theirs); err != nil {
			t.Fatal(err)
		}
	})
	w.req.ByReference, w.req.Objects = true, []runtime.ApplyConfiguration{w.declared(map[string]any{"work_mem": "8MB"})}
	_, err := w.syncOnce()
	var conflict *apply.ConflictError
	if !errors.As(err, &conflict) || conflict.Owner != "field manager "+intruder {
		t.Fatalf("error is %v, want a ConflictError that names %s", err, intruder)
	}
	live := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "declared"}}
	w.getObject(live)
	if live.UID != theirs.UID || live.Generation != 1 || len(live.OwnerReferences) > 0 || *live.Spec.Replicas != 3 {
		t.Errorf("it was taken over: %+v", live)
	}
}

// What is made so is owned as by any apply: a field that is declared no longer goes, and
// what went in that moment is made again.
func TestWhatIsMadeByReferenceIsOwned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.ByReference, w.req.Objects = true, []runtime.ApplyConfiguration{w.declared(map[string]any{"work_mem": "8MB"})}
	if total := w.settleSyncs(); len(total.Drifts) > 0 || len(total.Changed) != 1 || !total.Changed[0].Created {
		t.Fatalf("drifts %v, changed %v", total.Drifts, total.Changed)
	}
	live := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "declared"}}
	w.getObject(live)
	for _, m := range live.ManagedFields {
		if m.Manager != v1alpha1.FieldManager || m.Operation != metav1.ManagedFieldsOperationApply {
			t.Errorf("fields are managed by %s (%s)", m.Manager, m.Operation)
		}
	}
	w.req.Objects = []runtime.ApplyConfiguration{w.declared(map[string]any{"max_connections": "50"})}
	w.settleSyncs()
	w.getObject(live)
	if live.Spec.Parameters["work_mem"] != "" || live.Spec.Parameters["max_connections"] != "50" {
		t.Errorf("parameters %v", live.Spec.Parameters)
	}
	before := live.UID
	w.interposeWrite(func() {
		if err := w.As(t, intruder).Delete(t.Context(), live); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	})
	w.req.Objects = []runtime.ApplyConfiguration{w.declared(map[string]any{"max_connections": "60"})}
	w.settleSyncs()
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(live), live); apierrors.IsNotFound(err) || live.UID == before {
		t.Errorf("it was not made again: %v", err)
	}
}
