//go:build apiserver

package gitops

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// withAdmission is a namespace in which the policies are known to be in force. They
// hold for the whole API server, so the next test begins when they no longer do.
func withAdmission(t *testing.T) (client.Client, *apitest.Cluster) {
	t.Helper()
	cluster := apitest.New(t)
	c := newAdministrator(t, cluster.Config)
	t.Cleanup(func() {
		apitest.Eventually(t, "the policies are gone", func(ctx context.Context) (bool, string) {
			err := c.Create(ctx, cleanOut(metav1.NamespaceDefault, "probe"), client.DryRunAll)
			if err != nil {
				return false, err.Error()
			}
			return true, ""
		})
	})
	installKinds(t, c, withComponents(t, "admission-policy"), "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
	apitest.Eventually(t, "the policies are in force", func(ctx context.Context) (bool, string) {
		err := c.Create(ctx, cleanOut(cluster.Namespace, "probe"), client.DryRunAll)
		if err == nil {
			return false, "admitted"
		}
		return strings.Contains(err.Error(), "allow-data-deletion"), err.Error()
	})
	return c, cluster
}

// cleanOut is a cluster whose data goes with it.
func cleanOut(namespace, name string) *v1alpha1.PostgresCluster {
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	c.Spec.Version, c.Spec.DeletionPolicy = "17", v1alpha1.DeletionDelete
	c.Spec.Storage.Size.Set(1 << 30)
	return c
}

func wantRefusal(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("got %v, want a refusal that says %q", err, part)
	}
}

func wantAccepted(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// allowNamespace labels the namespace and waits until the policy knows.
func allowNamespace(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"holdfast.dev/allow-data-deletion":"true"}}}`))
	if err := c.Patch(t.Context(), ns, patch); err != nil {
		t.Fatal(err)
	}
	apitest.Eventually(t, "the label is known", func(ctx context.Context) (bool, string) {
		err := c.Create(ctx, cleanOut(namespace, "probe"), client.DryRunAll)
		if err != nil {
			return false, err.Error()
		}
		return true, ""
	})
}

// Data goes with a cluster only where the namespace allows it.
func TestPolicyOnDeletionPolicy(t *testing.T) {
	c, cluster := withAdmission(t)
	wantRefusal(t, c.Create(t.Context(), cleanOut(cluster.Namespace, "mistaken")), "allow-data-deletion=true")
	kept := cleanOut(cluster.Namespace, "kept")
	kept.Spec.DeletionPolicy = v1alpha1.DeletionRetain
	wantAccepted(t, c.Create(t.Context(), kept))
	kept.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	wantRefusal(t, c.Update(t.Context(), kept), "allow-data-deletion=true")

	allowNamespace(t, c, cluster.Namespace)
	wantAccepted(t, c.Create(t.Context(), cleanOut(cluster.Namespace, "meant")))
}

// Such a cluster is deleted after it was annotated with its name, or with its
// namespace.
func TestPolicyOnDeletion(t *testing.T) {
	c, cluster := withAdmission(t)
	allowNamespace(t, c, cluster.Namespace)
	orders := cleanOut(cluster.Namespace, "orders")
	wantAccepted(t, c.Create(t.Context(), orders))
	wantRefusal(t, c.Delete(t.Context(), orders), "confirm-deletion=orders")
	wantRefusal(t, c.DeleteAllOf(t.Context(), orders, client.InNamespace(cluster.Namespace)), "confirm-deletion=orders")
	orders.Annotations = map[string]string{"holdfast.dev/confirm-deletion": "another"}
	wantAccepted(t, c.Update(t.Context(), orders))
	wantRefusal(t, c.Delete(t.Context(), orders), "confirm-deletion=orders")

	controller := rest.CopyConfig(cluster.Config)
	controller.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:namespace-controller", Groups: []string{"system:masters"}}
	wantAccepted(t, newAdministrator(t, controller).Delete(t.Context(), orders, client.DryRunAll))

	orders.Annotations["holdfast.dev/confirm-deletion"] = "orders"
	wantAccepted(t, c.Update(t.Context(), orders))
	wantAccepted(t, c.Delete(t.Context(), orders))

	retained := cleanOut(cluster.Namespace, "retained")
	retained.Spec.DeletionPolicy = v1alpha1.DeletionRetain
	wantAccepted(t, c.Create(t.Context(), retained))
	wantAccepted(t, c.Delete(t.Context(), retained))
}

// The operator may write a cluster that belongs to a Database, and no other, and no
// user is held to that.
func TestPolicyOnTheOperator(t *testing.T) {
	c, cluster := withAdmission(t)
	config := rest.CopyConfig(cluster.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:holdfast-system:holdfast", Groups: []string{"system:masters"}}
	operator := newAdministrator(t, config)
	kept := func(name string) *v1alpha1.PostgresCluster {
		obj := cleanOut(cluster.Namespace, name)
		obj.Spec.DeletionPolicy = v1alpha1.DeletionRetain
		return obj
	}
	// It exists: an object whose owner does not is deleted.
	owner := &v1alpha1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "orders"}, Spec: v1alpha1.DatabaseSpec{Engine: "postgres", Version: "17"}}
	wantAccepted(t, c.Create(t.Context(), owner))
	database := []metav1.OwnerReference{{APIVersion: "holdfast.dev/v1alpha1", Kind: "Database", Name: owner.Name, UID: owner.UID, Controller: new(true)}}

	const refusal = "which belongs to no Database"
	// Each policy comes into force by itself.
	apitest.Eventually(t, "the policy on the operator is in force", func(ctx context.Context) (bool, string) {
		err := operator.Create(ctx, kept("orders"), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), refusal), fmt.Sprint(err)
	})
	wantRefusal(t, operator.Create(t.Context(), kept("orders")), refusal)
	own := kept("own")
	wantAccepted(t, c.Create(t.Context(), own))
	own.Spec.Replicas = new(int32(2))
	wantRefusal(t, operator.Update(t.Context(), own), refusal)
	own.OwnerReferences = database
	wantRefusal(t, operator.Update(t.Context(), own), refusal) // it may not take a cluster, either

	orders := kept("orders")
	orders.OwnerReferences = database
	wantAccepted(t, operator.Create(t.Context(), orders))
	orders.Spec.Replicas = new(int32(2))
	wantAccepted(t, operator.Update(t.Context(), orders))
	orders.OwnerReferences = nil
	wantAccepted(t, c.Update(t.Context(), orders))
	orders.OwnerReferences = database
	wantRefusal(t, operator.Update(t.Context(), orders), refusal)
}

// Each of several operators is held to that by its own account, with the rights that its
// overlay gives it. An account of another one that only has such a name is not.
func TestPolicyOnShardedOperators(t *testing.T) {
	c, cluster := withAdmission(t)
	sharded := buildKustomization(t, root+"/kustomize/overlays/sharded")
	installKinds(t, c, sharded, "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount")
	as := func(user string) client.Client {
		config := rest.CopyConfig(cluster.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
		return newAdministrator(t, config)
	}
	kept := func(namespace string) *v1alpha1.PostgresCluster {
		obj := cleanOut(namespace, "orders")
		obj.Spec.DeletionPolicy = v1alpha1.DeletionRetain
		return obj
	}
	accounts := 0
	for _, o := range sharded {
		if o.GetKind() != "ServiceAccount" {
			continue
		}
		accounts++
		shard := o.GetName()[strings.LastIndex(o.GetName(), "-")+1:]
		operator := as("system:serviceaccount:" + o.GetNamespace() + ":" + o.GetName())
		apitest.Eventually(t, "the policy holds "+o.GetName(), func(ctx context.Context) (bool, string) {
			err := operator.Create(ctx, kept("databases-"+shard), client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), "which belongs to no Database"), fmt.Sprint(err)
		})
	}
	if accounts != 2 {
		t.Errorf("the overlay has %d accounts, want 2", accounts)
	}

	deployer := "system:serviceaccount:" + cluster.Namespace + ":holdfast-deployer"
	editor := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "deployer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{Kind: "User", Name: deployer}},
	}
	wantAccepted(t, c.Create(t.Context(), editor))
	apitest.Eventually(t, "another account creates a cluster", func(ctx context.Context) (bool, string) {
		err := as(deployer).Create(ctx, kept(cluster.Namespace), client.DryRunAll)
		return err == nil, fmt.Sprint(err)
	})
}
