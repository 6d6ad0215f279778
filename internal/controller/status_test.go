package controller

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
)

// A status is written when others have written anything else in the meantime,
// and never over what they say there, or over that of another cluster of the
// name; an order is taken up by one pass. What is not written is tried again, and
// no drift is lost with it.
func TestWriteStatusMeetsAnother(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cluster := func(uid types.UID) *v1alpha1.PostgresCluster {
		return &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: uid, ResourceVersion: "7"}}
	}
	saying := func(st v1alpha1.PostgresClusterStatus) *v1alpha1.PostgresCluster {
		c := cluster("a")
		c.Status = st
		return c
	}
	var ordered, restored v1alpha1.PostgresClusterStatus
	ordered.Orders = []v1alpha1.OrderStatus{{Type: "recover-quorum", Token: "go"}}
	restored.Restore = &v1alpha1.RestoreStatus{CompletionTime: &metav1.Time{Time: time.Unix(1, 0)}}
	type postgresPass = pass[*v1alpha1.PostgresCluster]
	plain := func(*postgresPass) {}
	begins := func(p *postgresPass) {
		p.c.Spec.Restore, p.restored.status = &v1alpha1.ClusterRestore{Backup: "monday"}, &v1alpha1.RestoreStatus{}
	}
	for _, tc := range []struct {
		name   string
		live   []client.Object
		change func(*postgresPass)
		want   []string
	}{
		{"others have written", []client.Object{cluster("a")}, plain, []string{"4", "7"}},
		{"another operator took up an order", []client.Object{saying(ordered)}, plain, []string{"4"}},
		{"it was made anew", []client.Object{cluster("b")}, plain, []string{"4"}},
		{"it is gone", nil, plain, []string{"4"}},
		{"it puts a restore on record, as it was read", []client.Object{cluster("a")}, func(p *postgresPass) { begins(p); p.restored.latch = true }, []string{"3"}},
		{"a restore is declared", []client.Object{cluster("a")}, begins, []string{"4"}},
		{"a restore is on record", []client.Object{cluster("a")}, func(p *postgresPass) {
			begins(p)
			p.c.Status.Restore, p.c.Spec.Restore = p.restored.status, nil
		}, []string{"4"}},
		{"a restore is done", []client.Object{saying(restored)}, func(p *postgresPass) {
			begins(p)
			p.c.Status, p.restored.status = restored, restored.Restore
		}, []string{"4", "7"}},
	} {
		var tried []string
		patch := func(_ context.Context, _ client.Client, _ string, obj client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
			data, err := p.Data(obj)
			if err != nil {
				return err
			}
			var sent v1alpha1.PostgresCluster
			if err := json.Unmarshal(data, &sent); err != nil {
				return err
			}
			tried = append(tried, sent.ResourceVersion)
			if sent.ResourceVersion == "7" {
				return nil
			}
			return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("postgresclusters").GroupResource(), "orders", nil)
		}
		live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(tc.live...).Build()
		r := &Reconciler[*v1alpha1.PostgresCluster, struct{}]{
			Client: interceptor.NewClient(live, interceptor.Funcs{SubResourcePatch: patch}), Live: live,
			New: func() *v1alpha1.PostgresCluster { return &v1alpha1.PostgresCluster{} },
		}
		p := &postgresPass{c: cluster("a")}
		r.memory.wrote(p.c, "4")
		p.c.ResourceVersion = "3"
		tc.change(p)
		p.sync.Drifts = []apply.Drift{{Time: metav1.NewTime(time.Unix(1, 0))}}
		if err := r.writeStatus(t.Context(), p); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if !slices.Equal(tried, tc.want) {
			t.Errorf("%s: tried at the versions %v, want %v", tc.name, tried, tc.want)
		}
		written := slices.Contains(tried, "7")
		if again := len(tc.live) > 0 && tc.live[0].GetUID() == "a" && !written; again != (p.overtaken() > 0) {
			t.Errorf("%s: looks again after %s", tc.name, p.overtaken())
		}
		next := &postgresPass{c: cluster("a")}
		if err := r.writeStatus(t.Context(), next); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if told := next.c.Status.Drift != nil; told == written {
			t.Errorf("%s: the next status tells of the drift: %v", tc.name, told)
		}
	}
}
