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

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// databaseManifest is the whole manifest that a first user of a Database writes.
func databaseManifest(engine, version string) string {
	return fmt.Sprintf(`
apiVersion: holdfast.dev/v1alpha1
kind: Database
metadata: {name: orders}
spec: {engine: %s, version: "%s", replicas: 3, storage: 1Gi, backup: {enabled: true, schedule: "0 */6 * * *"}}
`, engine, version)
}

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
// It has its first backup, is scaled, put right, suspended, and deleted without its data.
func databaseSeed(t *testing.T) {
	c := newDatabase(t, postgres, "17")
	checkEndpoints(t, &cluster{c})
	databaseLives(t, c, "work_mem")
	d, err := getDatabase(t.Context(), c.namespace)
	must(t, err, "read the Database")
	must(t, env.client.Delete(t.Context(), d), "delete the Database")
	eventually(t, goneTimeout, "the Database is gone, and its cluster", func(ctx context.Context) error {
		if err := checkGone(env.client.Get(ctx, c.nameOf(""), d)); err != nil {
			return err
		}
		if err := checkGone(env.client.Get(ctx, c.nameOf(""), c.kind.empty())); err != nil {
			return err
		}
		left, err := c.listRemaining(ctx)
		if err == nil && !slices.Contains(left, "PersistentVolumeClaim/data-orders-0") {
			err = fmt.Errorf("a volume is gone: %v", left)
		}
		return err
	})
}

// mysqlDatabaseSeed is the same with MySQL, and then the Database goes and leaves its
// cluster as it is.
func mysqlDatabaseSeed(t *testing.T) {
	c := newDatabase(t, mysql, "9.7")
	c.kind.keepValue(c, "1")
	if kept := c.kind.checkServes(t, c); kept != "1" {
		t.Errorf("an application reads %q", kept)
	}
	databaseLives(t, c, "max_connections")
	before, pod := c.getCluster(), c.podIncarnation(0)
	d, err := getDatabase(t.Context(), c.namespace)
	must(t, err, "read the Database")
	must(t, env.client.Delete(t.Context(), d, client.PropagationPolicy(metav1.DeletePropagationOrphan)), "delete the Database, not its cluster")
	eventually(t, goneTimeout, "the Database is gone", func(ctx context.Context) error {
		return checkGone(env.client.Get(ctx, c.nameOf(""), d))
	})
	c.scaleTo(3) // no Database says now how many there are
	c.waitReady()
	if now := c.getCluster(); now.GetUID() != before.GetUID() || len(now.GetOwnerReferences()) > 0 || c.podIncarnation(0) != pod || c.kind.keptValue(c) != "1" {
		t.Errorf("the cluster that is left is another one: %v, before %v", now.GetUID(), before.GetUID())
	}
}

// newDatabase applies the first user's manifest, and waits until the database is ready.
func newDatabase(t *testing.T, k *kind, version string) *subject {
	t.Helper()
	needKind(t, k)
	namespace := newNamespace(t, "")
	c := followSubject(t, k, namespace, orders)
	manifest := objectsOf(t, []byte(databaseManifest(k.engine, version)))[0]
	manifest.SetNamespace(namespace)
	must(t, createStrictly(t, manifest), "create the Database")
	d := awaitDatabase(t, namespace, "the Database is ready", databaseReady)
	must(t, rolledOut(c.getCluster()), "the cluster of a Database that is ready")
	if s := d.Status; s.Ready != "3/3" || s.Primary == "" || s.CredentialsSecret != orders+"-app" || s.Phase != "Ready" || s.Version == "" {
		t.Errorf("status says %+v", s)
	}
	return c
}

// databaseLives: it has its first backup, keeps its engine, is scaled, put right and
// suspended.
func databaseLives(t *testing.T, c *subject, parameter string) {
	t.Helper()
	awaitDatabase(t, c.namespace, "the first backup is reported", func(d *v1alpha1.Database) error {
		if d.Status.LastBackup == nil || !meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.ConditionBackedUp) {
			return fmt.Errorf("last backup %v", d.Status.LastBackup)
		}
		return nil
	})
	databaseKeepsEngine(t, c)
	databaseScales(t, c)
	databaseIsPutRight(t, c, parameter)
	databaseIsSuspended(t, c, parameter)
}

// databaseKeepsEngine: another engine is not followed, and the cluster that holds the data
// is left as it is.
func databaseKeepsEngine(t *testing.T, c *subject) {
	t.Helper()
	set := func(engine, version string) {
		t.Helper()
		d, err := getDatabase(t.Context(), c.namespace)
		must(t, err, "read the Database")
		must(t, mergePatch(fmt.Sprintf(`{"spec":{"engine":"%s","version":"%s"}}`, engine, version))(t.Context(), d, "kubectl-edit"), "change the engine")
	}
	before := c.getCluster()
	d, err := getDatabase(t.Context(), c.namespace)
	must(t, err, "read the Database")
	other, version := "mysql", "9.7"
	if c.kind == mysql {
		other, version = "postgres", "17"
	}
	set(other, version)
	awaitDatabase(t, c.namespace, "the Database is stalled", func(d *v1alpha1.Database) error {
		if cond := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionStalled); cond == nil || cond.Reason != v1alpha1.ReasonEngineChanged {
			return fmt.Errorf("Stalled %+v", cond)
		}
		return nil
	})
	set(c.kind.engine, fmt.Sprint(d.Spec.Version))
	awaitDatabase(t, c.namespace, "the Database is ready again", databaseReady)
	if now := c.getCluster(); now.GetUID() != before.GetUID() || now.GetGeneration() != before.GetGeneration() {
		t.Errorf("the cluster was touched: generation %d, before %d", now.GetGeneration(), before.GetGeneration())
	}
}

// databaseScales: the scale subresource is that of the Database.
func databaseScales(t *testing.T, c *subject) {
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

// declaredParameter is a parameter in the spec of a Database's cluster.
func declaredParameter(t *testing.T, c *subject, name string) string {
	t.Helper()
	value, _, err := unstructured.NestedString(unstructuredOf(t, c.getCluster()).Object, "spec", "parameters", name)
	must(t, err, "read spec.parameters."+name)
	return value
}

// databaseIsPutRight: a person changes the cluster, and it is put back with their
// name.
func databaseIsPutRight(t *testing.T, c *subject, parameter string) {
	t.Helper()
	members := c.getCluster().Common().DesiredReplicas()
	must(t, mergePatch(fmt.Sprintf(`{"spec":{"replicas":3,"parameters":{"%s":"99"}}}`, parameter))(t.Context(), c.getCluster(), "kubectl-edit"), "edit the cluster")
	awaitDatabase(t, c.namespace, "the edit is reported and put back", func(d *v1alpha1.Database) error {
		if d.Status.Drift == nil || len(d.Status.Drift.Last) < 2 || d.Status.Drift.Last[0].Manager != "kubectl-edit" || d.Status.Drift.Last[0].Action != "Reverted" {
			return fmt.Errorf("drift %+v", d.Status.Drift)
		}
		return databaseReady(d)
	})
	if now := c.getCluster().Common().DesiredReplicas(); now != members || declaredParameter(t, c, parameter) != "" {
		t.Errorf("the cluster declares %d members and %s %q", now, parameter, declaredParameter(t, c, parameter))
	}
}

// databaseIsSuspended: what a person changes in the meantime is reported, and put back
// when the Database is resumed.
func databaseIsSuspended(t *testing.T, c *subject, parameter string) {
	t.Helper()
	suspend := func(value bool, phase string) {
		t.Helper()
		d, err := getDatabase(t.Context(), c.namespace)
		must(t, err, "read the Database")
		must(t, mergePatch(fmt.Sprintf(`{"spec":{"suspend":%v}}`, value))(t.Context(), d, "kubectl-edit"), "suspend or resume")
		awaitDatabase(t, c.namespace, "the Database is "+phase, func(d *v1alpha1.Database) error {
			if d.Status.Phase != phase {
				return fmt.Errorf("phase %s", d.Status.Phase)
			}
			return databaseReady(d)
		})
	}
	suspend(true, "Suspended")
	must(t, mergePatch(fmt.Sprintf(`{"spec":{"parameters":{"%s":"98"}}}`, parameter))(t.Context(), c.getCluster(), "kubectl-edit"), "edit the cluster")
	awaitDatabase(t, c.namespace, "the edit is reported", func(d *v1alpha1.Database) error {
		if !meta.IsStatusConditionFalse(d.Status.Conditions, v1alpha1.ConditionSynced) {
			return fmt.Errorf("Synced %+v", meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionSynced))
		}
		return nil
	})
	if value := declaredParameter(t, c, parameter); value != "98" {
		t.Errorf("a suspended Database has put back %s: %q", parameter, value)
	}
	suspend(false, "Ready")
	if value := declaredParameter(t, c, parameter); value != "" {
		t.Errorf("the Database leaves %s at %q", parameter, value)
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
