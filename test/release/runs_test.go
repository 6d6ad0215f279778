package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"sigs.k8s.io/yaml"
)

// Two runs, from clones in different folders, write the same bytes; and what the
// files say of each other is true.
func TestReleaseIsReproducible(t *testing.T) {
	from, err := readSource(t.Context(), tree)
	if err != nil && sourceRequired {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("this is no Git clone: %v", err)
	}
	packer := buildPacker(t)
	var runs []*release
	for _, root := range []string{tree, copyTree(t)} {
		r := &release{
			version: "v0.1.0", image: "registry.example.com/holdfast", tags: "disable_grpc_modules", root: root, out: filepath.Join(t.TempDir(), "dist"),
			packer: packer, platforms: testedPlatforms, plugins: testedPlugins, source: from, warn: io.Discard,
			// The tree may be one that is being changed.
			trial: true,
		}
		if compiledTwice && root != tree {
			r.cache = t.TempDir()
		}
		if err := r.write(t.Context()); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	sums := [2]map[string]string{readChecksums(t, runs[0]), readChecksums(t, runs[1])}
	if diff := cmp.Diff(sums[0], sums[1]); diff != "" {
		t.Errorf("the second run differs (-first +second):\n%s", diff)
	}
	if len(sums[0]) != len(runs[0].fileNames())-1 {
		t.Errorf("%d checksums of %d files", len(sums[0]), len(runs[0].fileNames()))
	}
	r := runs[0]
	t.Run("checksums", func(t *testing.T) { checkChecksums(t, r) })
	t.Run("programs", func(t *testing.T) { checkPrograms(t, r) })
	t.Run("krew", func(t *testing.T) { checkKrewManifest(t, r) })
	t.Run("chart", func(t *testing.T) { checkChart(t, r) })
	t.Run("images", func(t *testing.T) { checkPulled(t, r, publishedImages(t, r)) })
	t.Run("catalog", func(t *testing.T) { checkCatalog(t, r) })
	t.Run("SBOM", func(t *testing.T) { checkSBOMs(t, r) })
	t.Run("provenance", func(t *testing.T) { checkProvenance(t, r, sums[0]) })
}

// buildPacker builds the program of test/cluster as make does.
func buildPacker(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "cluster")
	command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, ".")
	command.Dir = "../cluster"
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := runProgram(command); err != nil {
		t.Fatal(err)
	}
	return program
}

// copyTree copies the files of the tree into another folder.
func copyTree(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "another", "place")
	listed, err := exec.CommandContext(t.Context(), "git", "-C", tree, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Split(strings.Trim(string(listed), "\x00"), "\x00") {
		from, to := filepath.Join(tree, name), filepath.Join(folder, name)
		info, err := os.Lstat(from)
		if os.IsNotExist(err) {
			continue // removed, and not yet committed
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&os.ModeSymlink != 0 {
			target, err := os.Readlink(from)
			if err == nil {
				err = os.Symlink(target, to)
			}
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		content, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// readChecksums are the digests that a release lists, by file.
func readChecksums(t *testing.T, r *release) map[string]string {
	t.Helper()
	text, err := os.ReadFile(r.path(checksumsFile))
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[name] = sum
	}
	return sums
}

// checkChecksums has the users' own tool read the list.
func checkChecksums(t *testing.T, r *release) {
	command := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "--quiet", checksumsFile)
	command.Dir = r.out
	if err := runProgram(command); err != nil {
		t.Error(err)
	}
}

// checkPrograms runs those of this machine: they name the version.
func checkPrograms(t *testing.T, r *release) {
	here := platform{runtime.GOOS, runtime.GOARCH}
	archive, err := os.ReadFile(r.path(r.pluginFile(here)))
	if err != nil {
		t.Fatal(err)
	}
	plugin := filepath.Join(t.TempDir(), "kubectl-holdfast")
	if err := os.WriteFile(plugin, readArchive(t, r.pluginFile(here), archive)["kubectl-holdfast"].content, 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	for program, want := range map[string]string{r.path(r.binaryFile(here)): "holdfast version v0.1.0 (", plugin: "kubectl holdfast version v0.1.0 ("} {
		out, err := exec.CommandContext(t.Context(), program, "--version").CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s --version prints %q (%v), want %q", program, out, err, want)
		}
	}
}

// checkKrewManifest has Krew's own validator read the manifest, and looks into the
// archives as Krew does.
func checkKrewManifest(t *testing.T, r *release) {
	text, err := os.ReadFile(r.path(krewFile))
	if err != nil {
		t.Fatal(err)
	}
	// In Krew's index the file has the plugin's name.
	indexed := filepath.Join(t.TempDir(), "holdfast.yaml")
	if err := os.WriteFile(indexed, text, 0o600); err != nil {
		t.Fatal(err)
	}
	modules, err := filepath.Abs("../tools/krew/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if err := runProgram(exec.CommandContext(t.Context(), "go", "tool", "-modfile="+modules, "validate-krew-manifest", "-skip-install", "-manifest", indexed)); err != nil {
		t.Error(err)
	}
	var manifest krewManifest
	if err := yaml.UnmarshalStrict(text, &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Spec.Platforms) != len(r.plugins) {
		t.Errorf("%d platforms, want %d", len(manifest.Spec.Platforms), len(r.plugins))
	}
	for _, p := range manifest.Spec.Platforms {
		name := filepath.Base(p.URI)
		if p.URI != repository+"/releases/download/v0.1.0/"+name {
			t.Errorf("%s is no file of the release", p.URI)
		}
		archive, err := os.ReadFile(r.path(name))
		if err != nil {
			t.Fatal(err)
		}
		if sum, err := fileDigest(r.path(name)); err != nil || sum != p.SHA256 {
			t.Errorf("%s has the digest %s (%v), and the manifest %s", name, sum, err, p.SHA256)
		}
		files := readArchive(t, name, archive)
		if program := files[p.Bin]; program.mode.Perm() != 0o755 || len(program.content) < 1<<20 {
			t.Errorf("%s has no program %s: %v, %d bytes", name, p.Bin, program.mode, len(program.content))
		}
		if len(files["LICENSE"].content) == 0 {
			t.Errorf("%s has no license", name)
		}
	}
}

// checkChart reads the packaged chart as Helm does.
func checkChart(t *testing.T, r *release) {
	chart, err := loader.Load(r.path("holdfast-0.1.0.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	image, _ := chart.Values["image"].(map[string]any)
	got := []any{chart.Metadata.Version, chart.Metadata.AppVersion, image["repository"], image["tag"]}
	if diff := cmp.Diff([]any{"0.1.0", "v0.1.0", "registry.example.com/holdfast", ""}, got); diff != "" {
		t.Errorf("chart (-want +got):\n%s", diff)
	}
	definitions := 0
	for _, file := range chart.Files {
		if strings.HasPrefix(file.Name, "files/crds/") {
			definitions++
		}
	}
	if definitions != 5 {
		t.Errorf("%d definitions", definitions)
	}
}

// checkCatalog looks for the images by which OLM's catalog refers to other files of the
// release. Its content has tests of its own, in the package that makes it.
func checkCatalog(t *testing.T, r *release) {
	text, err := os.ReadFile(r.path(catalogFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"\nimage: registry.example.com/holdfast-bundle:v0.1.0\n", "image: registry.example.com/holdfast:v0.1.0\n", "\nname: holdfast.v0.1.0\n"} {
		if strings.Count(string(text), line) != 1 {
			t.Errorf("%s has the line %q %d times, want once", catalogFile, line, strings.Count(string(text), line))
		}
	}
}

// checkSBOMs compares some of each list with what go.mod says.
func checkSBOMs(t *testing.T, r *release) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-C", tree, "-m", "-f", "{{.Path}} {{.Version}}", "k8s.io/client-go", "github.com/spf13/cobra").Output()
	if err != nil {
		t.Fatal(err)
	}
	libraries, err := readNPMComponents(tree)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, p := range r.platforms {
		names = append(names, sbomFile(r.binaryFile(p)))
	}
	for _, p := range r.plugins {
		names = append(names, sbomFile(r.pluginFile(p)))
	}
	for _, name := range names {
		text, err := os.ReadFile(r.path(name))
		if err != nil {
			t.Fatal(err)
		}
		var bom cyclonedx.BOM
		if err := cyclonedx.NewBOMDecoder(bytes.NewReader(text), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
			t.Fatal(err)
		}
		if main := bom.Metadata.Component; main.Name != "github.com/holdfast-db/holdfast" || main.Version != "v0.1.0" {
			t.Errorf("%s is about %s %s", name, main.Name, main.Version)
		}
		components := map[string]bool{}
		for _, c := range *bom.Components {
			components[c.Name+" "+c.Version] = true
		}
		for _, library := range libraries {
			if !components[library.Name+" "+library.Version] {
				t.Errorf("%s lacks %s %s", name, library.Name, library.Version)
			}
		}
		for line := range strings.Lines(string(out)) {
			if module := strings.TrimSpace(line); !components[module] {
				t.Errorf("%s lacks %s", name, module)
			}
		}
		if !components["std "+runtime.Version()] && !components["std "+strings.TrimPrefix(runtime.Version(), "go")] {
			t.Errorf("%s lacks Go's library of %s", name, runtime.Version())
		}
	}
}

// checkProvenance reads the statement as its readers do.
func checkProvenance(t *testing.T, r *release, sums map[string]string) {
	text, err := os.ReadFile(r.path(provenanceFile))
	if err != nil {
		t.Fatal(err)
	}
	var statement struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []struct {
			Name   string
			Digest map[string]string
		}
		Predicate struct {
			BuildDefinition struct {
				ExternalParameters   map[string]any
				InternalParameters   map[string]any
				ResolvedDependencies []struct{ Digest map[string]string }
			}
		}
	}
	if err := json.Unmarshal(text, &statement); err != nil {
		t.Fatal(err)
	}
	if statement.Type != "https://in-toto.io/Statement/v1" || statement.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("the statement is a %s of %s", statement.Type, statement.PredicateType)
	}
	got := map[string]string{}
	for _, subject := range statement.Subject {
		got[subject.Name] = subject.Digest["sha256"]
	}
	want := map[string]string{}
	for name, sum := range sums {
		if name != provenanceFile {
			want[name] = sum
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
	build := statement.Predicate.BuildDefinition
	if len(build.ResolvedDependencies) != 1 || build.ResolvedDependencies[0].Digest["gitCommit"] != r.source.commit {
		t.Errorf("the source is %v, want %s", build.ResolvedDependencies, r.source.commit)
	}
	if build.ExternalParameters["version"] != "v0.1.0" || build.InternalParameters["signed"] != false || build.InternalParameters["sourceModified"] != r.source.modified() || build.InternalParameters["trial"] != r.trial {
		t.Errorf("parameters %v, %v", build.ExternalParameters, build.InternalParameters)
	}
}
