package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
)

// An SBOM names each library whose code the pages contain, with version and license, and no
// library of tests.
func TestLibrariesOfPagesAreListed(t *testing.T) {
	components, err := readNPMComponents(tree)
	if err != nil {
		t.Fatal(err)
	}
	licenses, err := filepath.Glob(tree + "/internal/plugin/web/assets/vendor/LICENSE.*")
	if err != nil {
		t.Fatal(err)
	}
	var vendored, listed []string
	for _, file := range licenses {
		vendored = append(vendored, strings.TrimPrefix(filepath.Ext(file), "."))
	}
	for _, c := range components {
		listed = append(listed, c.Name)
	}
	if diff := cmp.Diff(vendored, listed); diff != "" {
		t.Errorf("libraries (-vendored +listed):\n%s", diff)
	}

	bom := &cyclonedx.BOM{
		Metadata:     &cyclonedx.Metadata{Component: &cyclonedx.Component{BOMRef: "main"}},
		Components:   &[]cyclonedx.Component{{BOMRef: "module"}},
		Dependencies: &[]cyclonedx.Dependency{{Ref: "main", Dependencies: &[]string{"module"}}, {Ref: "module"}},
	}
	addComponents(bom, components)
	want := []string{"module"}
	for _, c := range components {
		want = append(want, c.BOMRef)
	}
	var got []string
	for _, c := range *bom.Components {
		got = append(got, c.BOMRef)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("components (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, *(*bom.Dependencies)[0].Dependencies); diff != "" {
		t.Errorf("dependencies of the program (-want +got):\n%s", diff)
	}
}

// A lock file that does not say what a library is makes no list.
func TestIncompleteLockIsRefused(t *testing.T) {
	good := readText(t, filepath.Join(tree, lockFile))
	for _, gone := range []string{"version", "license", "integrity"} {
		lines := strings.Split(good, "\n")
		at := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, `"node_modules/preact"`) })
		at += slices.IndexFunc(lines[at:], func(line string) bool { return strings.Contains(line, `"`+gone+`"`) })
		root := t.TempDir()
		writeInto(t, root, lockFile, strings.Join(slices.Replace(lines, at, at+1, `"unknown": "",`), "\n"))
		if _, err := readNPMComponents(root); err == nil || !strings.Contains(err.Error(), gone+` ""`) {
			t.Errorf("without the %s: error %v", gone, err)
		}
	}
}
