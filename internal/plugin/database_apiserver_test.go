//go:build apiserver

package plugin

import (
	"testing"

	"github.com/fluxcd/pkg/apis/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// A Database stands for its cluster in every verb, and what a verb declares is written
// to it: the operator would put it back in the cluster.
func TestDatabaseStandsForItsCluster(t *testing.T) {
	w := newWorld(t)
	d := &v1alpha1.Database{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders", Labels: map[string]string{
			"kustomize.toolkit.fluxcd.io/name": "shop", "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
		}},
		Spec: v1alpha1.DatabaseSpec{
			CommonSpec: v1alpha1.CommonSpec{Backup: &v1alpha1.ClusterBackup{Enabled: new(false)}},
			Engine:     v1alpha1.EnginePostgres, Version: "17", Storage: resource.MustParse("1Gi"),
		},
	}
	w.mustSucceed(w.person.Create(t.Context(), d))
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders"}}
	w.awaitStatus(d, "its cluster", func() bool { return d.Status.Cluster != nil })

	for _, name := range []string{"db/orders", "Database/orders", "orders", "pg/orders"} {
		out, _ := w.mustRun("status", name)
		mustContain(t, out, "PostgresCluster "+w.Namespace+"/orders", "declared by Database orders, Kustomization flux-system/shop (Flux)")
	}
	out, complaints := w.mustRun("suspend", "db/orders")
	mustContain(t, out, "pg/orders suspended")
	mustContain(t, complaints, "Kustomization flux-system/shop (Flux) applies this cluster and may undo this")
	w.awaitStatus(d, "suspended", func() bool { return d.Spec.Suspend && d.Status.Phase == "Suspended" })
	out, _ = w.mustRun("resume", "orders")
	mustContain(t, out, "pg/orders resumed")
	w.awaitStatus(d, "resumed", func() bool { return !d.Spec.Suspend && d.Status.Phase != "Suspended" })

	w.mustRun("reconcile", "pg/orders")
	w.awaitStatus(d, "the request", func() bool {
		at := d.Annotations[meta.ReconcileRequestAnnotation]
		return at != "" && d.Status.LastHandledReconcileAt == at
	})
	w.mustSucceed(w.person.Get(t.Context(), client.ObjectKeyFromObject(c), c))
	if c.Annotations[meta.ReconcileRequestAnnotation] != d.Annotations[meta.ReconcileRequestAnnotation] || len(c.OwnerReferences) != 1 {
		t.Errorf("the cluster has %+v", c.ObjectMeta)
	}
	w.mustFail(1, `no Database "nope" in namespace `+w.Namespace, "status", "db/nope")

	w.mustSucceed(w.person.Create(t.Context(), w.NewPostgresCluster("taken", 1)))
	taken := d.DeepCopy()
	taken.ObjectMeta = metav1.ObjectMeta{Namespace: w.Namespace, Name: "taken"}
	w.mustSucceed(w.person.Create(t.Context(), taken))
	w.awaitStatus(taken, "Stalled", func() bool { return taken.Status.Phase == "Failed" })
	w.mustFail(1, "Database taken has no cluster: PostgresCluster taken exists and belongs to no Database", "psql", "db/taken")
}
