package olm

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const testBundleImage = "registry.example.com/holdfast-bundle:v0.1.0"

// buildCatalog builds the catalog of a version.
func buildCatalog(t *testing.T, version string) []byte {
	t.Helper()
	bundle, err := Build(root, version, strings.Replace(testImage, "v0.1.0", version, 1))
	if err != nil {
		t.Fatal(err)
	}
	catalog, err := bundle.Catalog(strings.Replace(testBundleImage, "v0.1.0", version, 1))
	if err != nil {
		t.Fatal(err)
	}
	return catalog
}

// splitCatalog reads each document of a catalog, in order.
func splitCatalog(t *testing.T, catalog []byte) []map[string]any {
	t.Helper()
	var documents []map[string]any
	for _, part := range bytes.Split(catalog, []byte("---\n"))[1:] {
		document := map[string]any{}
		if err := yaml.UnmarshalStrict(part, &document); err != nil {
			t.Fatal(err)
		}
		documents = append(documents, document)
	}
	return documents
}

// The catalog has the package, its channel and the bundle, which refer to each other; and it
// is the same in every run.
func TestCatalog(t *testing.T) {
	catalog := buildCatalog(t, "v0.1.0")
	if !bytes.Equal(catalog, buildCatalog(t, "v0.1.0")) {
		t.Error("the catalog differs from run to run")
	}
	documents := splitCatalog(t, catalog)
	if len(documents) != 3 {
		t.Fatalf("%d documents, want a package, a channel and a bundle", len(documents))
	}
	offered, channel, bundle := documents[0], documents[1], documents[2]
	if description, _ := offered["description"].(string); !strings.HasPrefix(description, "Holdfast runs") || offered["icon"] == nil {
		t.Errorf("the package is described as %q, with the icon %v", description, offered["icon"])
	}
	delete(offered, "description")
	delete(offered, "icon")
	types := []string{}
	for _, property := range bundle["properties"].([]any) {
		p := property.(map[string]any)
		name := p["type"].(string)
		if kind, isKind := p["value"].(map[string]any)["kind"].(string); isKind {
			name += " " + kind
		}
		types = append(types, name)
	}
	delete(bundle, "properties")
	got := []any{offered, channel, bundle, types}
	want := []any{
		map[string]any{"schema": "olm.package", "name": "holdfast", "defaultChannel": "candidate-v0"},
		map[string]any{"schema": "olm.channel", "package": "holdfast", "name": "candidate-v0", "entries": []any{map[string]any{"name": "holdfast.v0.1.0"}}},
		map[string]any{"schema": "olm.bundle", "package": "holdfast", "name": "holdfast.v0.1.0", "image": testBundleImage, "relatedImages": []any{
			map[string]any{"name": "", "image": testBundleImage}, map[string]any{"name": "manager", "image": testImage},
		}},
		[]string{"olm.gvk Backup", "olm.gvk Database", "olm.gvk EtcdCluster", "olm.gvk MySQLCluster", "olm.gvk PostgresCluster", "olm.package", "olm.csv.metadata"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("catalog (-want +got):\n%s", diff)
	}
}

// A bundle that a catalog cannot describe is refused with what is wrong.
func TestIncompleteBundleHasNoCatalog(t *testing.T) {
	for complaint, spoil := range map[string]func(version, annotations string) (string, string){
		"no spec.version": func(v, a string) (string, string) { return strings.Replace(v, "\n  version: 0.1.0\n", "\n", 1), a },
		"0 icons":         func(v, a string) (string, string) { return emptyIcon(v), a },
		`channel "a,b"`:   func(v, a string) (string, string) { return v, strings.ReplaceAll(a, "candidate-v0", "a,b") },
		`package ""`:      func(v, a string) (string, string) { return v, strings.ReplaceAll(a, ": holdfast\n", ": \"\"\n") },
	} {
		bundle, err := Build(root, "v0.1.0", testImage)
		if err != nil {
			t.Fatal(err)
		}
		version, annotations := spoil(string(bundle[VersionFile]), string(bundle[annotationsFile]))
		bundle[VersionFile], bundle[annotationsFile] = []byte(version), []byte(annotations)
		if _, err := bundle.Catalog(testBundleImage); err == nil || !strings.Contains(err.Error(), complaint) {
			t.Errorf("error %v, want %q", err, complaint)
		}
	}
}

// emptyIcon removes the icon of a version.
func emptyIcon(version string) string {
	lines := strings.Split(version, "\n")
	at := slices.Index(lines, "  icon:")
	return strings.Join(slices.Replace(lines, at, at+3, "  icon: []"), "\n")
}
