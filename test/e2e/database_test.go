//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// databaseSeedManifest is the whole manifest that a first user of a Database writes.
const databaseSeedManifest = `
apiVersion: holdfast.dev/v1alpha1
kind: Database
metadata: {name: orders}
spec: {engine: postgres, version: "17", replicas: 3, storage: 1Gi, backup: {enabled: true, schedule: "0 */6 * * *"}}
`

// databasePoll is how often a Database and its cluster are compared.
const databasePoll = 50 * time.Millisecond

// databaseReady says what keeps a Database from being ready as it is declared.
func databaseReady(d *v1alpha1.Database) error {
	ready := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case d.Status.ObservedGeneration != d.Generation:
		return fmt.Errorf("generation %d is not observed, but %d", d.Generation, d.Status.ObservedGeneration)
	case ready == nil:
		return errors.New("there is no condition Ready")
	case ready.Status != metav1.ConditionTrue:
		return fmt.Errorf("%s: %s", ready.Reason, ready.Message)
	}
	return nil
}

func getDatabase(ctx context.Context, namespace string) (*v1alpha1.Database, error) {
	d := &v1alpha1.Database{}
	err := env.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: orders}, d)
	return d, err
}

// awaitDatabase waits until a Database is as a test wants it.
func awaitDatabase(t *testing.T, namespace, what string, wants func(*v1alpha1.Database) error) *v1alpha1.Database {
	t.Helper()
	var d *v1alpha1.Database
	eventually(t, readyTimeout, what, func(ctx context.Context) (err error) {
		if d, err = getDatabase(ctx, namespace); err != nil {
			return err
		}
		return wants(d)
	})
	return d
}

// databaseSeed: the first user's manifest becomes a database that an application uses.
// It has its first backup, is scaled, put right, and deleted without its data.
func databaseSeed(t *testing.T) {
	needKind(t, postgres)
	namespace := newNamespace(t, "")
	c := followCluster(t, namespace, orders)
	manifest := objectsOf(t, []byte(databaseSeedManifest))[0]
	manifest.SetNamespace(namespace)
	must(t, createStrictly(t, manifest), "create the Database")
	d := awaitDatabase(t, namespace, "the Database is ready", databaseReady)
	must(t, rolledOut(c.getCluster()), "the cluster of a Database that is ready")
	if s := d.Status; s.Ready != "3/3" || s.Primary == "" || s.CredentialsSecret != orders+"-app" || s.Phase != "Ready" || s.Version == "" {
		t.Errorf("status says %+v", s)
	}
	checkEndpoints(t, c)
	awaitDatabase(t, namespace, "the first backup is reported", func(d *v1alpha1.Database) error {
		if d.Status.LastBackup == nil || !meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.ConditionBackedUp) {
			return fmt.Errorf("last backup %v", d.Status.LastBackup)
		}
		return nil
	})
	databaseScales(t, c)
	databaseIsPutRight(t, c)
	must(t, env.client.Delete(t.Context(), d), "delete the Database")
	eventually(t, goneTimeout, "the Database is gone, and its cluster", func(ctx context.Context) error {
		if _, err := getDatabase(ctx, namespace); err == nil {
			return errors.New("the Database is there")
		} else if !apierrors.IsNotFound(err) {
			return err
		}
		if err := checkGone(env.client.Get(ctx, c.nameOf(""), &v1alpha1.PostgresCluster{})); err != nil {
			return err
		}
		left, err := c.listRemaining(ctx)
		if err == nil && !slices.Contains(left, "PersistentVolumeClaim/data-orders-0") {
			err = fmt.Errorf("a volume is gone: %v", left)
		}
		return err
	})
}

// databaseScales: the scale subresource is that of the Database.
func databaseScales(t *testing.T, c *cluster) {
	t.Helper()
	d, err := getDatabase(t.Context(), c.namespace)
	must(t, err, "read the Database")
	must(t, env.client.SubResource("scale").Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":1}}`)), client.FieldOwner("kubectl")), "scale")
	awaitDatabase(t, c.namespace, "one member", func(d *v1alpha1.Database) error {
		if d.Status.Replicas != 1 || d.Status.Ready != "1/1" {
			return fmt.Errorf("%d members, %s ready", d.Status.Replicas, d.Status.Ready)
		}
		return databaseReady(d)
	})
}

// databaseIsPutRight: a person changes the cluster, and it is put back with their
// name.
func databaseIsPutRight(t *testing.T, c *cluster) {
	t.Helper()
	before := c.getCluster().Spec
	must(t, mergePatch(`{"spec":{"replicas":2,"parameters":{"work_mem":"99MB"}}}`)(t.Context(), c.getCluster(), "kubectl-edit"), "edit the cluster")
	awaitDatabase(t, c.namespace, "the edit is reported and put back", func(d *v1alpha1.Database) error {
		if d.Status.Drift == nil || len(d.Status.Drift.Last) < 2 || d.Status.Drift.Last[0].Manager != "kubectl-edit" || d.Status.Drift.Last[0].Action != "Reverted" {
			return fmt.Errorf("drift %+v", d.Status.Drift)
		}
		return databaseReady(d)
	})
	if now := c.getCluster().Spec; ptr.Deref(now.Replicas, 0) != ptr.Deref(before.Replicas, 0) || !maps.Equal(now.Parameters, before.Parameters) {
		t.Errorf("the cluster declares %d members and %v", ptr.Deref(now.Replicas, 0), now.Parameters)
	}
}

// fluxDatabaseManifest is what a repository holds, with lines of its spec.
func fluxDatabaseManifest(lines ...string) string {
	return `apiVersion: holdfast.dev/v1alpha1
kind: Database
metadata:
  name: ` + orders + `
spec:
  engine: postgres
  version: "17"
  storage: 1Gi
  ` + unsaved + `
` + indentLines(lines)
}

// fluxDatabase: a Kustomization that waits for a Database is ready when the members
// of its cluster are as the commit says, and fails with what the cluster says.
func fluxDatabase(t *testing.T) {
	needFlux(t)
	r := newRepository(t, newNamespace(t, ""), "shop")
	c := followCluster(t, r.namespace, orders)
	r.createSource()
	k := newKustomization(r, "database", "./", nil)
	ends := watchDatabase(t, c)
	commit := func(message string, members int, lines ...string) {
		t.Helper()
		k.waitReady(r.commitFiles(message, map[string]string{"kustomization.yaml": kustomizationFile("orders.yaml"), "orders.yaml": fluxDatabaseManifest(lines...)}))
		d, err := getDatabase(t.Context(), r.namespace)
		must(t, err, "read the Database")
		must(t, databaseReady(d), "the Database, when Flux says that it is ready: "+message)
		obj := c.getCluster()
		must(t, rolledOut(obj), "its cluster, when Flux says that it is ready: "+message)
		if got := len(c.listPods()); got != members || ptr.Deref(obj.Spec.Replicas, 0) != int32(members) {
			t.Errorf("%s: %d members run, %d are declared", message, got, ptr.Deref(obj.Spec.Replicas, 0))
		}
	}
	commit("a database", 2, "replicas: 2")
	c.runSQL(leading, "create table kept (id int); insert into kept values (7)")
	commit("a setting that needs a restart", 2, "replicas: 2", "parameters: {max_connections: 77}")
	c.awaitSetting(2, "max_connections", "77")
	commit("a setting and a member", 3, "replicas: 3", "parameters: {max_connections: 77, work_mem: 11MB}")
	c.awaitSetting(3, "work_mem", "11MB")
	revision := r.commitFiles("a version that there is not", map[string]string{
		"orders.yaml": strings.Replace(fluxDatabaseManifest("replicas: 3", "parameters: {max_connections: 77, work_mem: 11MB}"), `"17"`, `"17.99"`, 1),
	})
	k.waitFailed(revision, "HealthCheckFailed", "stalled resources", "Database/"+r.namespace+"/"+orders, "Failed")
	c.waitStalled(v1alpha1.ReasonImageUnavailable, "spec.version", "17.99")
	k.waitReady(r.revertCommit())
	if got := c.runSQL(leading, "select id from kept"); got != "7" {
		t.Errorf("the database has %q, want 7", got)
	}
	if n := ends(); n < 100 {
		t.Errorf("compared %d times", n)
	}
	k.waitReady(r.commitFiles("no database", map[string]string{
		"kustomization.yaml": kustomizationFile("nothing.yaml"), "orders.yaml": "",
		"nothing.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nothing}\n",
	}))
	d := &delivery{repository: r, k: k, c: c}
	d.awaitPruned(c, "PersistentVolumeClaim/data-orders-0", "PersistentVolumeClaim/data-orders-1", "PersistentVolumeClaim/data-orders-2")
}

// watchDatabase compares a Database with its cluster until ends is called, which says how
// often it did.
func watchDatabase(t *testing.T, c *cluster) (ends func() int) {
	ctx, cancel := context.WithCancel(t.Context())
	done, compared := make(chan struct{}), 0
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := compareDatabase(ctx, c); err != nil && ctx.Err() == nil {
				t.Errorf("a Database that says Ready: %v", err)
				return
			}
			compared++
			time.Sleep(databasePoll)
		}
	}()
	ends = func() int { cancel(); <-done; return compared }
	t.Cleanup(func() { ends() })
	return ends
}

// compareDatabase says what a Database that is ready has too early. What changed between
// two reads is no fault.
func compareDatabase(ctx context.Context, c *cluster) error {
	d, err := getDatabase(ctx, c.namespace)
	if err != nil || databaseReady(d) != nil {
		return client.IgnoreNotFound(err)
	}
	var obj v1alpha1.PostgresCluster
	missing := env.client.Get(ctx, c.nameOf(""), &obj)
	now, err := getDatabase(ctx, c.namespace)
	if err != nil || now.ResourceVersion != d.ResourceVersion {
		return client.IgnoreNotFound(err)
	}
	switch {
	case missing != nil:
		return fmt.Errorf("its cluster: %w", missing)
	case ptr.Deref(obj.Spec.Replicas, 0) != ptr.Deref(d.Spec.Replicas, 0) || !maps.Equal(obj.Spec.Parameters, d.Spec.Parameters) || string(obj.Spec.Version) != string(d.Spec.Version):
		return fmt.Errorf("generation %d: its cluster declares %d members of %s, %v", d.Generation, ptr.Deref(obj.Spec.Replicas, 0), obj.Spec.Version, obj.Spec.Parameters)
	case obj.Status.ObservedGeneration != obj.Generation:
		return fmt.Errorf("generation %d: its cluster has generation %d and observed %d", d.Generation, obj.Generation, obj.Status.ObservedGeneration)
	case obj.Status.ReadyReplicas < 1:
		return fmt.Errorf("generation %d: its cluster has no member that serves", d.Generation)
	}
	return nil
}
