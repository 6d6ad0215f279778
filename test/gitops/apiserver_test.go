//go:build apiserver

package gitops

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/internal/apitest"
)

func TestMain(m *testing.M) { apitest.RunTests(m) }

// strictly refuses unknown fields, as Flux and kubectl do.
var strictly = client.FieldValidation(metav1.FieldValidationStrict)

func newAdministrator(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// applyAs is what Git tools do with an object: server-side apply under a name.
func applyAs(ctx context.Context, c client.Client, o *unstructured.Unstructured, manager string, opts ...client.PatchOption) error {
	o.SetManagedFields(nil)
	body, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	return c.Patch(ctx, o, client.RawPatch(types.ApplyPatchType, body), append(opts, client.FieldOwner(manager))...)
}

// ensureNamespace makes a namespace for dry runs, which need one.
func ensureNamespace(t *testing.T, c client.Client, name string) {
	t.Helper()
	err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// readExample reads a manifest of examples/.
func readExample(t *testing.T, file, namespace string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(readFile(t, file)), &o.Object); err != nil {
		t.Fatal(err)
	}
	o.SetNamespace(namespace)
	return o
}

func globFiles(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	return files
}

// The API server takes everything that kustomize builds here, without a field
// that it does not know.
func TestBuildsAreAccepted(t *testing.T) {
	c := newAdministrator(t, apitest.New(t).Config)
	dirs := slices.Concat(globFiles(t, "kustomize/overlays/*"), globFiles(t, "examples/overlays/*"), globFiles(t, "examples/point-in-time"))
	builds := map[string]objects{"every component": withComponents(t, "admission-policy", "high-availability", "image-mirror",
		"monitoring", "namespaced", "network-policy", "restricted-namespaces")}
	for _, dir := range dirs {
		builds[dir] = buildKustomization(t, dir)
	}
	for name, built := range builds {
		t.Run(filepath.Base(name), func(t *testing.T) {
			for _, o := range built {
				if o.GroupVersionKind().Group == "monitoring.coreos.com" {
					continue // another operator's kinds; TestAlerts reads them
				}
				if o.GetKind() == "PostgresCluster" && o.GetNamespace() == "" {
					o.SetNamespace("default")
				}
				if o.GetNamespace() != "" {
					ensureNamespace(t, c, o.GetNamespace())
				}
				if err := applyAs(t.Context(), c, o, "git", client.DryRunAll, client.ForceOwnership, strictly); err != nil {
					t.Errorf("%s: %v", objectID(o), err)
				}
			}
		})
	}
}

// An applied manifest that is applied again, by a dry run as Argo CD's
// server-side diff and Flux's drift detection do it, changes nothing: not after
// defaulting, and not when the operator has written its status.
func TestAppliedStaysApplied(t *testing.T) {
	cluster := apitest.New(t)
	c := newAdministrator(t, cluster.Config)
	manifests := map[string]*unstructured.Unstructured{}
	for _, file := range globFiles(t, "examples/*.yaml") {
		manifests[filepath.Base(file)] = readExample(t, file, cluster.Namespace)
	}
	for _, dir := range globFiles(t, "examples/overlays/*") {
		o := buildKustomization(t, dir).findObject(t, "PostgresCluster", "orders")
		o.SetNamespace(cluster.Namespace)
		manifests[filepath.Base(dir)] = o
	}
	for name, manifest := range manifests {
		t.Run(name, func(t *testing.T) {
			manifest.SetName("a-" + filepath.Base(name)[:4])
			live := manifest.DeepCopy()
			if err := applyAs(t.Context(), c, live, "git", strictly); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Delete(context.Background(), live) })
			status := &unstructured.Unstructured{Object: map[string]any{
				"status": map[string]any{"observedGeneration": live.GetGeneration(), "phase": "Ready", "readyReplicas": int64(1),
					"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "Ready", "message": "serves",
						"observedGeneration": live.GetGeneration(), "lastTransitionTime": "2026-01-01T00:00:00Z"}}},
			}}
			status.SetGroupVersionKind(live.GroupVersionKind())
			status.SetName(live.GetName())
			status.SetNamespace(live.GetNamespace())
			if err := c.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(status), client.FieldOwner("holdfast"), client.ForceOwnership); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(live), live); err != nil {
				t.Fatal(err)
			}
			again := manifest.DeepCopy()
			if err := applyAs(t.Context(), c, again, "git", client.DryRunAll, strictly); err != nil {
				t.Fatal(err)
			}
			again.SetManagedFields(nil)
			live.SetManagedFields(nil)
			if diff := cmp.Diff(live.Object, again.Object); diff != "" {
				t.Errorf("OutOfSync for ever (-live +dry run):\n%s", diff)
			}
		})
	}
}
