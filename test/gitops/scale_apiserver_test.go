//go:build apiserver

package gitops

import (
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// Git and an autoscaler share a cluster as long as Git does not declare
// replicas; docs/guides/argocd.md says so.
func TestAutoscaledReplicas(t *testing.T) {
	cluster := apitest.New(t)
	c := newAdministrator(t, cluster.Config)
	manifest := readExample(t, root+"/examples/postgrescluster.yaml", cluster.Namespace)
	declare := func(replicas any) {
		t.Helper()
		o := manifest.DeepCopy()
		delete(o.Object["spec"].(map[string]any), "replicas")
		if replicas != nil {
			o.Object["spec"].(map[string]any)["replicas"] = replicas
		}
		if err := applyAs(t.Context(), c, o, "flux", client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
	scale := func(replicas int32) {
		t.Helper()
		o := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: manifest.GetNamespace(), Name: manifest.GetName()}}
		s := &autoscalingv1.Scale{}
		if err := c.SubResource("scale").Get(t.Context(), o, s); err != nil {
			t.Fatal(err)
		}
		s.Spec.Replicas = replicas
		if err := c.SubResource("scale").Update(t.Context(), o, client.WithSubResourceBody(s)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when string, replicas int64) {
		t.Helper()
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(manifest.GroupVersionKind())
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(manifest), o); err != nil {
			t.Fatal(err)
		}
		if got := fieldAt(o, "spec", "replicas"); got != replicas {
			t.Errorf("%s: replicas %v, want %d (%v)", when, got, replicas, managerNames(o))
		}
	}
	declare(nil)
	want("without a declaration", 1)
	scale(4)
	want("after the autoscaler", 4)
	declare(nil)
	want("after Git applied again", 4)

	declare(int64(3))
	want("declared in Git", 3)
	scale(5)
	declare(int64(3))
	want("declared in Git, against an autoscaler", 3)
	declare(nil)
	want("when the declaration is taken out of Git", 1)

	// The way out that keeps what is there: another manager owns the field first.
	declare(int64(3))
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(3)}}}
	o.SetGroupVersionKind(manifest.GroupVersionKind())
	o.SetName(manifest.GetName())
	o.SetNamespace(manifest.GetNamespace())
	if err := applyAs(t.Context(), c, o, "replicas-owner"); err != nil {
		t.Fatal(err)
	}
	declare(nil)
	want("when another manager owned it as well", 3)
}

func managerNames(o *unstructured.Unstructured) (names []string) {
	for _, entry := range o.GetManagedFields() {
		names = append(names, entry.Manager+" "+string(entry.Operation)+" "+entry.Subresource)
	}
	return names
}
