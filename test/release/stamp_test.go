package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

// copyStamped copies what is stamped into another folder.
func copyStamped(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	names, err := listStamped(tree)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		to := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, []byte(readPage(t, filepath.Join(tree, name))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// unpublishedText is how pages say that there is no release.
var unpublishedText = regexp.MustCompile(`(?i)no version (?:has been|is) published|not (?:yet )?(?:been )?released|no image is published(?: yet)?[.;<]|(?:no|is no|are no) releases?\b[^.\n]*\byet|there are no releases|there is no release|before the first release|<!-- (?:end )?(?:until|once) published`)

// A copy of the tree that is stamped names the new version everywhere, and the one before
// nowhere. No passage says that there is no release, and files are named as the release of
// that version names them. A second stamp of the same version changes nothing.
func TestStamp(t *testing.T) {
	folder, before := copyStamped(t), readVersion(t, tree)
	version := "v0.2.0"
	if before == version {
		version = "v0.3.0"
	}
	changed, err := stamp(folder, version)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"README.md", "docs/guides/installation.md", "docs/guides/release.md", "docs/guides/flux.md", "examples/flux-helm/operator.yaml", "examples/flux/sources.yaml", "examples/argocd/operator.yaml", "config/helm/holdfast/README.md"} {
		if !slices.Contains(changed, name) {
			t.Errorf("%s did not change", name)
		}
	}
	if got := readVersion(t, folder); got != version {
		t.Errorf("the tree names %s", got)
	}
	names, err := listStamped(folder)
	if err != nil {
		t.Fatal(err)
	}
	old := regexp.MustCompile(`(?:^|[^0-9.])` + regexp.QuoteMeta(strings.TrimPrefix(before, "v")) + `(?:[^0-9]|$)`)
	for _, name := range names {
		text := readPage(t, filepath.Join(folder, name))
		if found := old.FindString(text); found != "" && name != changelogFile {
			t.Errorf("%s still names %s: %q", name, before, found)
		}
		for _, found := range unpublishedText.FindAllString(text, -1) {
			t.Errorf("%s says %q", name, found)
		}
	}
	checkNamedFiles(t, folder)
	if _, heading, err := findSection(readPage(t, filepath.Join(folder, changelogFile)), version); err != nil || heading != strings.TrimPrefix(version, "v") {
		t.Errorf("the changelog has the section %q: %v", heading, err)
	}
	if again, err := stamp(folder, version); err != nil || len(again) != 0 {
		t.Errorf("a second stamp changed %v: %v", again, err)
	}
	r := &release{version: version, root: folder}
	if err := r.checkStamped(); err != nil {
		t.Errorf("a release of the stamped tree is refused: %v", err)
	}
	for _, other := range []*release{{version: "v0.4.0", root: folder}, {version: before, root: tree}} {
		err := other.checkStamped()
		if stale := other.root == folder || hasPassages(t); stale && (err == nil || !strings.Contains(err.Error(), "make stamp VERSION="+other.version)) {
			t.Errorf("a release %s of %s is not refused: %v", other.version, other.root, err)
		}
		if other.trial = true; other.checkStamped() != nil {
			t.Errorf("a trial %s of %s is refused", other.version, other.root)
		}
	}
}

// hasPassages says whether the tree is of before the first release, so that pages say so.
func hasPassages(t *testing.T) bool {
	t.Helper()
	return anyPassage.MatchString(readPage(t, tree+"/docs/guides/installation.md"))
}

// In this tree the passages are there, so that stamping removes something.
func TestPassagesAreMarked(t *testing.T) {
	for _, name := range []string{"README.md", "docs/guides/installation.md", "docs/guides/release.md", "docs/guides/flux.md", "docs/guides/argocd.md", "docs/support.md", "docs/comparison.md", "docs/SECURITY.md", chartFolder + "/README.md"} {
		text := readPage(t, filepath.Join(tree, name))
		shown, err := publish(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// After a release there is nothing left to mark.
		if unpublishedText.MatchString(text) && shown == text {
			t.Errorf("%s says that there is no release, and marks no passage", name)
		}
	}
}

func TestPublish(t *testing.T) {
	for text, want := range map[string]string{
		"a\n\n<!-- until published -->\n**No.**\n<!-- end until published -->\n\nb\n":                          "a\n\nb\n",
		"a.<!-- until published --> No.<!-- end until published --> b\n":                                       "a. b\n",
		"a\n\n<!-- once published: See [it](x.md).\nAnd more. -->\n\nb\n":                                      "a\n\nSee [it](x.md).\nAnd more.\n\nb\n",
		"<!-- until published -->x <!-- end until published --><!-- once published: y -->z\n":                  "yz\n",
		"   <!-- until published -->\n   x\n   <!-- end until published -->\n   <!-- once published: y -->\nz": "   y\nz",
	} {
		if got, err := publish(text); err != nil || got != want {
			t.Errorf("%q becomes %q (%v), want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"<!-- until published -->\nx\n", "x <!-- end until published -->", "<!-- once published -->"} {
		if got, err := publish(text); err == nil {
			t.Errorf("%q becomes %q: no complaint", text, got)
		}
	}
}

func TestReplaceVersion(t *testing.T) {
	for text, want := range map[string]string{
		"v0.1.0": "v0.2.0", "tag: 0.1.0\n": "tag: 0.2.0\n", "holdfast-0.1.0.tgz": "holdfast-0.2.0.tgz", "x_v0.1.0_linux": "x_v0.2.0_linux",
		"v0.1.0@sha1": "v0.2.0@sha1", "with v0.1.0.": "with v0.2.0.", "0.1.0 0.1.0": "0.2.0 0.2.0",
		"10.1.0.0/16": "10.1.0.0/16", "1.0.1.0": "1.0.1.0", "0.1.01": "0.1.01", "0.1.0.1": "0.1.0.1", "v0.1.0-rc.1": "v0.1.0-rc.1",
	} {
		if got := replaceVersion(text, "v0.1.0", "v0.2.0"); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if got := replaceVersion("v0.2.0-rc.1 and 0.2.0", "v0.2.0-rc.1", "v0.2.0"); got != "v0.2.0 and 0.2.0" {
		t.Errorf("a candidate becomes %q", got)
	}
}

func TestHeadSection(t *testing.T) {
	const changelog = "# Changelog\n\n## Unreleased\n\n- next\n\n## v0.1.0\n\n- one\n"
	const want = "# Changelog\n\n## Unreleased\n\n## v0.2.0\n\n- next\n\n## v0.1.0\n\n- one\n"
	got := headSection(changelog, "v0.2.0")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changelog (-want +got):\n%s", diff)
	}
	if again := headSection(got, "v0.2.0"); again != got {
		t.Errorf("a second time it becomes %q", again)
	}
	if old := headSection(changelog, "v0.1.0"); old != changelog {
		t.Errorf("a section that is there changes: %q", old)
	}
}

// A bad version changes nothing.
func TestBadVersionStampsNothing(t *testing.T) {
	folder := copyStamped(t)
	if err := runCommand(t.Context(), []string{"-stamp", "-version", "0.2", folder}); err == nil || !strings.Contains(err.Error(), `VERSION "0.2"`) {
		t.Errorf("error %v", err)
	}
	if got := readVersion(t, folder); got != readVersion(t, tree) {
		t.Errorf("the tree names %s", got)
	}
}

// relativeLink is a link that leads nowhere outside of the tree.
var relativeLink = regexp.MustCompile(`\]\((?:[^h)]|h[^t)])[^)]*\)`)

// The package of the chart has a page of its version: it is read where there is no tree.
func TestChartPackageHasItsOwnPage(t *testing.T) {
	r := &release{version: "v0.2.0", image: defaultImage, root: tree, out: t.TempDir()}
	if err := r.writeChart(t.Context()); err != nil {
		t.Fatal(err)
	}
	chart, err := loader.Load(r.path(r.chartFile()))
	if err != nil {
		t.Fatal(err)
	}
	page := ""
	for _, file := range chart.Files {
		if file.Name == "README.md" {
			page = string(file.Data)
		}
	}
	for _, want := range []string{"helm install holdfast holdfast-0.2.0.tgz ", "helm upgrade holdfast holdfast-0.2.0.tgz ", repository + "/blob/v0.2.0/docs/guides/installation.md"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	for _, wrong := range []*regexp.Regexp{unpublishedText, relativeLink, regexp.MustCompile(`helm \w+ holdfast config/`), regexp.MustCompile(`0\.1\.0`)} {
		if found := wrong.FindString(page); found != "" {
			t.Errorf("the page has %q", found)
		}
	}
}
