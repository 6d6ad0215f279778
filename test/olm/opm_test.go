//go:build olm

package olm

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// buildOPM builds the program that catalogs are made, checked and served with.
func buildOPM(t *testing.T) string {
	t.Helper()
	program, err := PackageManager.Build(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// validateCatalog has opm load and check a catalog.
func validateCatalog(t *testing.T, opm string, catalog []byte) (string, error) {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "holdfast.yaml"), catalog, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), opm, "validate", folder).CombinedOutput()
	return string(out), err
}

// opm accepts the catalog, and one to which a later version was added as the page on releases
// says.
func TestOPMValidatesCatalog(t *testing.T) {
	opm := buildOPM(t)
	first := buildCatalog(t, "v0.1.0")
	if out, err := validateCatalog(t, opm, first); err != nil {
		t.Errorf("opm validate: %v\n%s", err, out)
	}
	parts := strings.Split(string(buildCatalog(t, "v0.2.0")), "---\n")
	const entry = "- name: holdfast.v0.1.0\n"
	grown := strings.Replace(string(first), entry, entry+"- name: holdfast.v0.2.0\n  replaces: holdfast.v0.1.0\n", 1) + "---\n" + parts[3]
	if out, err := validateCatalog(t, opm, []byte(grown)); err != nil {
		t.Errorf("opm validate with a later version: %v\n%s", err, out)
	}
}

// opm does find mistakes.
func TestOPMFindsMistakes(t *testing.T) {
	opm := buildOPM(t)
	catalog := string(buildCatalog(t, "v0.1.0"))
	for name, spoilt := range map[string]string{
		"no bundle":       catalog[:strings.LastIndex(catalog, "---\n")],
		"another version": strings.Replace(catalog, "- name: holdfast.v0.1.0\n", "- name: holdfast.v0.1.1\n", 1),
		"no image":        strings.Replace(catalog, "\nimage: "+testBundleImage+"\n", "\nimage: \"\"\n", 1),
		"no channel":      strings.Replace(catalog, "defaultChannel: candidate-v0\n", "defaultChannel: stable\n", 1),
		"no version":      strings.Replace(catalog, "    version: 0.1.0\n", "    version: first\n", 1),
	} {
		if spoilt == catalog {
			t.Errorf("%s: the catalog has nothing to spoil", name)
		} else if out, err := validateCatalog(t, opm, []byte(spoilt)); err == nil {
			t.Errorf("%s: opm validate accepts it: %s", name, out)
		}
	}
}

// The bundle in the catalog is what opm renders from the bundle's folder.
func TestOPMRendersTheSameBundle(t *testing.T) {
	opm := buildOPM(t)
	bundle, err := Build(root, "v0.1.0", testImage)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := bundle.Write(folder); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), opm, "render", folder, "--output=yaml",
		"--migrate-level=bundle-object-to-csv-metadata", "--alpha-image-ref-template="+strings.Replace(testBundleImage, "v0.1.0", "v{{.Version}}", 1))
	var complaints bytes.Buffer
	command.Stderr = &complaints
	out, err := command.Output()
	if err != nil {
		t.Fatalf("opm render: %v\n%s", err, complaints.String())
	}
	rendered := map[string]any{}
	if err := yaml.UnmarshalStrict(bytes.TrimPrefix(out, []byte("---\n")), &rendered); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rendered, splitCatalog(t, buildCatalog(t, "v0.1.0"))[2]); diff != "" {
		t.Errorf("bundle (-opm +catalog):\n%s", diff)
	}
}
