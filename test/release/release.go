package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/holdfast-db/holdfast/test/kustomization"
)

// Where a release is published.
const (
	repository   = "https://github.com/holdfast-db/holdfast"
	defaultImage = kustomization.OperatorImage
)

// platform is a kind of machine that programs are built for.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

// Platforms of the operator and of the plugin.
var (
	imagePlatforms  = []platform{{"linux", "amd64"}, {"linux", "arm64"}}
	pluginPlatforms = []platform{
		{"linux", "amd64"}, {"linux", "arm64"},
		{"darwin", "amd64"}, {"darwin", "arm64"},
		{"windows", "amd64"}, {"windows", "arm64"},
	}
)

// source is the commit that a release is built from.
type source struct {
	commit string
	// time is the commit's, and that of every file: a build has none of its own.
	time time.Time
	// changes are the files that differ from the commit's, as git status lists them.
	changes []string
}

// modified says whether files differ from the commit's.
func (s source) modified() bool { return len(s.changes) > 0 }

// release is what is built, from what, and where it goes.
type release struct {
	version, image, tags string
	root, out            string
	packer               string
	platforms, plugins   []platform
	source               source
	// cache is the folder of compiled packages; empty for that of Go.
	cache string
	// trial says that the files are not to be published.
	trial bool
	warn  io.Writer
}

// checkPublishable refuses what would be published by mistake: files of no commit, and notes
// that are not the version's. A trial is not published.
func (r *release) checkPublishable() error {
	const remedy = "To make files that are not to be published, say so: make release VERSION=%s TRIAL=1"
	if r.trial {
		return nil
	}
	if changes := r.source.changes; len(changes) > 0 {
		return fmt.Errorf("the tree differs from its commit, so the same files cannot be made again: %s. Commit the changes. "+remedy, listSome(changes), r.version)
	}
	changelog, err := r.readChangelog()
	if err != nil {
		return err
	}
	_, heading, err := findSection(changelog, r.version)
	if err != nil {
		return err
	}
	if heading == unreleased {
		return fmt.Errorf("%s has no section \"## %s\": run make stamp VERSION=%s, and commit. "+remedy, changelogFile, r.version, r.version, r.version)
	}
	return nil
}

// listSome are the first of many lines.
func listSome(lines []string) string {
	const most = 5
	if len(lines) <= most {
		return strings.Join(lines, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(lines[:most], ", "), len(lines)-most)
}

// checkVersion refuses what no release may be called. Krew, Go and Helm read a
// version by these rules.
func checkVersion(version string) error {
	number, prefixed := strings.CutPrefix(version, "v")
	v, err := semver.StrictNewVersion(number)
	switch {
	case !prefixed || err != nil:
		return fmt.Errorf("VERSION %q is no semantic version with a leading v, such as v0.1.0 or v0.2.0-rc.1: run make with VERSION=v0.1.0", version)
	case v.Metadata() != "":
		return fmt.Errorf("VERSION %q has build metadata (+%s), which no image tag may contain: leave it out", version, v.Metadata())
	}
	return nil
}

// Names of files that have no version in them.
const (
	imageFile        = "holdfast-image.tar"
	bundleFile       = "holdfast-bundle-image.tar"
	catalogFile      = "holdfast-catalog.yaml"
	catalogImageFile = "holdfast-catalog-image.tar"
	installFile      = "install.yaml"
	krewFile         = "krew-holdfast.yaml"
	notesFile        = "RELEASE_NOTES.md"
	provenanceFile   = "provenance.json"
	checksumsFile    = "SHA256SUMS"
)

// binaryFile is the operator's program.
func (r *release) binaryFile(p platform) string { return "holdfast_" + r.version + "_" + p.String() }

// pluginFile is the archive of the plugin.
func (r *release) pluginFile(p platform) string {
	name := "kubectl-holdfast_" + r.version + "_" + p.String()
	if p.os == "windows" {
		return name + ".zip"
	}
	return name + ".tar.gz"
}

// sbomFile lists what a program is made of. It has the name of the file that
// contains the program.
func sbomFile(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, ".tar.gz"), ".zip") + ".cdx.json"
}

// fileNames are all files of the release, in order.
func (r *release) fileNames() []string {
	names := []string{imageFile, bundleFile, catalogFile, catalogImageFile, r.chartFile(), installFile, krewFile, notesFile, provenanceFile, checksumsFile}
	for _, p := range r.platforms {
		names = append(names, r.binaryFile(p), sbomFile(r.binaryFile(p)))
	}
	for _, p := range r.plugins {
		names = append(names, r.pluginFile(p), sbomFile(r.pluginFile(p)))
	}
	for _, overlay := range overlays {
		names = append(names, overlay.file())
	}
	slices.Sort(names)
	return names
}

// write builds everything. The checksums come last: a folder without them is of
// a run that failed.
func (r *release) write(ctx context.Context) error {
	if err := r.checkPublishable(); err != nil {
		return err
	}
	if err := r.checkStamped(); err != nil {
		return err
	}
	if err := makeEmptyFolder(r.out); err != nil {
		return err
	}
	if r.source.modified() {
		fmt.Fprintln(r.warn, "release: the tree has changes that are not committed; the provenance statement says so")
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"build the operator", r.writeBinaries},
		{"pack the image", r.packImage},
		{"build the plugin", r.writePlugins},
		{"write the manifests", r.writeManifests},
		{"package the Helm chart", r.writeChart},
		{"pack the bundle for OLM", r.writeBundle},
		{"write the catalog for OLM", r.writeCatalog},
		{"pack the catalog for OLM", r.packCatalog},
		{"write the release notes", r.writeNotes},
		{"write the provenance statement", r.writeProvenance},
		{"write the checksums", r.writeChecksums},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return r.checkFiles()
}

// makeEmptyFolder refuses a folder with files: one of another version would be
// published with these.
func makeEmptyFolder(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty: it contains %s. Remove the folder, so that it holds one release only", folder, entries[0].Name())
	}
	return os.MkdirAll(folder, 0o755)
}

// checkFiles compares the folder with the list of files.
func (r *release) checkFiles() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var written []string
	for _, entry := range entries {
		written = append(written, entry.Name())
	}
	if want := r.fileNames(); !slices.Equal(written, want) {
		return fmt.Errorf("%s contains %v, and should contain %v", r.out, written, want)
	}
	return nil
}

// path of a file of the release.
func (r *release) path(name string) string { return filepath.Join(r.out, name) }

// writeText writes a text file of the release.
func (r *release) writeText(name string, text []byte) error {
	return os.WriteFile(r.path(name), text, 0o644) //nolint:gosec // it is published
}

// downloadURL is where a file of the release will be.
func (r *release) downloadURL(name string) string {
	return repository + "/releases/download/" + r.version + "/" + name
}
