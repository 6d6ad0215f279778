package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/test/docs"
)

// Files of a release as pages name them: by an address or in dist, and by names that no other
// file has.
var (
	placedFile = regexp.MustCompile("(?:releases/download/[^/\\s`]+|\\bdist)/([\\w.*<>-]+\\w)")
	bareFile   = regexp.MustCompile(`(?:^|[^\w./-])((?:kubectl-)?holdfast[-_][\w.-]+\.(?:tgz|tar\.gz|tar|zip|yaml|cdx\.json)|install(?:-[a-z-]+)?\.yaml|krew-[\w.-]+\.yaml)\b`)
)

// pages are all Markdown files that name files of a release.
func pages(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	for _, from := range []string{"README.md", "docs", "examples", chartFolder} {
		err := filepath.WalkDir(filepath.Join(root, from), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && filepath.Ext(path) == ".md" {
				found = append(found, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func readPage(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// readVersion is the version that a tree names.
func readVersion(t *testing.T, root string) string {
	t.Helper()
	version, err := docs.ReadVersion(root)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// checkNamedFiles has pages name only what a release of the tree's version makes.
func checkNamedFiles(t *testing.T, root string) {
	t.Helper()
	r := &release{version: readVersion(t, root), platforms: imagePlatforms, plugins: pluginPlatforms}
	names := r.fileNames()
	mentioned := map[string]bool{}
	for _, page := range pages(t, root) {
		text := readPage(t, page)
		for _, pattern := range []*regexp.Regexp{placedFile, bareFile} {
			for _, found := range pattern.FindAllStringSubmatch(text, -1) {
				mentioned[found[1]] = true
				if !slices.Contains(names, found[1]) {
					t.Errorf("%s names %s, which is no file of a release", page, found[1])
				}
			}
		}
	}
	for _, name := range []string{installFile, imageFile, r.chartFile(), krewFile, r.pluginFile(pluginPlatforms[0])} {
		if !mentioned[name] {
			t.Errorf("no page names %s", name)
		}
	}
}

// Pages name only what a release makes, and the page on releases names all of it.
func TestDocsNameReleaseFiles(t *testing.T) {
	checkNamedFiles(t, tree)
	r := &release{version: readVersion(t, tree), platforms: imagePlatforms, plugins: pluginPlatforms}
	page := readPage(t, tree+buildPage)
	for _, name := range r.fileNames() {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("%s does not say what %s is", buildPage, name)
		}
	}
}

// A name that no release has is found, whether it is placed or bare.
func TestNamedFilesAreFound(t *testing.T) {
	for text, want := range map[string]string{
		"helm install holdfast holdfast-9.tgz": "holdfast-9.tgz", "`install-odd.yaml`": "install-odd.yaml", "-f install.yaml": "install.yaml",
		"krew-other.yaml": "krew-other.yaml", "tar -xzf kubectl-holdfast_v1_linux_s390x.tar.gz": "kubectl-holdfast_v1_linux_s390x.tar.gz",
		"oci-archive:holdfast-image.tar": "holdfast-image.tar", "kustomize/install.yaml": "", "holdfast-system": "", "dist/holdfast-image.tar": "",
	} {
		got := ""
		if found := bareFile.FindStringSubmatch(text); found != nil {
			got = found[1]
		}
		if got != want {
			t.Errorf("%q names %q, want %q", text, got, want)
		}
	}
}

// The page on installation says what must be there before each manifest is applied: the
// namespaces that it does not create, and the kinds of the Prometheus operator.
func TestInstallPageSaysWhatManifestsNeed(t *testing.T) {
	r := &release{version: "v0.1.0", image: defaultImage, root: tree, out: t.TempDir()}
	if err := r.writeManifests(t.Context()); err != nil {
		t.Fatal(err)
	}
	page := readPage(t, tree+"/docs/guides/installation.md")
	needs := 0
	for _, o := range append([]overlay{plainInstall}, overlays...) {
		created, used, monitored := map[string]bool{}, map[string]bool{}, false
		for document := range strings.SplitSeq(readPage(t, r.path(o.file())), "\n---\n") {
			var object struct {
				APIVersion, Kind string
				Metadata         struct{ Name, Namespace string }
			}
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				t.Fatal(err)
			}
			if object.Kind == "Namespace" {
				created[object.Metadata.Name] = true
			}
			used[object.Metadata.Namespace] = true
			monitored = monitored || strings.HasPrefix(object.APIVersion, "monitoring.coreos.com/")
		}
		delete(used, "")
		_, row, _ := strings.Cut(page, "\n| `"+o.file()+"` |")
		row, _, _ = strings.Cut(row, "\n")
		for namespace := range used {
			if created[namespace] {
				continue
			}
			needs++
			// Once before it is applied, and once where clusters may be.
			if strings.Count(row, namespace+"`") < 2 {
				t.Errorf("the row of %s does not say that the namespace %s must exist, and may have clusters: %s", o.file(), namespace, row)
			}
		}
		if says := strings.Contains(row, "Prometheus operator"); says != monitored {
			t.Errorf("%s has kinds of the Prometheus operator: %t, and its row says so: %t", o.file(), monitored, says)
		}
		if monitored {
			needs++
		}
	}
	if needs < 4 {
		t.Errorf("the manifests need only %d things", needs)
	}
}
