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
// and to nothing else.
func TestRecommendedPatch(t *testing.T) {
	declared := t.TempDir()
	cluster := "apiVersion: holdfast.dev/v1alpha1\nkind: PostgresCluster\nmetadata: {name: %s, namespace: shop}\nspec: {version: \"17\", parameters: {work_mem: 8MB, max_wal_size: 1GB}}\n---\n"
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
		patch, err := os.ReadFile(filepath.Join("../../internal/plugin/testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		indented := "    " + strings.ReplaceAll(strings.TrimSpace(string(patch)), "\n", "\n    ")
		objects, err := BuildObjects(declared, "resources: [\"{root}\"]\npatches:\n- patch: |-\n"+indented+"\n")
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
		if got["orders"] != want || got["billing"] != "map[max_wal_size:1GB work_mem:8MB]" {
			t.Errorf("%s: %v, want %s", file, got, want)
		}
	}
}
