//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// createStrictly refuses unknown fields, as kubectl does.
func createStrictly(t *testing.T, obj *unstructured.Unstructured) error {
	t.Helper()
	return env.client.Create(t.Context(), obj, client.FieldValidation(metav1.FieldValidationStrict))
}

// examples: each one works as it stands.
func examples(t *testing.T) {
	needImages(t, "postgres", "17", 1)
	files, err := filepath.Glob("../../examples/*.yaml")
	must(t, err, "list the examples")
	if len(files) < 3 {
		t.Fatalf("only %d examples", len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			must(t, err, "read the example")
			obj := &unstructured.Unstructured{}
			must(t, yaml.UnmarshalStrict(data, &obj.Object), "read the example")
			namespace := newNamespace(t, "")
			obj.SetNamespace(namespace)
			c := &cluster{t: t, namespace: namespace, name: obj.GetName(), history: follow(t, namespace, obj.GetName())}
			must(t, createStrictly(t, obj), "create the example")
			ready := c.waitReady()
			must(t, inForce(t.Context(), ready), "what the example declares")
			checkPods(t, c, ready)
		})
	}
}

// checkPods compares what a spec says of pods with the pods.
func checkPods(t *testing.T, c *cluster, obj *v1alpha1.PostgresCluster) {
	t.Helper()
	for _, pod := range c.pods() {
		for key, value := range obj.Spec.PodLabels {
			if pod.Labels[key] != value {
				t.Errorf("%s: label %s is %q, want %q", pod.Name, key, pod.Labels[key], value)
			}
		}
		for _, container := range pod.Spec.Containers {
			for kind, want := range obj.Spec.Resources.Limits {
				if have := container.Resources.Limits[kind]; container.Name == "postgres" && have.Cmp(want) != 0 {
					t.Errorf("%s: limit of %s is %s, want %s", pod.Name, kind, have.String(), want.String())
				}
			}
		}
		if obj.Spec.TopologySpreadConstraints != nil && len(pod.Spec.TopologySpreadConstraints) != len(obj.Spec.TopologySpreadConstraints) {
			t.Errorf("%s is spread by %v", pod.Name, pod.Spec.TopologySpreadConstraints)
		}
	}
}
