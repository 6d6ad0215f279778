//go:build apiserver

package gitops

import (
	"context"
	"fmt"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/apitest"
)

// isAllowed asks the API server what a user may do to our kind or another.
func isAllowed(t *testing.T, c client.Client, user, namespace, verb, group, resource string) bool {
	t.Helper()
	name, subresource := resource, ""
	if n, err := fmt.Sscanf(resource, "postgresclusters/%s", &subresource); n == 1 && err == nil {
		name = "postgresclusters"
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: group, Resource: name, Subresource: subresource,
		},
	}}
	if err := c.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// installKinds applies the objects of a build that are of the given kinds.
func installKinds(t *testing.T, c client.Client, built objects, kinds ...string) {
	t.Helper()
	for _, o := range built {
		for _, kind := range kinds {
			if o.GetKind() != kind {
				continue
			}
			if o.GetNamespace() != "" {
				ensureNamespace(t, c, o.GetNamespace())
			}
			if err := applyAs(t.Context(), c, o, "git", client.ForceOwnership); err != nil {
				t.Fatalf("%s: %v", objectID(o), err)
			}
			t.Cleanup(func() { _ = c.Delete(context.Background(), o) })
		}
	}
}

// The cluster's own roles view, edit and admin cover our kind.
func TestTenantsRoles(t *testing.T) {
	cluster := apitest.New(t)
	c := newAdministrator(t, cluster.Config)
	installKinds(t, c, buildKustomization(t, install), "ClusterRole")
	for _, role := range []string{"view", "edit", "admin"} {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "User", Name: role}},
		}
		if err := c.Create(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		verb, resource    string
		view, edit, admin bool
	}{
		{"get", "postgresclusters", true, true, true},
		{"watch", "postgresclusters", true, true, true},
		{"get", "postgresclusters/status", true, true, true},
		{"get", "postgresclusters/scale", true, true, true},
		{"create", "postgresclusters", false, true, true},
		{"patch", "postgresclusters", false, true, true},
		{"delete", "postgresclusters", false, true, true},
		{"deletecollection", "postgresclusters", false, true, true},
		{"update", "postgresclusters/scale", false, true, true},
		{"patch", "postgresclusters/scale", false, true, true},
		{"patch", "postgresclusters/status", false, false, false},
		{"update", "postgresclusters/finalizers", false, false, false},
	} {
		for user, want := range map[string]bool{"view": test.view, "edit": test.edit, "admin": test.admin} {
			what := fmt.Sprintf("%s %s %s: %t", user, test.verb, test.resource, want)
			apitest.Eventually(t, what, func(context.Context) (bool, string) {
				return isAllowed(t, c, user, cluster.Namespace, test.verb, "holdfast.dev", test.resource) == want, "not yet"
			})
			if isAllowed(t, c, user, "default", test.verb, "holdfast.dev", test.resource) {
				t.Errorf("%s may %s %s in a namespace that is not his", user, test.verb, test.resource)
			}
		}
	}
}

// Each of several operators has rights in its own namespaces, and none in those of another.
func TestShardedRights(t *testing.T) {
	cluster := apitest.New(t)
	c := newAdministrator(t, cluster.Config)
	built := buildKustomization(t, root+"/kustomize/overlays/sharded")
	installKinds(t, c, built, "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount")
	for _, shard := range []string{"a", "b"} {
		operator := "system:serviceaccount:holdfast-shard-" + shard + ":holdfast-" + shard
		for _, other := range []string{"a", "b"} {
			for _, right := range [][3]string{
				{"patch", "", "secrets"}, {"patch", "holdfast.dev", "postgresclusters/status"}, {"create", "holdfast.dev", "backups"}, {"delete", "", "pods"},
			} {
				want := shard == other
				what := fmt.Sprintf("%s: %s %s in databases-%s: %t", shard, right[0], right[2], other, want)
				apitest.Eventually(t, what, func(context.Context) (bool, string) {
					return isAllowed(t, c, operator, "databases-"+other, right[0], right[1], right[2]) == want, "not yet"
				})
			}
			own := isAllowed(t, c, operator, "holdfast-shard-"+other, "get", "", "pods")
			if own != (shard == other) {
				t.Errorf("%s reads pods of the operator %s: %t", shard, other, own)
			}
		}
	}
}

// Limited to some namespaces, the operator works there, reads its own pod, and
// sees nothing of the rest.
func TestNamespacedRights(t *testing.T) {
	cluster := apitest.New(t)
	c := newAdministrator(t, cluster.Config)
	built := buildKustomization(t, root+"/kustomize/overlays/namespaced")
	installKinds(t, c, built, "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount")
	const operator = "system:serviceaccount:holdfast-system:holdfast"
	for _, test := range []struct {
		namespace, verb, group, resource string
		want                             bool
	}{
		{"databases", "patch", "", "secrets", true},
		{"databases", "watch", "holdfast.dev", "postgresclusters", true},
		{"databases", "patch", "holdfast.dev", "postgresclusters/status", true},
		{"databases", "patch", "holdfast.dev", "postgresclusters", true}, // those of Databases
		{"databases", "delete", "holdfast.dev", "postgresclusters", false},
		{"databases", "patch", "holdfast.dev", "etcdclusters", false},
		{"databases", "patch", "holdfast.dev", "databases", false},
		{"holdfast-system", "get", "", "pods", true},
		{"holdfast-system", "list", "", "pods", false},
		{"holdfast-system", "get", "", "secrets", false},
		{"default", "get", "", "secrets", false},
		{"default", "list", "holdfast.dev", "postgresclusters", false},
		{"", "get", "storage.k8s.io", "storageclasses", true},
	} {
		what := fmt.Sprintf("%s %s in %q: %t", test.verb, test.resource, test.namespace, test.want)
		apitest.Eventually(t, what, func(context.Context) (bool, string) {
			return isAllowed(t, c, operator, test.namespace, test.verb, test.group, test.resource) == test.want, "not yet"
		})
	}
}
