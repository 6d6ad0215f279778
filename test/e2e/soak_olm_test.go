//go:build e2e && soak

package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	operatorsAPI = "operators.coreos.com/"
	// bundleVersion is the version in the catalog.
	bundleVersion = "v0.1.0"
	bundleName    = "holdfast." + bundleVersion
)

// TestSoakOLM: the Operator Lifecycle Manager installs the operator from a catalog, for a
// Subscription, in place of the one that is installed. The operator runs a cluster. Deleting
// the Subscription and the version, as a user does, removes the operator alone: definitions,
// cluster and volumes stay, and the database answers from the same pods. A second
// Subscription installs an operator that takes the cluster on.
func TestSoakOLM(t *testing.T) {
	needKind(t, postgres)
	image := env.operatorImage
	namespace := newNamespace(t, "")
	schemas.Lock() // the definitions are written anew
	t.Cleanup(schemas.Unlock)
	uninstallOperator(t)
	m := startLifecycleManager(t)
	m.serveCatalog(image)
	t.Cleanup(m.removeAll) // while the programs run: they remove what they have created
	group := guideObject(t, "OperatorGroup")
	must(t, env.client.Create(t.Context(), group), "create an OperatorGroup for all namespaces")

	m.subscribe()
	m.awaitInstalled(image)
	c := createCluster(t, namespace, orders, 2)
	c.waitReady()
	c.revertsBudget()
	c.runSQL(leading, "create table kept as select 42 as answer")
	pods, volumes, definitions := c.allIncarnations(), volumeUIDs(t, namespace), definitionUIDs(t)

	m.unsubscribe()
	if now := definitionUIDs(t); now != definitions {
		t.Errorf("after the removal the definitions are\n%s\nbefore:\n%s", now, definitions)
	}
	c.getCluster()
	unharmed := func(after string) {
		t.Helper()
		if now := volumeUIDs(t, namespace); now != volumes {
			t.Errorf("after the %s the volumes are\n%s\nbefore:\n%s", after, now, volumes)
		}
		if now := c.allIncarnations(); now != pods {
			t.Errorf("after the %s a database restarted:\n%s\nbefore:\n%s", after, now, pods)
		}
		if got := c.runSQL(leading, "select answer from kept"); got != "42" {
			t.Errorf("after the %s the row is %q", after, got)
		}
	}
	unharmed("removal")

	m.subscribe()
	m.awaitInstalled(image)
	installed.waitForLeader(t)
	c.awaitHandled()
	c.revertsBudget()
	unharmed("second installation")
}

// volumeUIDs are the identities of a namespace's volumes.
func volumeUIDs(t *testing.T, namespace string) string {
	t.Helper()
	var list corev1.PersistentVolumeClaimList
	must(t, env.client.List(t.Context(), &list, client.InNamespace(namespace)), "list the volumes")
	if len(list.Items) == 0 {
		t.Fatalf("%s has no volume", namespace)
	}
	text := ""
	for _, volume := range list.Items {
		text += fmt.Sprintf("%s %s deleted=%t\n", volume.Name, volume.UID, volume.DeletionTimestamp != nil)
	}
	return text
}

// definitionUIDs are the identities of Holdfast's definitions.
func definitionUIDs(t *testing.T) string {
	t.Helper()
	text := ""
	for _, obj := range renderFolder(t, "../../config/crd") {
		live := liveObject(t, obj)
		text += fmt.Sprintf("%s %s deleted=%t\n", live.GetName(), live.GetUID(), live.GetDeletionTimestamp() != nil)
	}
	return text
}

// manifestsOfOLM are those that the page on installation has users apply.
var manifestsOfOLM = regexp.MustCompile("(?s)```yaml\n([^`]*\nkind: Subscription\n[^`]*)```")

// guideObject is an object of the page on installation.
func guideObject(t *testing.T, kind string) *unstructured.Unstructured {
	t.Helper()
	page, err := os.ReadFile(sourceTree + "/docs/guides/installation.md")
	must(t, err, "read the page")
	found := manifestsOfOLM.FindSubmatch(page)
	if found == nil {
		t.Fatal("the page has no Subscription")
	}
	for _, obj := range objectsOf(t, found[1]) {
		if obj.GetKind() == kind {
			return obj
		}
	}
	t.Fatalf("the page has no %s beside the Subscription", kind)
	return nil
}

// subscribe asks for the channel's newest version, in the catalog of the test.
func (m *lifecycleManager) subscribe() {
	m.t.Helper()
	u := guideObject(m.t, "Subscription")
	for field, value := range map[string]string{"source": catalogName, "sourceNamespace": m.namespace} {
		must(m.t, unstructured.SetNestedField(u.Object, value, "spec", field), "name the catalog")
	}
	must(m.t, env.client.Create(m.t.Context(), u), "subscribe")
}

// newSubscription is the Subscription without its content.
func newSubscription() *unstructured.Unstructured {
	return fluxObject(operatorsAPI+"v1alpha1", "Subscription", operatorNamespace, "holdfast")
}

// newVersion is the ClusterServiceVersion without its content.
func newVersion() *unstructured.Unstructured {
	return fluxObject(operatorsAPI+"v1alpha1", "ClusterServiceVersion", operatorNamespace, bundleName)
}

// awaitInstalled waits until OLM says that the version is installed, and checks that its
// operator serves, with the rights that users are given.
func (m *lifecycleManager) awaitInstalled(image string) {
	m.t.Helper()
	eventually(m.t, operatorTimeout, "OLM installs the version", func(ctx context.Context) error {
		if err := m.checkRunning(); err != nil {
			return err
		}
		version := newVersion()
		if err := env.client.Get(ctx, client.ObjectKeyFromObject(version), version); err != nil {
			return fmt.Errorf("%w; the Subscription has %v", err, m.describeStatus(ctx, newSubscription()))
		}
		if phase, _, _ := unstructured.NestedString(version.Object, "status", "phase"); phase != "Succeeded" {
			return fmt.Errorf("the version is %s: %v", phase, m.describeStatus(ctx, version))
		}
		return nil
	})
	eventually(m.t, operatorTimeout, "the operator serves", installed.serves)
	deployment, err := installed.getDeployment(m.t.Context())
	must(m.t, err, "the operator's Deployment")
	if got := deployment.Spec.Template.Spec.Containers[0].Image; got != image || deployment.Labels["olm.owner"] != bundleName {
		m.t.Errorf("the operator is of the image %s and the version %q, want %s and %s", got, deployment.Labels["olm.owner"], image, bundleName)
	}
	for _, name := range []string{"holdfast-view", "holdfast-edit"} {
		must(m.t, env.client.Get(m.t.Context(), types.NamespacedName{Name: name}, &rbacv1.ClusterRole{}), "read the role for users "+name)
	}
}

// describeStatus is what a message quotes of an object: conditions, or where it is.
func (m *lifecycleManager) describeStatus(ctx context.Context, obj *unstructured.Unstructured) any {
	if err := env.client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
		return err
	}
	status, _, _ := unstructured.NestedMap(obj.Object, "status")
	short := map[string]any{}
	for _, field := range []string{"state", "reason", "message", "installedCSV", "currentCSV", "requirementStatus"} {
		if value, set := status[field]; set {
			short[field] = value
		}
	}
	if obj.GetKind() == "Subscription" {
		short["conditions"] = status["conditions"]
	}
	return short
}

// unsubscribe removes the operator as OLM's users do, and waits until everything of the
// version is gone.
func (m *lifecycleManager) unsubscribe() {
	m.t.Helper()
	for _, obj := range []*unstructured.Unstructured{newSubscription(), newVersion()} {
		must(m.t, env.client.Delete(m.t.Context(), obj), "delete the "+obj.GetKind())
	}
	eventually(m.t, goneTimeout, "the version is gone", func(ctx context.Context) error {
		version := newVersion()
		return checkGone(env.client.Get(ctx, client.ObjectKeyFromObject(version), version))
	})
	eventually(m.t, goneTimeout, "the operator is gone", func(ctx context.Context) error {
		_, err := installed.getDeployment(ctx)
		return checkGone(err)
	})
	eventually(m.t, goneTimeout, "the operator's pods and rights are gone", func(ctx context.Context) error {
		var pods corev1.PodList
		var roles rbacv1.ClusterRoleList
		if err := env.client.List(ctx, &pods, client.InNamespace(operatorNamespace)); err != nil {
			return err
		}
		// OLM leaves the roles for users, which name the version, but not its kind.
		if err := env.client.List(ctx, &roles, client.MatchingLabels{"olm.owner": bundleName, "olm.owner.kind": "ClusterServiceVersion"}); err != nil {
			return err
		}
		if len(pods.Items) > 0 || len(roles.Items) > 0 {
			return fmt.Errorf("%d pods, %d roles", len(pods.Items), len(roles.Items))
		}
		return nil
	})
}
