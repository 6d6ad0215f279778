//go:build apiserver

package controller_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// documents of a YAML file.
func documents(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(obj); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(obj.Object) > 0 {
			found = append(found, obj)
		}
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files match %s: %v", pattern, err)
	}
	return files
}

// strictly refuses unknown fields, as kubectl does.
var strictly = client.FieldValidation("Strict")

// Every example is accepted as it stands.
func TestExamplesAreAccepted(t *testing.T) {
	t.Parallel()
	w := &world{Cluster: apitest.New(t), t: t}
	person := w.As(t, "kubectl")
	for _, file := range glob(t, "examples/*.yaml") {
		for _, obj := range documents(t, file) {
			obj.SetNamespace(w.Namespace)
			if err := person.Create(t.Context(), obj, client.DryRunAll, strictly); err != nil {
				t.Errorf("%s: %v", filepath.Base(file), err)
			}
		}
	}
}

// Golden manifests are what the API server takes.
func TestGoldenManifestsAreAccepted(t *testing.T) {
	t.Parallel()
	w := &world{Cluster: apitest.New(t), t: t}
	person := w.As(t, "kubectl")
	count := 0
	for _, file := range glob(t, "internal/engine/*/testdata/*.yaml") {
		for _, obj := range documents(t, file) {
			obj.SetNamespace(w.Namespace)
			data, err := json.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			err = person.Patch(t.Context(), obj, client.RawPatch(types.ApplyPatchType, data), client.ForceOwnership, client.DryRunAll, strictly, client.FieldOwner(v1alpha1.FieldManager))
			if err != nil {
				t.Errorf("%s: %v", filepath.Base(file), err)
			}
			count++
		}
	}
	if count < 30 {
		t.Errorf("only %d objects in the golden manifests", count)
	}
}

// What kubectl get shows, and that a new object is not yet ready to kstatus.
func TestColumnsAndDefaults(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ crd, kind, version, leads string }{
		{"postgresclusters.holdfast.dev", "PostgresCluster", "17", "Primary"},
		{"etcdclusters.holdfast.dev", "EtcdCluster", "3.6.16", "Leader"},
		{"mysqlclusters.holdfast.dev", "MySQLCluster", "9.7", "Primary"},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			w := &world{Cluster: apitest.New(t), t: t}
			want := []string{"Version", "Ready", tc.leads, "Phase", "Synced", "BackedUp", "Last Backup", "Drill", "New Agent", "Age", "Status"}
			if diff := cmp.Diff(want, w.columns(tc.crd)); diff != "" {
				t.Errorf("columns (-want +got):\n%s", diff)
			}
			obj, err := scheme.Scheme.New(v1alpha1.GroupVersion.WithKind(tc.kind))
			if err != nil {
				t.Fatal(err)
			}
			c := obj.(v1alpha1.Cluster)
			manifest := fmt.Sprintf("metadata: {name: orders, namespace: %s}\nspec: {version: %q, storage: {size: 1Gi}, backup: {enabled: false}}", w.Namespace, tc.version)
			if err := yaml.UnmarshalStrict([]byte(manifest), c); err != nil {
				t.Fatal(err)
			}
			if err := w.As(t, "kubectl").Create(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if c.CommonStatus().ObservedGeneration != -1 || kstatus(c) != "InProgress" || c.Common().Replicas == nil || *c.Common().Replicas != 1 || c.Common().DeletionPolicy != v1alpha1.DeletionRetain {
				t.Errorf("a new object: spec %+v, status %+v", c.Common(), c.CommonStatus())
			}
		})
	}
}

// What kubectl get shows of a Database, and what it declares by default.
func TestColumnsAndDefaultsOfADatabase(t *testing.T) {
	t.Parallel()
	w := &world{Cluster: apitest.New(t), t: t}
	want := []string{"Engine", "Version", "Replicas", "Ready", "Phase", "Synced", "BackedUp", "Last Backup", "Age", "Status"}
	if diff := cmp.Diff(want, w.columns("databases.holdfast.dev")); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	d := &v1alpha1.Database{}
	manifest := fmt.Sprintf("metadata: {name: orders, namespace: %s}\nspec: {engine: postgres, version: 16, replicas: 3, backup: {enabled: true, schedule: \"0 */6 * * *\"}}", w.Namespace)
	if err := yaml.UnmarshalStrict([]byte(manifest), d); err != nil {
		t.Fatal(err)
	}
	if err := w.As(t, "kubectl").Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if d.Status.ObservedGeneration != -1 || kstatus(d) != "InProgress" || d.Spec.Version != "16" || d.Spec.DeletionPolicy != v1alpha1.DeletionRetain {
		t.Errorf("a new object: spec %+v, status %+v", d.Spec, d.Status)
	}
	bare := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"engine": "postgres", "version": int64(16)}}}
	bare.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Database"))
	bare.SetNamespace(w.Namespace)
	bare.SetName("bare")
	if err := w.As(t, "kubectl").Create(t.Context(), bare); err != nil {
		t.Fatal(err)
	}
	if size, _, _ := unstructured.NestedString(bare.Object, "spec", "storage"); size != "10Gi" {
		t.Errorf("storage is %q by default", size)
	}
}

func (w *world) columns(name string) []string {
	w.t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := w.As(w.t, "kubectl").Get(w.t.Context(), client.ObjectKey{Name: name}, crd); err != nil {
		w.t.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	columns, _, _ := unstructured.NestedSlice(versions[0].(map[string]any), "additionalPrinterColumns")
	var names []string
	for _, column := range columns {
		names = append(names, column.(map[string]any)["name"].(string))
	}
	return names
}
