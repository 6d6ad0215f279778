//go:build apiserver

package controller_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// Bad input is refused with a message that names the field; its good
// neighbours are taken.
func TestValidation(t *testing.T) {
	cases := map[string]struct {
		path    string
		value   any
		refused string
	}{
		"a major version":                    {"spec.version", "17", ""},
		"a minor version":                    {"spec.version", "17.4", ""},
		"a version that is a word":           {"spec.version", "latest", "spec.version"},
		"a version out of support":           {"spec.version", "9.6", "spec.version"},
		"a version with a leading zero":      {"spec.version", "17.04", "spec.version"},
		"a version that is a number":         {"spec.version", int64(17), "spec.version"},
		"no version":                         {"spec.version", nil, "spec.version"},
		"no storage":                         {"spec.storage", nil, "spec.storage"},
		"no size":                            {"spec.storage", map[string]any{}, "spec.storage.size"},
		"a tiny size":                        {"spec.storage.size", "1Mi", "storage.size must be at least 64Mi"},
		"a size that is none":                {"spec.storage.size", "lots", "spec.storage.size"},
		"a size that is a number":            {"spec.storage.size", int64(1 << 30), ""},
		"growth by itself":                   {"spec.storage.autoGrow", map[string]any{"maxSize": "10Gi"}, ""},
		"growth to the size that it has":     {"spec.storage.autoGrow", map[string]any{"maxSize": int64(1 << 30)}, ""},
		"growth without an end":              {"spec.storage.autoGrow", map[string]any{}, "spec.storage.autoGrow.maxSize"},
		"growth to less than the size":       {"spec.storage.autoGrow", map[string]any{"maxSize": "1023Mi"}, "storage.autoGrow.maxSize must be at least storage.size"},
		"growth to a size that is none":      {"spec.storage.autoGrow", map[string]any{"maxSize": "lots"}, "spec.storage.autoGrow.maxSize"},
		"growth of a volume that is empty":   {"spec.storage.autoGrow", map[string]any{"maxSize": "10Gi", "thresholdPercent": int64(49)}, "spec.storage.autoGrow.thresholdPercent"},
		"growth of a volume that is full":    {"spec.storage.autoGrow", map[string]any{"maxSize": "10Gi", "thresholdPercent": int64(96)}, "spec.storage.autoGrow.thresholdPercent"},
		"growth in steps of nothing":         {"spec.storage.autoGrow", map[string]any{"maxSize": "10Gi", "stepPercent": int64(0)}, "spec.storage.autoGrow.stepPercent"},
		"growth in steps that are too large": {"spec.storage.autoGrow", map[string]any{"maxSize": "10Gi", "stepPercent": int64(101)}, "spec.storage.autoGrow.stepPercent"},
		"growth to the limits":               {"spec.storage.autoGrow", map[string]any{"maxSize": "10Gi", "thresholdPercent": int64(95), "stepPercent": int64(5)}, ""},
		"no member":                          {"spec.replicas", int64(0), "spec.replicas"},
		"nine members":                       {"spec.replicas", int64(9), ""},
		"ten members":                        {"spec.replicas", int64(10), "spec.replicas"},
		"members that are a word":            {"spec.replicas", "three", "spec.replicas"},
		"an empty image":                     {"spec.image", "", "spec.image"},
		"an image that is no reference":      {"spec.image", "Postgres 17", "spec.image: Invalid value"},
		"an image with two tags":             {"spec.image", "postgres:17:18", "can never be pulled"},
		"an image by tag":                    {"spec.image", "registry.example:5000/team/postgres:17.6", ""},
		"an image by tag and digest":         {"spec.image", "postgres:17@sha256:" + strings.Repeat("0f", 32), ""},
		"an unknown field":                   {"spec.sotrage", "1Gi", "spec.sotrage"},
		"an unknown policy":                  {"spec.deletionPolicy", "Destroy", "spec.deletionPolicy"},
		"policy Delete":                      {"spec.deletionPolicy", "Delete", ""},
		"an unknown drift mode":              {"spec.drift.mode", "Ignore", "spec.drift.mode"},
		"an ignore rule without content":     {"spec.drift.ignore", []any{map[string]any{"kind": "Service"}}, "an ignore rule needs paths or managers"},
		"an ignore path without a slash":     {"spec.drift.ignore", []any{map[string]any{"paths": []any{"spec.type"}}}, "spec.drift.ignore[0].paths[0]"},
		"an ignore rule":                     {"spec.drift.ignore", []any{map[string]any{"kind": "Service", "paths": []any{"/spec/type"}}}, ""},
		"a deadline of a second":             {"spec.progressDeadlineSeconds", int64(1), "spec.progressDeadlineSeconds"},
		"a pod label of ours":                {"spec.podLabels", map[string]any{"holdfast.dev/role": "primary"}, "spec.podLabels"},
		"a pod label of the common kind":     {"spec.podLabels", map[string]any{"app.kubernetes.io/name": "x"}, "spec.podLabels"},
		"a pod label":                        {"spec.podLabels", map[string]any{"team": "shop"}, ""},
		"a pod annotation of ours":           {"spec.podAnnotations", map[string]any{"holdfast.dev/rollout": "x"}, "spec.podAnnotations"},
		"a parameter":                        {"spec.parameters", map[string]any{"work_mem": "8MB", "pg_stat_statements.max": "100"}, ""},
		"a parameter in upper case":          {"spec.parameters", map[string]any{"Work_Mem": "8MB"}, "spec.parameters"},
		"a parameter that Holdfast owns":     {"spec.parameters", map[string]any{"port": "5433"}, "a parameter that Holdfast owns cannot be set"},
		"a parameter that loses data":        {"spec.parameters", map[string]any{"fsync": "off"}, "a parameter that Holdfast owns cannot be set"},
		"a parameter that is a number":       {"spec.parameters", map[string]any{"max_connections": int64(5)}, "spec.parameters.max_connections"},
		"a parameter with code in its name":  {"spec.parameters", map[string]any{"a = 1\nport": "1"}, "spec.parameters"},
		"a reserved database":                {"spec.bootstrap.database", "template1", "bootstrap.database must not be"},
		"a database with a quote":            {"spec.bootstrap.database", `a"b`, "spec.bootstrap.database"},
		"the superuser as owner":             {"spec.bootstrap.owner", "postgres", "bootstrap.owner must not be"},
		"an owner of ours":                   {"spec.bootstrap.owner", "holdfast_x", "bootstrap.owner must not be"},
		"a name that is too long":            {"metadata.name", strings.Repeat("a", 41), "metadata.name must start with a letter"},
		"a name of forty letters":            {"metadata.name", strings.Repeat("a", 40), ""},
		"a name that begins with a digit":    {"metadata.name", "1orders", "metadata.name must start with a letter"},
		"a name with a dot":                  {"metadata.name", "or.ders", "metadata.name must start with a letter"},
		"suspend that is a word":             {"spec.suspend", "yes", "spec.suspend"},
		"a pull secret twice":                {"spec.imagePullSecrets", []any{map[string]any{"name": "a"}, map[string]any{"name": "a"}}, "spec.imagePullSecrets[1]"},
		"a certificate of one's own":         {"spec.tls", map[string]any{"certificateSecretRef": map[string]any{"name": "orders-server"}}, ""},
		"a CA of one's own":                  {"spec.tls", map[string]any{"caSecretRef": map[string]any{"name": "orders.ca"}}, ""},
		"no certificate of one's own":        {"spec.tls", map[string]any{}, ""},
		"a certificate without a name":       {"spec.tls", map[string]any{"certificateSecretRef": map[string]any{}}, "spec.tls.certificateSecretRef.name"},
		"a Secret's name in upper case":      {"spec.tls", map[string]any{"caSecretRef": map[string]any{"name": "Orders"}}, "spec.tls.caSecretRef.name"},
		"a Secret in another namespace":      {"spec.tls", map[string]any{"caSecretRef": map[string]any{"name": "a", "namespace": "b"}}, "spec.tls.caSecretRef.namespace"},
		"Holdfast's certificate":             {"spec.tls", map[string]any{"certificateSecretRef": map[string]any{"name": "orders-tls"}}, "spec.tls must name Secrets of your own"},
		"Holdfast's CA":                      {"spec.tls", map[string]any{"caSecretRef": map[string]any{"name": "orders-ca"}}, "spec.tls must name Secrets of your own"},
		"a toleration":                       {"spec.tolerations", []any{map[string]any{"key": "db", "operator": "Exists"}}, ""},
		"a node selector that is no mapping": {"spec.nodeSelector", "ssd", "spec.nodeSelector"},
	}
	w := &world{Cluster: apitest.New(t), t: t}
	person := w.As(t, "kubectl")
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": v1alpha1.GroupVersion.String(), "kind": "PostgresCluster",
				"metadata": map[string]any{"name": "orders", "namespace": w.Namespace},
				"spec":     map[string]any{"version": "17", "storage": map[string]any{"size": "1Gi"}},
			}}
			check(t, person, obj, tc.path, tc.value, tc.refused)
		})
	}
}

// check creates an object with one field changed, or without it.
func check(t *testing.T, person client.Client, obj *unstructured.Unstructured, field string, value any, refused string) {
	t.Helper()
	path := strings.Split(field, ".")
	if value == nil {
		unstructured.RemoveNestedField(obj.Object, path...)
	} else if err := unstructured.SetNestedField(obj.Object, value, path...); err != nil {
		t.Fatal(err)
	}
	err := person.Create(t.Context(), obj, client.DryRunAll, strictly)
	switch {
	case refused == "" && err != nil:
		t.Errorf("refused: %v", err)
	case refused != "" && err == nil:
		t.Error("accepted")
	case refused != "" && !strings.Contains(err.Error(), refused):
		t.Errorf("refused without naming %q: %v", refused, err)
	}
}

// What kubectl get shows, and that a new object is not yet ready to kstatus.
func TestColumnsAndDefaults(t *testing.T) {
	w := &world{Cluster: apitest.New(t), t: t}
	person := w.As(t, "kubectl")
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := person.Get(t.Context(), client.ObjectKey{Name: "postgresclusters.holdfast.dev"}, crd); err != nil {
		t.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	columns, _, _ := unstructured.NestedSlice(versions[0].(map[string]any), "additionalPrinterColumns")
	var names []string
	for _, column := range columns {
		names = append(names, column.(map[string]any)["name"].(string))
	}
	if diff := cmp.Diff([]string{"Version", "Ready", "Desired", "Primary", "Phase", "Status", "Age"}, names); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	c := w.Postgres("orders", 1)
	c.Spec.Replicas = nil
	if err := person.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if c.Status.ObservedGeneration != -1 || kstatus(c) != "InProgress" || c.Spec.Replicas == nil || *c.Spec.Replicas != 1 || c.Spec.DeletionPolicy != v1alpha1.DeletionRetain {
		t.Errorf("a new object: spec %+v, status %+v", c.Spec, c.Status)
	}
}
