package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// lockFile has the versions of the libraries that the pages of `kubectl holdfast ui` use. Their
// code is in the tree, and every program contains it as files.
const lockFile = "test/ui/package-lock.json"

// npmLock is what the lock file says of packages. The one without a name is the tree's own.
type npmLock struct {
	Packages map[string]struct {
		Version      string            `json:"version"`
		License      string            `json:"license"`
		Integrity    string            `json:"integrity"`
		Dependencies map[string]string `json:"dependencies"`
	} `json:"packages"`
}

// readNPMComponents are the libraries of the pages, without those of tests. The linker knows
// nothing of them.
func readNPMComponents(root string) ([]cyclonedx.Component, error) {
	text, err := os.ReadFile(filepath.Join(root, lockFile))
	if err != nil {
		return nil, err
	}
	var lock npmLock
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, fmt.Errorf("%s: %w", lockFile, err)
	}
	var components []cyclonedx.Component
	for _, name := range slices.Sorted(maps.Keys(lock.Packages[""].Dependencies)) {
		locked := lock.Packages["node_modules/"+name]
		encoded, isSHA512 := strings.CutPrefix(locked.Integrity, "sha512-")
		sum, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || !isSHA512 || locked.Version == "" || locked.License == "" {
			return nil, fmt.Errorf("%s says of %s: version %q, license %q, integrity %q, where each is expected, and a sha512", lockFile, name, locked.Version, locked.License, locked.Integrity)
		}
		url := "pkg:npm/" + name + "@" + locked.Version
		components = append(components, cyclonedx.Component{
			BOMRef: url, PackageURL: url, Type: cyclonedx.ComponentTypeLibrary, Name: name, Version: locked.Version, Scope: cyclonedx.ScopeRequired,
			Hashes:   &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA512, Value: hex.EncodeToString(sum)}},
			Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: locked.License}}},
		})
	}
	if len(components) == 0 {
		return nil, fmt.Errorf("%s has no dependencies", lockFile)
	}
	return components, nil
}

// addComponents adds what the main component contains beside Go modules.
func addComponents(bom *cyclonedx.BOM, components []cyclonedx.Component) {
	*bom.Components = append(*bom.Components, components...)
	main := bom.Metadata.Component.BOMRef
	for _, component := range components {
		for i, dependency := range *bom.Dependencies {
			if dependency.Ref == main {
				below := []string{}
				if dependency.Dependencies != nil {
					below = *dependency.Dependencies
				}
				below = append(below, component.BOMRef)
				(*bom.Dependencies)[i].Dependencies = &below
			}
		}
		*bom.Dependencies = append(*bom.Dependencies, cyclonedx.Dependency{Ref: component.BOMRef})
	}
}
