package leadership

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// competitor is a member that competes for the Lease, and what it reports.
func competitor(client *fake.Clientset, pod, uid string) (*Leadership, *statusserver.Store) {
	own := identity.Identity{Namespace: "shop", Cluster: "orders", Pod: pod, PodUID: uid, Address: "10.0.0.7"}
	owners := func() []metav1.OwnerReference { return nil }
	store := statusserver.NewStore(agentapi.Status{})
	return NewLeadership(Options{
		Log: slog.New(slog.DiscardHandler), Identity: own, Store: store,
		Lease: leaseclient.NewLease(own, nil, owners, client, slog.New(slog.DiscardHandler)),
	}), store
}

// A member reports the Lease as it read or wrote it last. While it cannot be read,
// its holder reports what it wrote, and another member reports nothing.
func TestLeaseIsReported(t *testing.T) {
	client := fake.NewClientset()
	unavailable := false
	client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return unavailable, nil, errors.New("unavailable")
	})
	leader, leaderStore := competitor(client, "orders-2", "uid-2")
	other, otherStore := competitor(client, "orders-0", "uid-0")
	ctx := context.Background()
	check := func(when string, store *statusserver.Store, want *postgresapi.LeaseState) {
		t.Helper()
		status := store.Get()
		if diff := cmp.Diff(want, agentapi.ReadEngineStatus[postgresapi.ReplicationStatus](&status).Lease); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	observed := leader.ReadLease(ctx)
	check("there is none", leaderStore, nil)
	if err := leader.ClaimLease(ctx, observed, "cluster-uid", false); err != nil {
		t.Fatal(err)
	}
	held := &postgresapi.LeaseState{HolderUID: "uid-2", HolderPod: "orders-2", Term: 1}
	check("claimed", leaderStore, held)
	other.ReadLease(ctx)
	check("read by another member", otherStore, held)

	unavailable = true
	leader.ReadLease(ctx)
	other.ReadLease(ctx)
	check("its holder cannot read it", leaderStore, held)
	check("another member cannot read it", otherStore, nil)

	unavailable = false
	if err := leader.o.Lease.ReleaseLease(ctx, 1, "0/60"); err != nil {
		t.Fatal(err)
	}
	leader.o.Store.Update(reportRelease)
	released := &postgresapi.LeaseState{HolderPod: "orders-2", Term: 1}
	check("released", leaderStore, released)
	observed = other.ReadLease(ctx)
	check("released, as another member reads it", otherStore, released)
	if err := other.ClaimLease(ctx, observed, "cluster-uid", false); err != nil {
		t.Fatal(err)
	}
	check("the next term", otherStore, &postgresapi.LeaseState{HolderUID: "uid-0", HolderPod: "orders-0", Term: 2})
}
