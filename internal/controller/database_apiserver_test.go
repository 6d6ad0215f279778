//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// database is a Database as a test declares it.
func (w *world) database(name string, replicas int32) *v1alpha1.Database {
	return &v1alpha1.Database{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec: v1alpha1.DatabaseSpec{
			CommonSpec: v1alpha1.CommonSpec{Replicas: &replicas, Backup: &v1alpha1.ClusterBackup{Enabled: new(false)}},
			Engine:     v1alpha1.EnginePostgres, Version: "17", Storage: resource.MustParse("1Gi"),
		},
	}
}

// clusterOf is the cluster of a Database as the API server has it now.
func (w *world) clusterOf(d *v1alpha1.Database) *v1alpha1.PostgresCluster {
	w.t.Helper()
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}}
	w.get(c)
	return c
}

// settledDatabase is a Database that is ready, with nothing left to do.
func (w *world) settledDatabase(change func(*v1alpha1.Database)) (*v1alpha1.Database, *operator) {
	w.t.Helper()
	d := w.database("orders", 1)
	if change != nil {
		change(d)
	}
	w.create(d)
	o := w.operate(0)
	await(w, d, "Ready", ready)
	w.awaitSteady(o)
	w.get(d)
	return d, o
}

// watchDatabases judges every version of every Database of the namespace.
func (w *world) watchDatabases() (ends func() int) {
	w.t.Helper()
	c, err := client.NewWithWatch(w.Config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		w.t.Fatal(err)
	}
	watching, err := c.Watch(w.t.Context(), &v1alpha1.DatabaseList{}, client.InNamespace(w.Namespace))
	if err != nil {
		w.t.Fatal(err)
	}
	seen, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		for event := range watching.ResultChan() {
			if d, is := event.Object.(*v1alpha1.Database); is && event.Type != watch.Deleted {
				seen++
				w.judgeDatabase(d)
			}
		}
	}()
	ends = func() int { watching.Stop(); <-done; return seen }
	w.t.Cleanup(func() { ends() })
	return ends
}

// judgeDatabase wants no version that tells a Git tool too much.
func (w *world) judgeDatabase(d *v1alpha1.Database) {
	result := kstatus(d)
	if len(d.GetConditions()) == 0 {
		if result != "InProgress" {
			w.t.Errorf("a new Database is %s by kstatus", result)
		}
		return
	}
	for _, fault := range faults(d) {
		w.t.Errorf("%s: %s", describeDrifts(d), fault)
	}
	if !ready(d) {
		return
	}
	c, now := &v1alpha1.PostgresCluster{}, &v1alpha1.Database{}
	ctx := context.Background()
	missing := w.person.Get(ctx, client.ObjectKeyFromObject(d), c)
	if w.person.Get(ctx, client.ObjectKeyFromObject(d), now) != nil || now.Generation != d.Generation {
		return // the spec moved on meanwhile
	}
	switch {
	case missing != nil:
		w.t.Errorf("Ready at generation %d without a cluster: %v", d.Generation, missing)
	case !ready(c):
		w.t.Errorf("Ready at generation %d, and its cluster: %s", d.Generation, describeDrifts(c))
	case *c.Spec.Replicas != *d.Spec.Replicas || !maps.Equal(c.Spec.Parameters, d.Spec.Parameters) || c.Status.ReadyReplicas != *d.Spec.Replicas || d.Status.ReadyReplicas != *d.Spec.Replicas:
		w.t.Errorf("Ready at generation %d with %d members and %v; its cluster declares %d and %v and has %d", d.Generation, d.Status.ReadyReplicas, d.Spec.Parameters, *c.Spec.Replicas, c.Spec.Parameters, c.Status.ReadyReplicas)
	}
}

// Whenever a Database says Ready, its cluster is ready for what it declares: at its
// creation, and through changes of the spec that follow each other fast.
func TestDatabaseIsReadyWithItsCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	ends := w.watchDatabases()
	w.operate(0)
	d := w.database("orders", 1)
	d.Spec.Parameters = v1alpha1.Parameters{"work_mem": "4MB"}
	w.create(d)
	await(w, d, "Ready", ready)
	for i := range 12 {
		edit(w, d, func(d *v1alpha1.Database) {
			d.Spec.Parameters["work_mem"] = fmt.Sprintf("%dMB", 5+i)
			d.Spec.Replicas = new(int32(1 + i%3))
		})
		if i%3 == 0 {
			await(w, d, "Ready", ready)
		} else {
			time.Sleep(time.Duration(i) * 15 * time.Millisecond)
		}
	}
	await(w, d, "Ready", ready)
	if n := ends(); n < 20 {
		t.Errorf("saw %d versions", n)
	}
	c := w.clusterOf(d)
	if d.Status.Version != "17.4" || d.Status.Primary != "orders-0" || d.Status.CredentialsSecret != "orders-app" || d.Status.Endpoints == nil ||
		*d.Status.Cluster != (v1alpha1.DatabaseCluster{Kind: "PostgresCluster", Name: "orders"}) || d.Status.Selector != c.Status.Selector || d.Status.Phase != "Ready" {
		t.Errorf("status %+v", d.Status)
	}
	if message := conditions.GetMessage(d, v1alpha1.ConditionReady); !strings.HasPrefix(message, "PostgresCluster orders: ") {
		t.Errorf("Ready does not name the cluster: %s", message)
	}
}

// A Database that nothing happens to sends nothing, also while other clients
// annotate its cluster.
func TestSteadyDatabaseSendsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	d, o := w.settledDatabase(nil)
	for i := range 20 {
		edit(w, w.clusterOf(d), func(c *v1alpha1.PostgresCluster) { c.Annotations["example.com/touched"] = fmt.Sprint(i) })
		time.Sleep(20 * time.Millisecond)
	}
	w.awaitSteady(o)
	version := d.ResourceVersion
	if w.get(d); d.ResourceVersion != version {
		t.Errorf("the Database was written: %s", describeDrifts(d))
	}
	w.simulation.Wake(client.ObjectKeyFromObject(d))
	time.Sleep(quiet)
	if seen := o.take(); len(seen) > 0 {
		t.Errorf("%d requests: %v", len(seen), seen)
	}
}

// The scale subresource changes the number of members, and kubectl scale of the cluster
// itself is put back.
func TestDatabaseIsScaled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	d, _ := w.settledDatabase(nil)
	scale := func(obj client.Object, members int32) {
		t.Helper()
		to := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: members}}
		if err := w.As(t, "kubectl").SubResource("scale").Update(t.Context(), obj, client.WithSubResourceBody(to)); err != nil {
			t.Fatal(err)
		}
	}
	scale(d, 3)
	await(w, d, "three members", func(d *v1alpha1.Database) bool {
		return ready(d) && d.Status.ReadyReplicas == 3 && d.Status.Replicas == 3
	})
	scale(w.clusterOf(d), 1)
	await(w, d, "the drift is recorded", func(d *v1alpha1.Database) bool {
		return d.Status.Drift != nil && slices.ContainsFunc(d.Status.Drift.Last, func(r v1alpha1.DriftRecord) bool {
			return r.Object == "PostgresCluster/orders" && r.Path == ".spec.replicas" && strings.Contains(r.Manager, "scale") && r.Action == "Reverted"
		})
	})
	await(w, d, "Ready", ready)
	if c := w.clusterOf(d); *c.Spec.Replicas != 3 {
		t.Errorf("%d members", *c.Spec.Replicas)
	}
}

// Flux's annotation reaches the cluster, and is answered once the cluster has answered
// it, without a change of Ready.
func TestRequestOfADatabaseReachesItsCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	d, _ := w.settledDatabase(nil)
	transition := conditions.GetLastTransitionTime(d, v1alpha1.ConditionReady)
	const at = "2026-03-01T12:00:00Z"
	edit(w, d, func(d *v1alpha1.Database) {
		d.Annotations = map[string]string{fluxmeta.ReconcileRequestAnnotation: at, "argocd.argoproj.io/tracking-id": "shop"}
	})
	await(w, d, "the answer", func(d *v1alpha1.Database) bool { return d.Status.LastHandledReconcileAt == at })
	c := w.clusterOf(d)
	if c.Status.LastHandledReconcileAt != at || c.Annotations["argocd.argoproj.io/tracking-id"] != "" {
		t.Errorf("handled %q, annotations %v", c.Status.LastHandledReconcileAt, c.Annotations)
	}
	if !ready(d) || !conditions.GetLastTransitionTime(d, v1alpha1.ConditionReady).Equal(transition) {
		t.Errorf("Ready changed: %s", describeDrifts(d))
	}
}

// A suspended Database suspends its cluster. Then it reports what other clients change
// there, and puts it back afterwards.
func TestSuspendedDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	d, _ := w.settledDatabase(nil)
	edit(w, d, func(d *v1alpha1.Database) { d.Spec.Suspend = true })
	await(w, d, "Suspended", func(d *v1alpha1.Database) bool { return ready(d) && d.Status.Phase == "Suspended" })
	edit(w, w.clusterOf(d), func(c *v1alpha1.PostgresCluster) { c.Spec.Parameters = v1alpha1.Parameters{"work_mem": "9MB"} })
	await(w, d, "the drift is reported", func(d *v1alpha1.Database) bool {
		return conditions.GetReason(d, v1alpha1.ConditionSynced) == v1alpha1.ReasonDrifted
	})
	if c := w.clusterOf(d); c.Spec.Parameters["work_mem"] != "9MB" || !c.Spec.Suspend {
		t.Errorf("spec %+v", c.Spec)
	}
	edit(w, d, func(d *v1alpha1.Database) { d.Spec.Suspend = false })
	await(w, d, "Ready", func(d *v1alpha1.Database) bool {
		return ready(d) && conditions.IsTrue(d, v1alpha1.ConditionSynced) && d.Status.Phase == "Ready"
	})
	if c := w.clusterOf(d); c.Spec.Parameters["work_mem"] != "" || c.Spec.Suspend {
		t.Errorf("spec %+v", c.Spec)
	}
}

// The operator dies in the Nth write of a creation and of a change, for every N, and
// another one goes on. Nothing is made twice.
func TestDatabaseAfterACrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	crashed := 0
	for n := 1; n < mostWrites; n++ {
		d := w.database(fmt.Sprintf("orders-%d", n), 1)
		first := w.operate(n)
		w.create(d)
		died := false
		await(w, d, "crash or Ready", func(d *v1alpha1.Database) bool {
			select {
			case <-first.crashed:
				died = true
			default:
			}
			return died || ready(d)
		})
		first.stop()
		if !died {
			break
		}
		crashed = n
		second := w.operate(0)
		await(w, d, "Ready", ready)
		edit(w, d, func(d *v1alpha1.Database) { d.Spec.Parameters = v1alpha1.Parameters{"work_mem": "8MB"} })
		await(w, d, "Ready", ready)
		if c := w.clusterOf(d); c.Generation != 2 || c.Spec.Parameters["work_mem"] != "8MB" {
			t.Errorf("generation %d of the cluster: %v", c.Generation, c.Spec.Parameters)
		}
		w.wantWhole(w.clusterOf(d), 1)
		if err := w.person.Delete(t.Context(), d, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
		apitest.Eventually(t, "the cluster goes", func(ctx context.Context) (bool, string) {
			return apiGone(w.person.Get(ctx, client.ObjectKeyFromObject(d), &v1alpha1.PostgresCluster{}))
		})
		second.stop()
	}
	if crashed < 20 {
		t.Errorf("a creation of %d writes is less than there are objects", crashed)
	}
}
