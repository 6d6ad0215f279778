//go:build apiserver

package gitops

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// keptKind is a kind whose objects hold data: one that declares Retain, and where its
// policies stand.
type keptKind struct {
	obj            client.Object
	spec, recorded *v1alpha1.DeletionPolicy
	all            client.Object
}

// keptKinds are all that the policy is about. No operator follows them.
func keptKinds(namespace string) map[string]keptKind {
	named := metav1.ObjectMeta{Namespace: namespace, Name: "orders"}
	pg, etcd, mysql := cleanOut(namespace, "orders"), &v1alpha1.EtcdCluster{ObjectMeta: named}, &v1alpha1.MySQLCluster{ObjectMeta: named}
	etcd.Spec.Version, mysql.Spec.Version = "3.6.16", "9.7"
	etcd.Spec.Storage.Size, mysql.Spec.Storage.Size = resource.MustParse("1Gi"), resource.MustParse("1Gi")
	mysql.Spec.Backup = &v1alpha1.ClusterBackup{Enabled: new(false)}
	db := &v1alpha1.Database{ObjectMeta: named, Spec: v1alpha1.DatabaseSpec{Engine: "postgres", Version: "17"}}
	return map[string]keptKind{
		"PostgresCluster": {pg, &pg.Spec.DeletionPolicy, &pg.Status.DeletionPolicy, &v1alpha1.PostgresCluster{}},
		"EtcdCluster":     {etcd, &etcd.Spec.DeletionPolicy, &etcd.Status.DeletionPolicy, &v1alpha1.EtcdCluster{}},
		"MySQLCluster":    {mysql, &mysql.Spec.DeletionPolicy, &mysql.Status.DeletionPolicy, &v1alpha1.MySQLCluster{}},
		"Database":        {db, &db.Spec.DeletionPolicy, &db.Status.DeletionPolicy, &v1alpha1.Database{}},
	}
}

// as is an administrator under the name of a ServiceAccount of Kubernetes' own.
func as(t *testing.T, cluster *apitest.Cluster, controller string) client.Client {
	t.Helper()
	config := rest.CopyConfig(cluster.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:" + controller, Groups: []string{"system:masters"}}
	return newAdministrator(t, config)
}

const stillGoes = "status.deletionPolicy is still Delete"

// make creates the object under Retain, and records what its operator did last.
func (k keptKind) make(t *testing.T, c client.Client, recorded v1alpha1.DeletionPolicy) {
	t.Helper()
	*k.spec = v1alpha1.DeletionRetain
	wantAccepted(t, c.Create(t.Context(), k.obj))
	k.record(t, c, recorded)
}

func (k keptKind) record(t *testing.T, c client.Client, policy v1alpha1.DeletionPolicy) {
	t.Helper()
	*k.recorded = policy
	wantAccepted(t, c.Status().Update(t.Context(), k.obj))
}

// declare changes the spec.
func (k keptKind) declare(t *testing.T, c client.Client, policy v1alpha1.DeletionPolicy) {
	t.Helper()
	*k.spec = policy
	wantAccepted(t, c.Update(t.Context(), k.obj))
}

// withRetainData is a namespace in which the policy is known to be in force.
func withRetainData(t *testing.T) (client.Client, *apitest.Cluster) {
	t.Helper()
	c, cluster := withAdmission(t)
	probe := cleanOut(cluster.Namespace, "kept")
	k := keptKind{probe, &probe.Spec.DeletionPolicy, &probe.Status.DeletionPolicy, nil}
	k.make(t, c, v1alpha1.DeletionDelete)
	apitest.Eventually(t, "the policy is in force", func(ctx context.Context) (bool, string) {
		err := c.Delete(ctx, probe, client.DryRunAll)
		return apierrors.IsForbidden(err), fmt.Sprint(err)
	})
	return c, cluster
}

// What declares Retain is not deleted while its data goes with it, for any client and in
// any way: no operator runs here. The ways out that the message names are ways out.
func TestPolicyOnDataThatStillGoes(t *testing.T) {
	c, cluster := withRetainData(t)
	allowNamespace(t, c, cluster.Namespace)
	for name, k := range keptKinds(cluster.Namespace) {
		k.make(t, c, v1alpha1.DeletionDelete)
		collector := as(t, cluster, "generic-garbage-collector")
		for who, try := range map[string]func() error{
			"a person": func() error { return c.Delete(t.Context(), k.obj) },
			"in the foreground": func() error {
				return c.Delete(t.Context(), k.obj, client.PropagationPolicy(metav1.DeletePropagationForeground))
			},
			"all of the kind": func() error { return c.DeleteAllOf(t.Context(), k.all, client.InNamespace(cluster.Namespace)) },
			"the garbage collector": func() error {
				return collector.Delete(t.Context(), k.obj, client.PropagationPolicy(metav1.DeletePropagationBackground))
			},
		} {
			if err := try(); !apierrors.IsForbidden(err) {
				t.Errorf("%s %s: %v", name, who, err)
			}
			wantRefusal(t, try(), stillGoes)
		}
		wantRefusal(t, c.Delete(t.Context(), k.obj), "--cascade=orphan")
		wantAccepted(t, as(t, cluster, "namespace-controller").Delete(t.Context(), k.obj, client.DryRunAll))

		wantAccepted(t, c.Delete(t.Context(), k.obj, client.PropagationPolicy(metav1.DeletePropagationOrphan), client.DryRunAll))
		k.obj.SetAnnotations(map[string]string{"holdfast.dev/confirm-deletion": "orders"})
		k.declare(t, c, v1alpha1.DeletionDelete)
		wantAccepted(t, c.Delete(t.Context(), k.obj, client.DryRunAll))
		k.declare(t, c, v1alpha1.DeletionRetain)
		wantRefusal(t, c.Delete(t.Context(), k.obj), stillGoes)
		k.record(t, c, v1alpha1.DeletionRetain)
		wantAccepted(t, c.Delete(t.Context(), k.obj))

		k.obj.SetResourceVersion("")
		k.obj.SetUID("")
		*k.recorded = ""
		wantAccepted(t, c.Create(t.Context(), k.obj))
		wantAccepted(t, c.Delete(t.Context(), k.obj)) // nothing has its data yet
	}
}

// A namespace goes with what is in it, also without an operator: its volumes go with it
// in any case. The controller manager of these tests has no ServiceAccounts.
func TestNamespaceGoesWithDataThatStillGoes(t *testing.T) {
	c, _ := withRetainData(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "leaving-"}}
	wantAccepted(t, c.Create(t.Context(), ns))
	for _, k := range keptKinds(ns.Name) {
		k.make(t, c, v1alpha1.DeletionDelete)
	}
	wantAccepted(t, c.Delete(t.Context(), ns))
	apitest.Eventually(t, "the namespace ends", func(ctx context.Context) (bool, string) {
		err := c.Get(ctx, client.ObjectKeyFromObject(ns), ns)
		return apierrors.IsNotFound(err), fmt.Sprint(ns.Status.Conditions, err)
	})
}

// The cluster of a Database stays, while its data goes with it, when its Database is gone,
// and is deleted by the garbage collector once its data stays.
func TestClusterOutlivesItsDatabase(t *testing.T) {
	c, cluster := withRetainData(t)
	k := keptKinds(cluster.Namespace)
	db, pg := k["Database"], k["PostgresCluster"]
	db.make(t, c, v1alpha1.DeletionRetain)
	pg.obj.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(db.obj, v1alpha1.GroupVersion.WithKind("Database"))})
	pg.make(t, c, v1alpha1.DeletionDelete)
	wantAccepted(t, c.Delete(t.Context(), db.obj))
	wantRefusal(t, as(t, cluster, "generic-garbage-collector").Delete(t.Context(), pg.obj), stillGoes)
	pg.record(t, c, v1alpha1.DeletionRetain)
	apitest.Eventually(t, "the cluster goes", func(ctx context.Context) (bool, string) {
		err := c.Get(ctx, client.ObjectKeyFromObject(pg.obj), pg.obj)
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}
