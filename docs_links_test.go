package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Patterns of links, headings and names of pages.
var (
	markdownLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	markdownHeading = regexp.MustCompile(`^#{1,6} +(.+)$`)
	pageName        = regexp.MustCompile(`(?:^|[^\w/.-])(docs/[\w./-]+\.md)`)
)

// markdownPages are README.md and every page below docs.
func markdownPages(t *testing.T) []string {
	t.Helper()
	pages := []string{"README.md"}
	err := filepath.WalkDir("docs", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// headingAnchor is the anchor that GitHub gives to a heading.
func headingAnchor(heading string) string {
	text := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, text)
}

// proseLines are a page's lines outside of fenced blocks.
func proseLines(text string) []string {
	var prose []string
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if !fenced {
			prose = append(prose, strings.TrimRight(line, "\n"))
		}
	}
	return prose
}

// pageAnchors are the anchors of a page's headings.
func pageAnchors(t *testing.T, name string) []string {
	t.Helper()
	var anchors []string
	for _, line := range proseLines(page(t, name)) {
		if heading := markdownHeading.FindStringSubmatch(line); heading != nil {
			anchors = append(anchors, headingAnchor(heading[1]))
		}
	}
	return anchors
}

// Every link of a page leads to a file of this tree, and to a heading of it.
func TestDocsLinksLeadSomewhere(t *testing.T) {
	for _, name := range markdownPages(t) {
		for _, line := range proseLines(page(t, name)) {
			for _, link := range markdownLink.FindAllStringSubmatch(line, -1) {
				target, anchor, _ := strings.Cut(link[1], "#")
				if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
					continue
				}
				path := name
				if target != "" {
					path = filepath.Join(filepath.Dir(name), target)
				}
				if _, err := os.Stat(path); err != nil {
					t.Errorf("%s: the link %s leads to no file", name, link[1])
				} else if anchor != "" && !slices.Contains(pageAnchors(t, path), anchor) {
					t.Errorf("%s: the link %s leads to no heading of %s", name, link[1], path)
				}
			}
		}
	}
}

// Every page is linked from the index.
func TestDocsIndexNamesEveryPage(t *testing.T) {
	index := page(t, "docs/README.md")
	for _, name := range markdownPages(t) {
		relative, err := filepath.Rel("docs", name)
		if err != nil {
			t.Fatal(err)
		}
		if relative == "README.md" || name == "README.md" || strings.HasPrefix(relative, "adr/") {
			continue
		}
		if !strings.Contains(index, "]("+relative+")") {
			t.Errorf("docs/README.md does not link %s", relative)
		}
	}
}

// Every page that a comment or a message names is there.
func TestPagesThatAreNamedExist(t *testing.T) {
	listed, err := exec.CommandContext(t.Context(), "git", "ls-files").Output()
	if err != nil {
		t.Skipf("this is no git repository: %v", err)
	}
	for _, name := range strings.Fields(string(listed)) {
		text, err := os.ReadFile(name)
		if err != nil || strings.HasSuffix(name, "docs_links_test.go") || strings.Contains(name, "blocks_test.go") {
			continue
		}
		for _, named := range pageName.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(named[1]); err != nil {
				t.Errorf("%s names %s, which does not exist", name, named[1])
			}
		}
	}
}
