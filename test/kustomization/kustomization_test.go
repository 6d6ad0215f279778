package kustomization

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A link to the tree, and a patch, work as with the tree itself.
func TestBuildObjects(t *testing.T) {
	link := filepath.Join(t.TempDir(), "tree")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"../..", link} {
		objects, err := BuildObjects(from, "resources: [\"{root}/config/manager\"]\nlabels: [{pairs: {added: here}}]\n")
		if err != nil {
			t.Fatal(err)
		}
		if len(objects) != 2 || objects[0].GetKind() != "Namespace" || objects[1].GetLabels()["added"] != "here" {
			t.Errorf("from %s: %v", from, objects)
		}
	}
	if _, err := BuildObjects(root, "resources: [\"{root}/config/none\"]\n"); err == nil {
		t.Error("a folder that does not exist is no error")
	}
}

// What kubectl holdfast recommend writes is a patch that kustomize applies to the cluster,
// and to nothing else, with the target that it names: whether or not the cluster's manifest
// has a namespace.
func TestRecommendedPatch(t *testing.T) {
	for _, namespace := range []string{"", ", namespace: shop"} {
		declared := t.TempDir()
		cluster := "apiVersion: holdfast.dev/v1alpha1\nkind: PostgresCluster\nmetadata: {name: %s" + namespace + "}\nspec: {version: \"17\", parameters: {work_mem: 8MB, max_wal_size: 1GB}}\n---\n"
		for name, text := range map[string]string{
			"clusters.yaml": fmt.Sprintf(cluster, "orders") + fmt.Sprintf(cluster, "billing"), "kustomization.yaml": "resources: [clusters.yaml]\n",
		} {
			if err := os.WriteFile(filepath.Join(declared, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for file, want := range map[string]string{
			"recommend-patch.yaml":     "map[max_wal_size:2GB work_mem:8MB]",
			"recommend-patch-all.yaml": "map[max_wal_size:2GB shared_buffers:512MB work_mem:8MB]",
		} {
			got := patchClusters(t, declared, filepath.Join("../../internal/plugin/testdata", file))
			if got["orders"] != want || got["billing"] != "map[max_wal_size:1GB work_mem:8MB]" {
				t.Errorf("%s, clusters with %q: %v, want %s", file, namespace, got, want)
			}
		}
	}
}

// patchClusters is what parameters clusters have, by name, with a patch and its target.
func patchClusters(t *testing.T, declared, file string) map[string]string {
	t.Helper()
	patch, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, target, found := strings.Cut(string(patch), " with target: ")
	if !found {
		t.Fatalf("%s names no target", file)
	}
	target, _, _ = strings.Cut(target, "\n")
	indented := "    " + strings.ReplaceAll(strings.TrimSpace(string(patch)), "\n", "\n    ")
	objects, err := BuildObjects(declared, "resources: [\"{root}\"]\npatches:\n- target: "+target+"\n  patch: |-\n"+indented+"\n")
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	got := map[string]string{}
	for _, object := range objects {
		parameters, _, err := unstructured.NestedStringMap(object.Object, "spec", "parameters")
		if err != nil {
			t.Fatal(err)
		}
		got[object.GetName()] = fmt.Sprint(parameters)
	}
	return got
}
