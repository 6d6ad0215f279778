//go:build e2e || soak

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// testExamples: each one is accepted as it stands, also by a client that refuses
// unknown fields. fluxIdleSyncs runs them.
func testExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	must(t, err, "list the examples")
	if len(files) < 3 {
		t.Fatalf("only %d examples", len(files))
	}
	namespace := newNamespace(t, "")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			must(t, err, "read the example")
			obj := &unstructured.Unstructured{}
			must(t, yaml.UnmarshalStrict(data, &obj.Object), "read the example")
			obj.SetNamespace(namespace)
			must(t, env.client.Create(t.Context(), obj, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)), "create the example")
		})
	}
}

// checkExample: a cluster that an example declares runs as it says.
func checkExample(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	k := kindOf(t, obj)
	c := followSubject(t, k, obj.GetNamespace(), obj.GetName())
	ready := c.waitReady()
	eventually(t, serviceTimeout, "what the example declares", func(ctx context.Context) error { return k.inForce(ctx, ready) })
	checkPods(t, c, ready.Common())
}

func kindOf(t *testing.T, obj *unstructured.Unstructured) *kind {
	t.Helper()
	i := slices.IndexFunc(allKinds(), func(k *kind) bool { return k.name == obj.GetKind() })
	if i < 0 {
		t.Fatalf("a manifest of an unknown kind %s", obj.GetKind())
	}
	return allKinds()[i]
}

// checkPods compares what a spec says of pods with the pods.
func checkPods(t *testing.T, c *subject, spec *v1alpha1.CommonSpec) {
	t.Helper()
	for _, pod := range c.listPods() {
		for key, value := range spec.PodLabels {
			if pod.Labels[key] != value {
				t.Errorf("%s: label %s is %q, want %q", pod.Name, key, pod.Labels[key], value)
			}
		}
		for _, container := range pod.Spec.Containers {
			for kind, want := range spec.Resources.Limits {
				if have := container.Resources.Limits[kind]; container.Name == c.kind.engine && have.Cmp(want) != 0 {
					t.Errorf("%s: limit of %s is %s, want %s", pod.Name, kind, have.String(), want.String())
				}
			}
		}
		if spec.TopologySpreadConstraints != nil && len(pod.Spec.TopologySpreadConstraints) != len(spec.TopologySpreadConstraints) {
			t.Errorf("%s is spread by %v", pod.Name, pod.Spec.TopologySpreadConstraints)
		}
	}
}
