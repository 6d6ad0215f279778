//go:build e2e

package e2e

import (
	"context"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// recreatedWithOtherNames: over retained data the connection Secret names what
// the data holds, and says so, until the spec agrees.
func recreatedWithOtherNames(t *testing.T) {
	names := func(database, owner string) func(*v1alpha1.PostgresCluster) {
		return func(obj *v1alpha1.PostgresCluster) {
			obj.Spec.Bootstrap = v1alpha1.PostgresBootstrap{Database: database, Owner: owner}
		}
	}
	c := newCluster(t, 1, names("shop", "shopper"))
	c.waitReady()
	app := newClient(t)
	app.mustPsql(t, c.connectionURI(), "create table kept (id int); insert into kept values (7)")
	uri := c.connectionURI()
	c.deleteCluster("PersistentVolumeClaim/data-orders-0", "Secret/orders-ca", "Secret/orders-internal")

	c.createCluster(1, names("store", "keeper"))
	c.waitStalled(v1alpha1.ReasonBootstrapChanged, "spec.bootstrap", `"shop"`, `"shopper"`)
	c.waitCondition(readyTimeout, v1alpha1.ConditionAvailable, "True", v1alpha1.ReasonAvailable)
	if got := c.connectionURI(); got != uri {
		t.Error("applications would need another connection string")
	}
	if got := app.mustPsql(t, uri, "select id from kept"); got != "7" {
		t.Errorf("the row came back as %q", got)
	}
	c.editCluster(names("", "")) // they are adopted
	c.waitReady()
	if got := c.connectionURI(); got != uri {
		t.Error("applications would need another connection string")
	}
}

// recreatedWithoutVolumes: when every volume was deleted by hand, what the
// first cluster left behind keeps no cluster from starting anew.
func recreatedWithoutVolumes(t *testing.T, k *kind) {
	c := newSubject(t, k, 1)
	identifier := c.waitReady().CommonStatus().SystemIdentifier
	c.deleteCluster(c.retainedNames(1)...)
	var lease coordinationv1.Lease
	c.readObject(&lease, orders+k.lease)
	volume := &corev1.PersistentVolumeClaim{}
	c.readObject(volume, c.volumeName(0))
	must(t, env.client.Delete(t.Context(), volume), "delete the volume")
	eventually(t, goneTimeout, "the volume goes", func(ctx context.Context) error {
		return checkGone(env.client.Get(ctx, client.ObjectKeyFromObject(volume), volume))
	})

	c.createCluster(1)
	if got := c.waitReady().CommonStatus().SystemIdentifier; got == identifier || got == "" {
		t.Errorf("the database system is %q, before %q", got, identifier)
	}
}
