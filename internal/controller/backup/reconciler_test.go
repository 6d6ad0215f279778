package backup

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
	"github.com/holdfast-db/holdfast/internal/controller/requeue"
)

// A backup whose writes conflict is tried again at once while the cache may be behind. Where
// all of them do, it is an error, whose retries back off: passes of backups come one after the
// other, and one backup must not take them all.
func TestConflictsInARowAreAnError(t *testing.T) {
	b := saying("orders-1", 0, false, "", "")
	b.Spec.ClusterRef.Kind, b.Spec.ClusterRef.Name = "EtcdCluster", "orders"
	r := reconcilerOf(t, 0, b)
	r.Applier = &forgetting{}
	r.Kinds, r.Live = map[string]Copies{"EtcdCluster": copiesOf{backupstest.Scheduled()}}, r.Client
	conflict := true
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if conflict {
				return apierrors.NewConflict(schema.GroupResource{Resource: "backups"}, obj.GetName(), nil)
			}
			return c.SubResource(subresource).Patch(ctx, obj, patch, opts...)
		},
	})
	pass := func() (reconcile.Result, error) {
		return r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&b)})
	}
	for i := range mostBehind {
		if result, err := pass(); err != nil || result.RequeueAfter != requeue.AfterStep {
			t.Fatalf("pass %d: %+v, %v", i, result, err)
		}
	}
	for range 2 {
		if _, err := pass(); !apierrors.IsConflict(err) {
			t.Errorf("conflicts in a row end in %v", err)
		}
	}
	conflict = false
	if _, err := pass(); err != nil || len(r.behind) > 0 {
		t.Errorf("after a pass without a conflict: %v, %v", r.behind, err)
	}
}

// What is remembered of a backup's conflicts goes with it.
func TestConflictsAreForgotten(t *testing.T) {
	r := reconcilerOf(t, 0)
	r.Applier = &forgetting{}
	name := types.NamespacedName{Namespace: "shop", Name: "orders-1"}
	if !r.waitsForCache(name, apierrors.NewNotFound(schema.GroupResource{Resource: "backups"}, name.Name)) || len(r.behind) != 1 {
		t.Fatalf("remembered is %v", r.behind)
	}
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: name}); err != nil || len(r.behind) > 0 {
		t.Errorf("remembered of one that has gone is %v, %v", r.behind, err)
	}
}
