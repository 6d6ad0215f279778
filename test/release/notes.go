package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

const changelogFile = "docs/CHANGELOG.md"

// writeNotes writes the changelog's section of the version as release notes.
func (r *release) writeNotes(context.Context) error {
	changelog, err := r.readChangelog()
	if err != nil {
		return err
	}
	section, heading, err := findSection(changelog, r.version)
	if err != nil {
		return err
	}
	if heading == unreleased { // of a trial
		fmt.Fprintf(r.warn, "release: %s has no section %s, so the notes are those under %q\n", changelogFile, r.version, unreleased)
	}
	notes := "# Holdfast " + r.version + "\n\n" + absoluteLinks(section, repository+"/blob/"+r.version+"/"+path.Dir(changelogFile)+"/")
	return r.writeText(notesFile, []byte(notes))
}

// readChangelog is the changelog's text.
func (r *release) readChangelog() (string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, changelogFile))
	return string(text), err
}

// unreleased is the section of changes since the last release.
const unreleased = "Unreleased"

// sectionHeading is a heading of the changelog: a version, perhaps in brackets or
// without its v, and perhaps a date.
var sectionHeading = regexp.MustCompile(`^## \[?(v?[^\s\]]+)\]?(?: .*)?$`)

// findSection returns the text under the heading of a version, or under
// Unreleased where the version has none.
func findSection(changelog, version string) (section, heading string, err error) {
	sections := map[string]string{}
	current := ""
	for line := range strings.Lines(changelog) {
		if found := sectionHeading.FindStringSubmatch(strings.TrimSuffix(line, "\n")); found != nil {
			current = strings.TrimPrefix(found[1], "v")
			if found[1] == unreleased {
				current = unreleased
			}
			continue
		}
		if current != "" {
			sections[current] += line
		}
	}
	for _, heading := range []string{strings.TrimPrefix(version, "v"), unreleased} {
		if text := strings.TrimSpace(sections[heading]); text != "" {
			return text + "\n", heading, nil
		}
	}
	return "", "", fmt.Errorf("%s says nothing about %s: add a section \"## %s\", or text under \"## %s\"", changelogFile, version, version, unreleased)
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// absoluteLinks makes links work where the notes are read: they are relative to
// the changelog.
func absoluteLinks(text, base string) string {
	from, err := url.Parse(base)
	if err != nil {
		return text
	}
	return link.ReplaceAllStringFunc(text, func(found string) string {
		target := link.FindStringSubmatch(found)[1]
		if to, err := from.Parse(target); err == nil {
			return "](" + to.String() + ")"
		}
		return found
	})
}
