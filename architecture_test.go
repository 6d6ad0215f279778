package main

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The architecture page lists every package of the tree, and no other.
func TestArchitectureListsPackages(t *testing.T) {
	listed := map[string]bool{}
	for _, name := range regexp.MustCompile("`((?:api|internal)/[\\w/{},-]+)`").FindAllStringSubmatch(page(t, "docs/architecture.md"), -1) {
		before, rest, braces := strings.Cut(name[1], "{")
		if !braces {
			listed[before] = false
			continue
		}
		for _, part := range strings.Split(strings.TrimSuffix(rest, "}"), ",") {
			listed[before+part] = false
		}
	}
	for _, root := range []string{"api", "internal"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			directory := filepath.ToSlash(filepath.Dir(path))
			if _, is := listed[directory]; !is {
				t.Errorf("docs/architecture.md does not list %s", directory)
			}
			listed[directory] = true
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for directory, exists := range listed {
		if !exists {
			t.Errorf("docs/architecture.md lists %s, which does not exist", directory)
		}
	}
}
