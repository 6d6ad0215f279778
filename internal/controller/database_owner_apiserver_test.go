//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// apiGone says whether a read found nothing.
func apiGone(err error) (bool, string) { return apierrors.IsNotFound(err), fmt.Sprint(err) }

// recorded says whether a Database records a drift of its cluster.
func recorded(d *v1alpha1.Database, path, manager, action string) bool {
	return d.Status.Drift != nil && slices.ContainsFunc(d.Status.Drift.Last, func(r v1alpha1.DriftRecord) bool {
		return r.Object == "PostgresCluster/orders" && r.Path == path && (manager == "" || r.Manager == manager) && r.Action == action
	})
}

// What a person changes, adds or removes in the declaration of the cluster is put back,
// and whose it was is said.
func TestDriftOfTheCluster(t *testing.T) {
	for path, change := range map[string]func(*v1alpha1.PostgresCluster){
		".spec.parameters.work_mem":        func(c *v1alpha1.PostgresCluster) { c.Spec.Parameters["work_mem"] = "9MB" },
		".spec.parameters.max_connections": func(c *v1alpha1.PostgresCluster) { c.Spec.Parameters["max_connections"] = "77" },
		".spec.deletionPolicy":             func(c *v1alpha1.PostgresCluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionDelete },
		".spec.failover": func(c *v1alpha1.PostgresCluster) {
			c.Spec.Failover = &v1alpha1.PostgresFailover{MaxLag: new(resource.MustParse("1Mi"))}
		},
		".spec.storage.size": func(c *v1alpha1.PostgresCluster) { c.Spec.Storage.Size = resource.MustParse("2Gi") },
		".spec.resources":    func(c *v1alpha1.PostgresCluster) { c.Spec.Resources = corev1.ResourceRequirements{} },
		".spec.podLabels":    func(c *v1alpha1.PostgresCluster) { c.Spec.PodLabels = map[string]string{"team": "a"} },
		`.metadata.labels["` + v1alpha1.LabelManagedBy + `"]`: func(c *v1alpha1.PostgresCluster) { delete(c.Labels, v1alpha1.LabelManagedBy) },
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			driftOfTheCluster(t, path, change)
		})
	}
}

func driftOfTheCluster(t *testing.T, path string, change func(*v1alpha1.PostgresCluster)) {
	w := newWorld(t, postgresKind)
	d, o := w.settledDatabase(func(d *v1alpha1.Database) {
		d.Spec.Parameters = v1alpha1.Parameters{"work_mem": "8MB"}
		d.Spec.Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
	})
	declared := w.clusterOf(d).Spec
	edit(w, w.clusterOf(d), change)
	await(w, d, "the drift is recorded", func(d *v1alpha1.Database) bool {
		return d.Status.Drift != nil && slices.ContainsFunc(d.Status.Drift.Last, func(r v1alpha1.DriftRecord) bool {
			return r.Object == "PostgresCluster/orders" && strings.HasPrefix(r.Path, path) && r.Action == "Reverted" && (r.Manager == "kubectl-edit" || r.Operation == "removed")
		})
	})
	await(w, d, "Ready", ready)
	w.awaitSteady(o)
	if c := w.clusterOf(d); !cmp.Equal(declared, c.Spec) || c.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy {
		t.Errorf("labels %v, spec (-declared +is):\n%s", c.Labels, cmp.Diff(declared, c.Spec))
	}
	if w.get(d); len(d.Status.Drift.Last) != 1 {
		t.Errorf("one drift is reported as %v", d.Status.Drift.Last)
	}
}

// In mode Report a change stays and is reported, and so it is without drift for a path
// that is ignored.
func TestDriftOfTheClusterIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	d, _ := w.settledDatabase(func(d *v1alpha1.Database) { d.Spec.Drift.Mode = v1alpha1.DriftReport })
	edit(w, w.clusterOf(d), func(c *v1alpha1.PostgresCluster) { c.Spec.Parameters = v1alpha1.Parameters{"work_mem": "9MB"} })
	await(w, d, "the drift is reported", func(d *v1alpha1.Database) bool {
		return recorded(d, ".spec.parameters", "kubectl-edit", "Reported") && conditions.GetReason(d, v1alpha1.ConditionSynced) == v1alpha1.ReasonDrifted && ready(d)
	})
	if c := w.clusterOf(d); c.Spec.Parameters["work_mem"] != "9MB" {
		t.Errorf("parameters %v", c.Spec.Parameters)
	}
	edit(w, d, func(d *v1alpha1.Database) { d.Spec.Drift.Mode = v1alpha1.DriftRevert })
	await(w, d, "Synced", func(d *v1alpha1.Database) bool { return ready(d) && conditions.IsTrue(d, v1alpha1.ConditionSynced) })
	if c := w.clusterOf(d); len(c.Spec.Parameters) > 0 {
		t.Errorf("parameters %v", c.Spec.Parameters)
	}
	edit(w, d, func(d *v1alpha1.Database) {
		d.Spec.Drift.Ignore = []v1alpha1.DriftIgnore{{Kind: "PostgresCluster", Paths: []string{"/spec/replicas"}}}
	})
	await(w, d, "Ready", ready)
	edit(w, w.clusterOf(d), func(c *v1alpha1.PostgresCluster) { c.Spec.Replicas = new(int32(2)) })
	await(w, d, "two members", func(d *v1alpha1.Database) bool { return ready(d) && d.Status.ReadyReplicas == 2 })
	if !conditions.IsTrue(d, v1alpha1.ConditionSynced) || recorded(d, ".spec.replicas", "", "Reverted") {
		t.Errorf("what is ignored is reported: %s", describeDrifts(d))
	}
}

// A cluster that was deleted by itself is made again.
func TestDeletedClusterIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	d, _ := w.settledDatabase(nil)
	before := w.clusterOf(d)
	if err := w.person.Delete(t.Context(), before, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	await(w, d, "the deletion is recorded", func(d *v1alpha1.Database) bool { return recorded(d, "", "", "Reverted") && ready(d) })
	if now := w.clusterOf(d); now.UID == before.UID {
		t.Error("it is the same")
	}
}

// A cluster that is a person's own is never taken over, and is the Database's once it
// is gone. Before that, the operator does not touch it.
func TestForeignClusterIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, labels := range map[string]map[string]string{
		"a person's":             nil,
		"with Holdfast's labels": {v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelCluster: "orders", v1alpha1.LabelKind: "database"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, postgresKind)
			foreign := w.NewPostgresCluster("orders", 1)
			foreign.Labels = labels
			w.create(foreign)
			w.operate(0)
			w.awaitReady(foreign)
			d := w.database("orders", 2)
			d.Spec.DeletionPolicy = v1alpha1.DeletionDelete
			w.create(d)
			await(w, d, "Stalled", func(d *v1alpha1.Database) bool { return kstatus(d) == "Failed" })
			if message := conditions.GetMessage(d, v1alpha1.ConditionStalled); conditions.GetReason(d, v1alpha1.ConditionStalled) != v1alpha1.ReasonNameConflict ||
				!strings.Contains(message, "PostgresCluster orders exists and belongs to no Database") || !strings.Contains(message, "metadata.name") || d.Status.Cluster != nil {
				t.Error(describeDrifts(d))
			}
			if now := w.clusterOf(d); now.UID != foreign.UID || now.Generation != foreign.Generation || len(now.OwnerReferences) > 0 {
				t.Errorf("the cluster was touched: %+v", now.ObjectMeta)
			}
			if err := w.person.Delete(t.Context(), foreign, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
				t.Fatal(err)
			}
			await(w, d, "Ready", ready)
		})
	}
}

// With --cascade=orphan the cluster stays, as its own, and goes on. A Database of the
// same name does not take it back.
func TestOrphanedClusterStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	d, o := w.settledDatabase(func(d *v1alpha1.Database) { d.Spec.DeletionPolicy = v1alpha1.DeletionDelete })
	before := w.clusterOf(d)
	w.deleteDatabase(d, metav1.DeletePropagationOrphan)
	w.awaitSteady(o)
	time.Sleep(quiet)
	now := w.clusterOf(d)
	if now.UID != before.UID || now.Generation != before.Generation || len(now.OwnerReferences) > 0 || !ready(now) {
		t.Fatalf("the cluster was not left alone: %+v", now.ObjectMeta)
	}
	again := w.database("orders", 2)
	w.create(again)
	await(w, again, "Stalled", func(d *v1alpha1.Database) bool {
		return conditions.GetReason(d, v1alpha1.ConditionStalled) == v1alpha1.ReasonNameConflict
	})
	o.stop()
	w.operate(0) // which remembers nothing
	edit(w, again, func(d *v1alpha1.Database) { d.Spec.Replicas = new(int32(3)) })
	await(w, again, "Stalled", func(d *v1alpha1.Database) bool { return kstatus(d) == "Failed" })
	w.deleteDatabase(again, metav1.DeletePropagationForeground)
	time.Sleep(quiet)
	if now := w.clusterOf(d); now.UID != before.UID || now.DeletionTimestamp != nil || *now.Spec.Replicas != 1 {
		t.Errorf("the cluster went with a Database that is not its own: %+v", now)
	}
	edit(w, now, func(c *v1alpha1.PostgresCluster) { c.Spec.Replicas = new(int32(2)) })
	w.awaitReady(now)
}

// deleteDatabase deletes a Database and waits until it is gone.
func (w *world) deleteDatabase(d *v1alpha1.Database, how metav1.DeletionPropagation) {
	w.t.Helper()
	if err := w.person.Delete(w.t.Context(), d, client.PropagationPolicy(how)); err != nil {
		w.t.Fatal(err)
	}
	apitest.Eventually(w.t, "the Database goes", func(ctx context.Context) (bool, string) {
		return apiGone(w.person.Get(ctx, client.ObjectKeyFromObject(d), &v1alpha1.Database{}))
	})
}

// While a Database is deleted with --cascade=orphan, whatever wakes the operator, the
// cluster never gets its owner reference back: it would go with the Database.
func TestOrphaningIsNotUndone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	o := w.operate(0)
	for i := range 15 {
		d := w.database(fmt.Sprintf("orders-%d", i), 1)
		w.create(d)
		await(w, d, "Ready", ready)
		uid := w.clusterOf(d).UID
		// Drift that is about to be put back, and the deletion, in one moment.
		touch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"parameters":{"work_mem":"9MB"}}}`))
		if err := w.person.Patch(t.Context(), w.clusterOf(d), touch); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 2 * time.Millisecond)
		w.deleteDatabase(d, metav1.DeletePropagationOrphan)
		w.awaitSteady(o)
		if c := w.clusterOf(d); c.UID != uid || len(c.OwnerReferences) > 0 || c.DeletionTimestamp != nil {
			t.Fatalf("the cluster is to go: %+v", c.ObjectMeta)
		}
	}
}

// A Database goes with its cluster, and what is left of it is what the policy says.
func TestDatabaseIsDeleted(t *testing.T) {
	t.Parallel()
	for _, policy := range []v1alpha1.DeletionPolicy{v1alpha1.DeletionRetain, v1alpha1.DeletionDelete} {
		for _, how := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationBackground} {
			t.Run(string(policy)+"/"+string(how), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, postgresKind)
				d, _ := w.settledDatabase(func(d *v1alpha1.Database) { d.Spec.DeletionPolicy = policy })
				c := w.clusterOf(d)
				w.deleteDatabase(d, how)
				apitest.Eventually(t, "the cluster goes", func(ctx context.Context) (bool, string) {
					return apiGone(w.person.Get(ctx, client.ObjectKeyFromObject(c), &v1alpha1.PostgresCluster{}))
				})
				want := map[string][]string{}
				if policy == v1alpha1.DeletionRetain {
					want = map[string][]string{"PersistentVolumeClaim": volumes(c, 1), "Secret": {"orders-ca", "orders-internal"}}
				}
				apitest.Eventually(t, "the rest goes", func(context.Context) (bool, string) {
					left := w.objects(c)
					return cmp.Equal(want, left), cmp.Diff(want, left)
				})
				time.Sleep(quiet)
				if gone, _ := apiGone(w.person.Get(t.Context(), client.ObjectKeyFromObject(c), &v1alpha1.PostgresCluster{})); !gone {
					t.Error("the cluster came back")
				}
				if policy == v1alpha1.DeletionRetain {
					again := w.database("orders", 1)
					w.create(again)
					await(w, again, "Ready over the retained volume", ready)
				}
			})
		}
	}
}
