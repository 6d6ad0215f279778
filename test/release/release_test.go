package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/test/kustomization"
)

// tree is the root of the repository, from this package's folder.
const tree = "../.."

func TestVersions(t *testing.T) {
	for version, complaint := range map[string]string{
		"v0.1.0": "", "v1.20.3": "", "v0.2.0-rc.1": "",
		"0.1.0":          "leading v",
		"v0.1":           "semantic version",
		"v1":             "semantic version",
		"v01.1.0":        "semantic version",
		"latest":         "semantic version",
		"":               "semantic version",
		"v0.1.0-3-gabc_": "semantic version",
		"ce13ea5":        "semantic version",
		"v0.1.0 ":        "semantic version",
		"v0.1.0+build":   "build metadata",
	} {
		err := checkVersion(version)
		if complaint == "" && err != nil {
			t.Errorf("%q is refused: %v", version, err)
		}
		if complaint != "" && (err == nil || !strings.Contains(err.Error(), complaint)) {
			t.Errorf("%q: %v, want a message about %q", version, err, complaint)
		}
	}
}

// A bad version is refused before anything is built or written.
func TestBadVersionWritesNothing(t *testing.T) {
	out := filepath.Join(t.TempDir(), "dist")
	err := runCommand(t.Context(), []string{"-version", "1.0", "-packer", "/nonexistent", "-out", out, tree})
	if err == nil || !strings.Contains(err.Error(), `VERSION "1.0"`) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder was made: %v", err)
	}
}

// Files of an earlier release are never published with those of another.
func TestFolderMustBeEmpty(t *testing.T) {
	folder := t.TempDir()
	if err := makeEmptyFolder(folder); err != nil {
		t.Errorf("an empty folder is refused: %v", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "holdfast_v0.0.9_linux_amd64"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := makeEmptyFolder(folder); err == nil || !strings.Contains(err.Error(), "holdfast_v0.0.9_linux_amd64") {
		t.Errorf("error %v, want the file's name", err)
	}
}

// newClone is a Git repository with one commit, which has a changelog.
func newClone(t *testing.T, changelog string) string {
	t.Helper()
	root := t.TempDir()
	writeInto(t, root, changelogFile, changelog)
	writeInto(t, root, ".gitignore", "/dist/\n")
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "."}, {"-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false", "commit", "--quiet", "-m", "first"}} {
		if err := runProgram(exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func writeInto(t *testing.T, folder, file, text string) {
	t.Helper()
	path := filepath.Join(folder, file)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Files of no commit, or with the notes of no version, are made only on request.
func TestOnlyTrialsAreOfAnyTree(t *testing.T) {
	const released, unfinished = "# Changelog\n\n## v0.1.0\n\n- one\n", "# Changelog\n\n## Unreleased\n\n- one\n"
	for name, c := range map[string]struct {
		changelog string
		changed   []string
		complaint string
	}{
		"a clean clone with the section": {changelog: released},
		"ignored files":                  {changelog: released, changed: []string{"dist/old"}},
		"a file of no commit":            {released, []string{"main.go"}, "?? main.go"},
		"a changed file":                 {released, []string{changelogFile}, "M " + changelogFile},
		"many files":                     {released, []string{"a", "b", "c", "d", "e", "f", "g"}, "?? e and 2 more"},
		"no section":                     {unfinished, nil, `no section "## v0.1.0"`},
	} {
		t.Run(name, func(t *testing.T) {
			root, out := newClone(t, c.changelog), filepath.Join(t.TempDir(), "out")
			for _, file := range c.changed {
				writeInto(t, root, file, "changed")
			}
			source, err := readSource(t.Context(), root)
			if err != nil {
				t.Fatal(err)
			}
			r := &release{version: "v0.1.0", root: root, out: out, source: source}
			if c.complaint == "" {
				if err := r.checkPublishable(); err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			err = r.write(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.complaint) || !strings.Contains(err.Error(), "make release VERSION=v0.1.0 TRIAL=1") {
				t.Errorf("error %v, want one about %q and how to make a trial", err, c.complaint)
			}
			if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the folder was made: %v", err)
			}
			r.trial = true
			if err := r.checkPublishable(); err != nil {
				t.Errorf("a trial is refused: %v", err)
			}
		})
	}
}

func TestSections(t *testing.T) {
	const changelog = "# Changelog\n\nIntroduction.\n\n## Unreleased\n\n### Added\n\n- next\n\n## [v0.2.0] - 2026-11-01\n\n- two\n\n## 0.1.0\n\n- one\n"
	for version, want := range map[string][2]string{
		"v0.1.0": {"- one\n", "0.1.0"},
		"v0.2.0": {"- two\n", "0.2.0"},
		"v0.3.0": {"### Added\n\n- next\n", unreleased},
	} {
		section, heading, err := findSection(changelog, version)
		if diff := cmp.Diff(want, [2]string{section, heading}); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", version, err, diff)
		}
	}
	if _, _, err := findSection("# Changelog\n\n## Unreleased\n\n## 0.1.0\n\n- one\n", "v0.2.0"); err == nil || !strings.Contains(err.Error(), `"## v0.2.0"`) {
		t.Errorf("error %v, want the heading to add", err)
	}
}

func TestAbsoluteLinks(t *testing.T) {
	got := absoluteLinks("[a](reference/api.md#x), [b](../README.md), [c](https://example.com/y)", "https://forge.example/blob/v1/docs/")
	want := "[a](https://forge.example/blob/v1/docs/reference/api.md#x), [b](https://forge.example/blob/v1/README.md), [c](https://example.com/y)"
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// Every overlay of the tree becomes a manifest.
func TestOverlaysAreComplete(t *testing.T) {
	folders, err := filepath.Glob(tree + "/kustomize/overlays/*")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, folder := range folders {
		want = append(want, "kustomize/overlays/"+filepath.Base(folder))
	}
	for _, o := range overlays {
		got = append(got, o.folder)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("overlays (-want +got):\n%s", diff)
	}
}

// kubectl apply -k on the tree of a version installs what the files of that version do: the
// tree names the image that a release makes.
func TestTreeInstallsRelease(t *testing.T) {
	text, err := os.ReadFile(tree + "/config/manager/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`image: ` + regexp.QuoteMeta(defaultImage) + `:(\S+)`).FindStringSubmatch(string(text))
	if named == nil {
		t.Fatalf("config/manager names no image of %s", defaultImage)
	}
	if err := checkVersion(named[1]); err != nil {
		t.Fatalf("config/manager names the tag %s: %v", named[1], err)
	}
	r := &release{version: named[1], image: defaultImage, root: tree, out: t.TempDir()}
	if err := r.writeManifests(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, o := range append([]overlay{plainInstall}, overlays...) {
		built, err := kustomization.Build(tree, "resources: [\"{root}/"+o.folder+"\"]\n")
		if err != nil {
			t.Fatal(err)
		}
		want, err := built.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(r.path(o.file()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasSuffix(content, append([]byte(o.file()+"\n"), want...)) {
			t.Errorf("%s differs from what %s of the tree installs", o.file(), o.folder)
		}
	}
}

// A manifest names the version's image once for each operator, whatever the tree names, and can
// be applied from top to bottom.
func TestManifests(t *testing.T) {
	const image, version = "registry.example:5000/platform/holdfast", "v0.9.0-rc.1"
	r := &release{version: version, image: image, root: tree, out: t.TempDir()}
	if err := r.writeManifests(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, o := range append([]overlay{plainInstall}, overlays...) {
		content, err := os.ReadFile(r.path(o.file()))
		if err != nil {
			t.Fatal(err)
		}
		text, want := string(content), image+":"+version
		if o.mirrored {
			want = placeholderImage + ":" + version
		}
		operators := max(1, o.operators)
		if images := strings.Count(text, "\n        image: "); images != operators || strings.Count(text, "image: "+want+"\n") != operators {
			t.Errorf("%s has %d images, and %s %d times", o.file(), images, want, strings.Count(text, "image: "+want+"\n"))
		}
		if strings.Contains(text, defaultImage) || !o.mirrored && strings.Contains(text, placeholderImage) {
			t.Errorf("%s names an image that is not the one asked for", o.file())
		}
		documents := strings.Split(text, "\n---\n")
		namespace := slices.IndexFunc(documents, func(d string) bool { return strings.Contains(d, "\nkind: Namespace\n") })
		inside := slices.IndexFunc(documents, func(d string) bool { return strings.Contains(d, "\n  namespace: holdfast-") })
		if namespace < 0 || inside < namespace {
			t.Errorf("%s has the namespace at %d, and the first object in it at %d", o.file(), namespace, inside)
		}
	}
}

// An archive has its files with their modes and one time, and the same bytes each
// time.
func TestArchives(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC)
	files := []archived{{name: "program", content: []byte("code"), executable: true}, {name: "LICENSE", content: []byte("terms")}}
	want := map[string]string{"program": "-rwxr-xr-x 2026-03-01T12:30:00Z code", "LICENSE": "-rw-r--r-- 2026-03-01T12:30:00Z terms"}
	for _, name := range []string{"a.tar.gz", "a.zip"} {
		var archives [][]byte
		for range 2 {
			r := &release{out: t.TempDir(), source: source{time: at}}
			if err := r.writeArchive(name, files); err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(r.path(name))
			if err != nil {
				t.Fatal(err)
			}
			archives = append(archives, content)
		}
		if !bytes.Equal(archives[0], archives[1]) {
			t.Errorf("%s differs from run to run", name)
		}
		got := map[string]string{}
		for file, info := range readArchive(t, name, archives[0]) {
			got[file] = info.mode.String() + " " + info.modified.UTC().Format(time.RFC3339) + " " + string(info.content)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// unpacked is a file of an archive.
type unpacked struct {
	mode     fs.FileMode
	modified time.Time
	content  []byte
}

// readArchive unpacks a .zip or .tar.gz.
func readArchive(t *testing.T, name string, archive []byte) map[string]unpacked {
	t.Helper()
	files := map[string]unpacked{}
	if filepath.Ext(name) == ".zip" {
		r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range r.File {
			content, err := fs.ReadFile(r, entry.Name)
			if err != nil {
				t.Fatal(err)
			}
			files[entry.Name] = unpacked{entry.Mode(), entry.Modified, content}
		}
		return files
	}
	compressed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(compressed); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = unpacked{header.FileInfo().Mode(), header.ModTime, content}
	}
}
