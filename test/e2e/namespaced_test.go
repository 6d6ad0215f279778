//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	kustomizations "github.com/holdfast-db/holdfast/test/kustomization"
)

// listedNamespace is the one that the overlay lists.
const listedNamespace = "databases"

// namespacedOperator: the overlay's operator runs clusters where it is configured to,
// and neither touches one elsewhere nor could. It takes the place of the
// cluster-wide one: two would fight over the listed namespace.
func namespacedOperator(t *testing.T) {
	needKind(t, postgres)
	image := env.operatorImage
	listed := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: listedNamespace, Labels: map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted",
	}}}
	takeAway(t, listed)
	uninstallOperator(t)
	t.Cleanup(func() {
		if t.Failed() {
			dumpNamespace(t, listedNamespace)
			dumpNamespace(t, operatorNamespace)
		}
		takeAway(t, listed)
	})
	must(t, env.client.Create(t.Context(), listed), "create the listed namespace")
	installOverlay(t, "namespaced", image)

	elsewhere := createCluster(t, newNamespace(t, ""), orders, 1)
	c := createCluster(t, listedNamespace, orders, 2)
	c.waitReady()
	if got := c.runSQL(leading, "select count(*) from pg_stat_replication"); got != "1" {
		t.Errorf("%s replicas stream, want 1", got)
	}
	c.revertsBudget()

	testRights(t, installed, "holdfast-manager", listedNamespace, elsewhere.namespace)
	elsewhere.checkUntouched()
	for name, text := range readLogs(t.Context(), t, operatorNamespace) {
		if strings.Contains(text, "forbidden") {
			t.Errorf("%s asks for what it has no right to:\n%s", name, text)
		}
	}
}

// installOverlay installs an overlay in place of the operator that runs here, and waits for
// it. CRDs and namespace stay after the test: others need them.
func installOverlay(t *testing.T, name, image string) {
	t.Helper()
	applyOverlay(t, name, image, "Namespace", "CustomResourceDefinition")
	t.Cleanup(func() { installed.releaseLease(t) }) // before its rights go
	if got := installedImage(t); got != image {
		t.Fatalf("the overlay's operator is of %s, want %s", got, image)
	}
	eventually(t, operatorTimeout, "the overlay's operator serves", installed.serves)
}

// applyOverlay applies an overlay as a user does who refers to it with an image of his own.
// When the test ends it is removed, but for some kinds.
func applyOverlay(t *testing.T, name, image string, kept ...string) {
	t.Helper()
	// kustomize follows links before it goes up from a folder: both ends of the
	// way between them are what the links lead to.
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err, "find the temporary folder")
	overlay, err := filepath.Abs("../../kustomize/overlays/" + name)
	must(t, err, "find the overlay")
	overlay, err = filepath.EvalSymlinks(overlay)
	must(t, err, "find the overlay")
	overlay, err = filepath.Rel(dir, overlay)
	must(t, err, "find the overlay")
	repository, tag, _ := strings.Cut(image, ":")
	file := fmt.Sprintf("resources: [%s]\nimages: [{name: %s, newName: %s, newTag: %s}]\n", overlay, kustomizations.OperatorImage, repository, tag)
	must(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(file), 0o600), "write a kustomization")

	for _, obj := range renderFolder(t, dir) {
		if !slices.Contains(kept, obj.GetKind()) {
			t.Cleanup(func() { takeAway(t, obj) })
		}
		err := env.client.Patch(t.Context(), obj.DeepCopy(), client.Apply, client.FieldOwner("e2e"), client.ForceOwnership) //nolint:staticcheck // unstructured has no apply configuration
		must(t, err, "apply "+obj.GetKind()+" "+obj.GetName())
	}
}

// editedBudget is what an edit by hand sets.
var editedBudget = intstr.FromInt32(7)

// revertsBudget: an edit by hand is put back.
func (c *cluster) revertsBudget() {
	c.t.Helper()
	c.editBudget()
	c.awaitBudget()
}

func (c *cluster) readBudget() *policyv1.PodDisruptionBudget {
	c.t.Helper()
	var budget policyv1.PodDisruptionBudget
	c.readObject(&budget, c.name)
	return &budget
}

func (c *cluster) editBudget() {
	c.t.Helper()
	must(c.t, mergePatch(`{"spec":{"maxUnavailable":7}}`)(c.t.Context(), c.readBudget(), "e2e"), "edit the budget")
}

// awaitBudget waits until the edit is put back.
func (c *cluster) awaitBudget() {
	c.t.Helper()
	eventually(c.t, revertTimeout, "the budget is put back", func(ctx context.Context) error {
		var budget policyv1.PodDisruptionBudget
		err := env.client.Get(ctx, c.nameOf(""), &budget)
		if err == nil && budget.Spec.MaxUnavailable != nil && *budget.Spec.MaxUnavailable == editedBudget {
			err = errors.New("it is as the other client left it")
		}
		return err
	})
}

// checkUntouched: no operator has observed the cluster, nor made anything for it.
func (c *cluster) checkUntouched() {
	c.t.Helper()
	obj := c.getCluster()
	if obj.Status.ObservedGeneration != -1 || len(obj.Status.Conditions) > 0 {
		c.t.Errorf("the operator reports on %s: %+v", c.namespace, obj.Status)
	}
	for _, entry := range obj.ManagedFields {
		if entry.Manager == v1alpha1.FieldManager {
			c.t.Errorf("the operator wrote to %s: %+v", c.namespace, entry)
		}
	}
	have, err := c.listRemaining(c.t.Context())
	must(c.t, err, "list what the cluster consists of")
	if len(have) > 0 {
		c.t.Errorf("the operator made %v", have)
	}
}

// testRights asks, as kubectl auth can-i does, for every right of the operator's
// role: it has each in one namespace and none in the other.
func testRights(t *testing.T, o *operator, roleName, inside, outside string) {
	t.Helper()
	var role rbacv1.ClusterRole
	must(t, env.client.Get(t.Context(), client.ObjectKey{Name: roleName}, &role), "read the operator's role")
	asked := 0
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			if group == "storage.k8s.io" {
				continue // of no namespace: granted everywhere
			}
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					right := authorizationv1.ResourceAttributes{Group: group, Verb: verb}
					right.Resource, right.Subresource, _ = strings.Cut(resource, "/")
					for namespace, want := range map[string]bool{inside: true, outside: false, "kube-system": false, metav1.NamespaceAll: false} {
						right.Namespace = namespace
						if got := o.isAllowed(t, right); got != want {
							t.Errorf("the operator may %s %s.%s in %q: %t, want %t", verb, resource, group, namespace, got, want)
						}
						asked++
					}
				}
			}
		}
	}
	if asked < 100 {
		t.Errorf("only %d questions", asked)
	}
}

func (o *operator) isAllowed(t *testing.T, right authorizationv1.ResourceAttributes) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + o.namespace + ":" + o.name,
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + o.namespace, "system:authenticated"},
		ResourceAttributes: &right,
	}}
	must(t, env.client.Create(t.Context(), review), "ask for a right")
	return review.Status.Allowed
}
