package kustomization

import (
	"os"
	"path/filepath"
	"testing"
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
