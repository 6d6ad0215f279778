package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Names of tests in Go files, and in pages.
var (
	declaredTest  = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	mentionedTest = regexp.MustCompile("`(Test\\w+)")
	// A part of the end-to-end suite, as a page names it and as the suite declares it.
	mentionedPart = regexp.MustCompile("`TestTogether/(\\w+)`")
	declaredPart  = regexp.MustCompile(`(?m)^\t+\{"(\w+)", `)
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

// TestPagesNamePartsOfTheSuite: a part that a page names runs, under that name.
func TestPagesNamePartsOfTheSuite(t *testing.T) {
	declared := map[string]bool{}
	for _, found := range declaredPart.FindAllStringSubmatch(page(t, "test/e2e/suite_test.go"), -1) {
		declared[found[1]] = true
	}
	mentioned := 0
	for _, name := range markdownPages(t) {
		for _, found := range mentionedPart.FindAllStringSubmatch(page(t, name), -1) {
			mentioned++
			if !declared[found[1]] {
				t.Errorf("%s names TestTogether/%s, which is no part of the suite", name, found[1])
			}
		}
	}
	if mentioned == 0 {
		t.Error("no page names a part of the suite")
	}
}

// The capability level that the bundle for OLM claims is one of OLM's, and the page on
// releases names tests for it and for each level below.
func TestCapabilityLevelHasTests(t *testing.T) {
	levels := []string{"Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"}
	claim := regexp.MustCompile(`(?m)^    capabilities: (.+)$`).FindStringSubmatch(page(t, "config/olm/base.yaml"))
	if claim == nil || !slices.Contains(levels, claim[1]) {
		t.Fatalf("the bundle claims the level %q", claim)
	}
	claimed := slices.Index(levels, claim[1])
	text := page(t, "docs/guides/release.md")
	for i, level := range levels {
		rows := regexp.MustCompile(`(?m)^\| `+strconv.Itoa(i+1)+` `+level+`(, not claimed)? \|.*`).FindAllStringSubmatch(text, -1)
		if len(rows) == 0 {
			t.Errorf("docs/guides/release.md has no row of the level %s", level)
		}
		for _, row := range rows {
			if !mentionedTest.MatchString(row[0]) {
				t.Errorf("a row of the level %s names no test: %s", level, row[0])
			}
			if isClaimed := row[1] == ""; isClaimed != (i <= claimed) {
				t.Errorf("the bundle claims %s, and the page says of %s: %s", claim[1], level, row[0])
			}
		}
	}
}
