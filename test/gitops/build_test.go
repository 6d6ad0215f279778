package gitops

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files")

// root of the repository, from this package's folder.
const root = "../.."

// objects is what one kustomization builds, in order.
type objects []*unstructured.Unstructured

// buildKustomization runs kustomize with the options that Flux and Argo CD leave at their
// defaults.
func buildKustomization(t *testing.T, dir string) objects {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("build %s: %v", dir, err)
	}
	var out objects
	for _, r := range built.Resources() {
		o := &unstructured.Unstructured{}
		content, err := r.MarshalJSON()
		if err == nil {
			err = o.UnmarshalJSON(content)
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

// buildOverlay builds a user's kustomization. {root} in it is the repository; more
// files are given as pairs of name and content.
func buildOverlay(t *testing.T, kustomization string, files ...string) objects {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(dir, absolute)
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, "kustomization.yaml", kustomization)
	for i := 0; i < len(files); i += 2 {
		content := strings.ReplaceAll(files[i+1], "{root}", relative)
		if err := os.WriteFile(filepath.Join(dir, files[i]), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return buildKustomization(t, dir)
}

func objectID(o *unstructured.Unstructured) string {
	name := o.GetName()
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	return o.GetKind() + " " + name
}

// findObject returns the object of a kind and name. A name that ends in a dash is the
// beginning of a generated one.
func (l objects) findObject(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range l {
		if o.GetKind() == kind && (o.GetName() == name || strings.HasSuffix(name, "-") && strings.HasPrefix(o.GetName(), name)) {
			return o
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

// fieldAt is the value at a path of map keys; nil when there is none.
func fieldAt(o *unstructured.Unstructured, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	return value
}

// operatorVersion follows the name of the operator's image, the release's or a mirror's.
var operatorVersion = regexp.MustCompile(`(image: \S+/holdfast:)v[0-9]\S*`)

// describeDifference says how a build differs from the plain install: what is the same by
// name only, what differs in full. Schemas are left out, and so is the operator's version,
// which each release changes.
func describeDifference(t *testing.T, plain, built objects) []byte {
	t.Helper()
	before := map[string]*unstructured.Unstructured{}
	for _, o := range plain {
		before[objectID(o)] = o
	}
	var same, full bytes.Buffer
	for _, o := range built {
		if old := before[objectID(o)]; old != nil && cmp.Equal(old.Object, o.Object) {
			fmt.Fprintf(&same, "# same: %s\n", objectID(o))
		} else {
			o = o.DeepCopy()
			if o.GetKind() == "CustomResourceDefinition" {
				delete(o.Object, "spec")
			}
			if o.GetLabels()[dashboardLabel] != "" {
				delete(o.Object, "data") // TestDashboardsComponent compares it
			}
			text, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&full, "---\n%s", operatorVersion.ReplaceAll(text, []byte("${1}VERSION")))
		}
		delete(before, objectID(o))
	}
	for _, o := range plain {
		if before[objectID(o)] != nil {
			fmt.Fprintf(&same, "# gone: %s\n", objectID(o))
		}
	}
	return append(same.Bytes(), full.Bytes()...)
}

func compareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".yaml")
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), write it with go test -update:\n%s", file, diff)
	}
}
