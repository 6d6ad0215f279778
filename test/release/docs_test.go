package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// releaseFile is a file of a release as pages name it: by its address, or in dist.
var releaseFile = regexp.MustCompile("(?:releases/download/[^/\\s`]+|\\bdist)/([\\w.*<>-]+\\w)")

// Pages name only what a release makes, and the page on releases names all of it.
func TestDocsNameReleaseFiles(t *testing.T) {
	r := &release{version: "v0.1.0", platforms: imagePlatforms, plugins: pluginPlatforms}
	names := r.fileNames()
	mentioned := map[string]bool{}
	err := filepath.WalkDir(tree+"/docs", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range releaseFile.FindAllStringSubmatch(string(text), -1) {
			mentioned[found[1]] = true
			if !slices.Contains(names, found[1]) {
				t.Errorf("%s names %s, which is no file of a release", path, found[1])
			}
		}
		return err
	})
	if err != nil || len(mentioned) == 0 {
		t.Fatalf("%d files are named: %v", len(mentioned), err)
	}
	page, err := os.ReadFile(tree + buildPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("%s does not say what %s is", buildPage, name)
		}
	}
}
