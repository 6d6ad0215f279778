//go:build apiserver

package controller_test

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/controller"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/secrets"
)

// orderTaker is an engine that chooses one target for an order, and keeps to
// what is recorded.
type orderTaker struct {
	engine.Engine[*v1alpha1.EtcdCluster, struct{}]
	target string
}

func (orderTaker) Observe(context.Context, *v1alpha1.EtcdCluster) (struct{}, error) {
	return struct{}{}, nil
}

func (e orderTaker) Plan(c *v1alpha1.EtcdCluster, _ struct{}, _ time.Time) engine.Plan {
	orders := c.Status.Requests
	if len(orders) == 0 {
		orders = []v1alpha1.RequestStatus{{Type: "recover-quorum", ID: "go", Target: e.target}}
	}
	known := condition.Fact{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonQuorumLost}
	return engine.Plan{Facts: []condition.Fact{known}, Report: engine.Report{Requests: orders}}
}

func (orderTaker) Act(context.Context, *v1alpha1.EtcdCluster, engine.Step) error { return nil }

type nothingToSync struct{ controller.Syncer }

func (nothingToSync) Sync(context.Context, apply.Request) (apply.Result, error) {
	return apply.Result{}, nil
}

// behind is a client whose cache stands still.
type behind struct {
	client.Client
	view *v1alpha1.EtcdCluster
}

func (b behind) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if c, ok := obj.(*v1alpha1.EtcdCluster); ok {
		b.view.DeepCopyInto(c)
		return nil
	}
	return b.Client.Get(ctx, key, obj, opts...)
}

// Two operators that both see no recorded request choose one target: who comes
// second writes nothing at all.
func TestARequestIsAcceptedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	c := w.cluster("orders", 3).(*v1alpha1.EtcdCluster)
	w.create(c)
	for _, target := range []string{"orders-0", "orders-1"} {
		r := &controller.Reconciler[*v1alpha1.EtcdCluster, struct{}]{
			Client: behind{w.As(t, v1alpha1.FieldManager), c.DeepCopy()}, Engine: orderTaker{target: target}, Applier: nothingToSync{},
			Keys: secrets.New(secrets.Metadata{}, nil), Live: w.As(t, v1alpha1.FieldManager), Recorder: events.NewFakeRecorder(100), Clock: clock.RealClock{},
			New: func() *v1alpha1.EtcdCluster { return &v1alpha1.EtcdCluster{} },
		}
		next, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		if err != nil {
			t.Fatal(err)
		}
		if next.RequeueAfter == 0 || next.RequeueAfter > time.Second {
			t.Errorf("after %s was chosen it is looked at again after %s: nothing carries it out", target, next.RequeueAfter)
		}
		now := c.DeepCopy()
		w.get(now)
		if got := now.Status.Requests; len(got) != 1 || got[0].Target != "orders-0" {
			t.Fatalf("after %s was chosen: %+v", target, got)
		}
	}
}
