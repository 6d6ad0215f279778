package gitops

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// Examples spread members by a selector that no pod of a Job matches: those have the label of
// their cluster, and another kind.
func TestExamplesSpreadMembersAlone(t *testing.T) {
	found := 0
	err := filepath.WalkDir(root+"/examples", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, document := range bytes.Split(data, []byte("\n---\n")) {
			o := &unstructured.Unstructured{}
			if yaml.Unmarshal(document, &o.Object) != nil || o.GroupVersionKind().Group != v1alpha1.GroupVersion.Group {
				continue // values, or lists of patches
			}
			constraints, _ := fieldAt(o, "spec", "topologySpreadConstraints").([]any)
			for _, constraint := range constraints {
				found++
				labels, _, err := unstructured.NestedStringMap(constraint.(map[string]any), "labelSelector", "matchLabels")
				if err != nil || labels[v1alpha1.LabelKind] != strings.ToLower(o.GetKind()) {
					t.Errorf("%s: %s spreads pods of %v: %v", path, objectID(o), labels, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 2 {
		t.Errorf("only %d constraints were found", found)
	}
}
