package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Names of tests in Go files, and in pages.
var (
	declaredTest  = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	mentionedTest = regexp.MustCompile("`(Test\\w+)")
)

// TestPagesNameTests: what a page says proves a promise is there under that name.
func TestPagesNameTests(t *testing.T) {
	declared := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != "." {
			return fs.SkipDir // a running cluster's files come and go
		}
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range declaredTest.FindAllSubmatch(text, -1) {
			declared[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range markdownPages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range mentionedTest.FindAllSubmatch(text, -1) {
			if name := string(found[1]); !declared[name] {
				t.Errorf("%s names %s, which is no test", page, name)
			}
		}
	}
}
