package controller

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// Of every kind that clusters consist of, the cache holds those of clusters,
// and pods without what nobody reads.
func TestCacheOptions(t *testing.T) {
	opts := CacheOptions([]string{"shop"})
	if _, limited := opts.DefaultNamespaces["shop"]; !limited || len(opts.DefaultNamespaces) != 1 {
		t.Errorf("namespaces %v", opts.DefaultNamespaces)
	}
	if len(opts.ByObject) != len(owned()) {
		t.Errorf("%d kinds, want %d", len(opts.ByObject), len(owned()))
	}
	for obj, by := range opts.ByObject {
		if by.Label == nil || by.Label.Matches(labels.Set{}) || !by.Label.Matches(labels.Set{v1alpha1.LabelCluster: "orders"}) {
			t.Errorf("%T is held of %v", obj, by.Label)
		}
		pod := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data"}}}}
		if _, err := by.Transform(pod); err != nil || pod.Spec.Volumes != nil {
			t.Errorf("%T goes into the cache whole: %v, %v", obj, pod.Spec.Volumes, err)
		}
	}
}

// forgetful remembers who was forgotten.
type forgetful struct {
	engine.Engine[*v1alpha1.PostgresCluster, struct{}]
	clusters []types.NamespacedName
	owners   []types.UID
}

func (f *forgetful) Forget(name types.NamespacedName) { f.clusters = append(f.clusters, name) }

type syncer struct{ *forgetful }

func (s syncer) Forget(uid types.UID) { s.owners = append(s.owners, uid) }

func (s syncer) Sync(context.Context, apply.Request) (apply.Result, error) {
	return apply.Result{}, nil
}

// With a cluster goes all that was remembered of it.
func TestForgetsAClusterThatIsGone(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	f := &forgetful{}
	r := &Reconciler[*v1alpha1.PostgresCluster, struct{}]{
		Client: fake.NewClientBuilder().WithScheme(scheme).Build(), Engine: f, Applier: syncer{f}, Forgetters: []Forgetter{f},
		New: func() *v1alpha1.PostgresCluster { return &v1alpha1.PostgresCluster{} },
	}
	name := types.NamespacedName{Namespace: "shop", Name: "orders"}
	r.memory.stuckFor(&v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "uid"}}, "", time.Now())
	for range 2 {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: name}); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.clusters) == 0 || f.clusters[0] != name || len(f.owners) != 1 || f.owners[0] != "uid" {
		t.Errorf("the engine forgot %v, the applier %v", f.clusters, f.owners)
	}
}
