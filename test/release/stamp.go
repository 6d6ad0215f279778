package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/test/docs"
)

// stampedPaths are the files and folders that name the version of a release, and the manifests
// that tests expect of them. What programs are built with is no text: make release is given it.
var stampedPaths = []string{"README.md", "docs", "examples", "kustomize", "config/default", "config/manager", "config/helm/holdfast/README.md", "test/gitops/testdata"}

// unstampedPages name versions of which none is the tree's: the changelog those that were,
// and the page on upgrades two that are made up.
var unstampedPages = []string{changelogFile, "docs/guides/operator-upgrade.md"}

// stampedKinds are endings of the names of files that are stamped.
var stampedKinds = []string{".md", ".yaml", ".sh"}

// stamp names a version wherever the tree names the one before it, and has the pages say that
// it is published. It returns the files that it changed.
func stamp(root, version string) ([]string, error) {
	if err := checkVersion(version); err != nil {
		return nil, err
	}
	before, err := docs.ReadVersion(root)
	if err != nil {
		return nil, err
	}
	files, err := listStamped(root)
	if err != nil {
		return nil, err
	}
	var changed []string
	for _, name := range files {
		path := filepath.Join(root, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		stamped, err := stampFile(name, string(text), before, version)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if bytes.Equal(text, []byte(stamped)) {
			continue
		}
		if err := os.WriteFile(path, []byte(stamped), 0o644); err != nil { //nolint:gosec // it is in Git
			return nil, err
		}
		changed = append(changed, name)
	}
	return changed, nil
}

// listStamped lists the files that are stamped, by their paths from the root.
func listStamped(root string) ([]string, error) {
	var names []string
	for _, from := range stampedPaths {
		err := filepath.WalkDir(filepath.Join(root, from), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() || !slices.Contains(stampedKinds, filepath.Ext(path)) {
				return err
			}
			name, err := filepath.Rel(root, path)
			names = append(names, filepath.ToSlash(name))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

// stampFile is the text of a file for a version.
func stampFile(name, text, before, version string) (string, error) {
	text, err := publish(text)
	if err != nil {
		return "", err
	}
	if name == changelogFile {
		return headSection(text, version), nil
	}
	if slices.Contains(unstampedPages, name) {
		return text, nil
	}
	return replaceVersion(text, before, version), nil
}

// Passages of pages that depend on whether a version is published: one that holds until then,
// on lines of its own or within one; and one that holds from then on, which is a comment.
var (
	untilLines = regexp.MustCompile(`(?ms)^[ \t]*<!-- until published -->\n.*?<!-- end until published -->\n\n?`)
	untilText  = regexp.MustCompile(`<!-- until published -->[^\n]*?<!-- end until published -->`)
	oncePassed = regexp.MustCompile(`(?s)<!-- once published: (.*?) -->`)
	anyPassage = regexp.MustCompile(`<!-- (?:end )?(?:until|once) published\b[^\n]*`)
)

// publish removes passages that held until a version was published, and shows those that hold
// from then on.
func publish(text string) (string, error) {
	text = untilLines.ReplaceAllString(text, "")
	text = untilText.ReplaceAllString(text, "")
	text = oncePassed.ReplaceAllString(text, "$1")
	if left := anyPassage.FindString(text); left != "" {
		return "", fmt.Errorf("%q opens or closes no passage: write <!-- until published --> … <!-- end until published -->, or <!-- once published: … -->", left)
	}
	return text, nil
}

// replaceVersion replaces a version, with its v and without, where it is a whole one: not as
// a part of an address such as 10.1.0.0, nor with a suffix such as -rc.1.
func replaceVersion(text, before, version string) string {
	before, version = strings.TrimPrefix(before, "v"), strings.TrimPrefix(version, "v")
	var out strings.Builder
	for {
		at := strings.Index(text, before)
		if at < 0 {
			return out.String() + text
		}
		end := at + len(before)
		out.WriteString(text[:at])
		if partBefore.MatchString(text[:at]) || partAfter.MatchString(text[end:]) {
			out.WriteString(before)
		} else {
			out.WriteString(version)
		}
		text = text[end:]
	}
}

// What stands before and after a number that is part of a longer one.
var (
	partBefore = regexp.MustCompile(`[0-9]\.?$`)
	partAfter  = regexp.MustCompile(`^(?:[0-9]|\.[0-9]|[-+][0-9A-Za-z])`)
)

// headSection gives the changes since the last release the version as their heading. A
// section that is there is left as it is.
func headSection(changelog, version string) string {
	if _, heading, err := findSection(changelog, version); err != nil || heading != unreleased {
		return changelog
	}
	const line = "## " + unreleased + "\n"
	return strings.Replace(changelog, line, line+"\n## "+version+"\n", 1)
}

// checkStamped refuses a tree whose pages would say something wrong of the release. A trial
// is not published.
func (r *release) checkStamped() error {
	if r.trial {
		return nil
	}
	const remedy = "run make stamp VERSION=%s, and commit"
	version, err := docs.ReadVersion(r.root)
	if err != nil {
		return err
	}
	if version != r.version {
		return fmt.Errorf("the pages name %s: "+remedy, version, r.version)
	}
	names, err := listStamped(r.root)
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return err
		}
		if anyPassage.Match(text) {
			return fmt.Errorf("%s has passages that hold until a version is published: "+remedy, name, r.version)
		}
	}
	return nil
}
