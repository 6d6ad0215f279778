package main

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	operators "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"sigs.k8s.io/yaml"
)

// publishedImage is an archive of an image, and what its readers find in it.
type publishedImage struct {
	file, reference string
	labels          map[string]string
	// files of the image for a platform.
	files     func(platform) map[string]string
	platforms []platform
}

// publishedImages are the archives of a release.
func publishedImages(t *testing.T, r *release) []publishedImage {
	t.Helper()
	operator := publishedImage{
		file: imageFile, reference: r.image + ":" + r.version, platforms: r.platforms,
		labels: map[string]string{
			"org.opencontainers.image.title": "holdfast", "org.opencontainers.image.source": repository, "org.opencontainers.image.version": r.version,
			"org.opencontainers.image.revision": r.source.commit, "org.opencontainers.image.licenses": "Apache-2.0",
		},
		files: func(p platform) map[string]string {
			return map[string]string{"holdfast": readText(t, r.path(r.binaryFile(p)))}
		},
	}
	return append(imagesForOLM(t, r), operator)
}

// imagesForOLM are those that contain no program: they are for every processor.
func imagesForOLM(t *testing.T, r *release) []publishedImage {
	t.Helper()
	bundle, err := r.buildBundle()
	if err != nil {
		t.Fatal(err)
	}
	labels, err := bundle.Labels()
	if err != nil {
		t.Fatal(err)
	}
	manifests := map[string]string{}
	for file, content := range bundle {
		manifests[file] = string(content)
	}
	return []publishedImage{
		{file: bundleFile, reference: r.image + "-bundle:" + r.version, platforms: imagePlatforms, labels: labels, files: func(platform) map[string]string { return manifests }},
		{
			file: catalogImageFile, reference: r.image + "-catalog:" + r.version, platforms: imagePlatforms,
			labels: map[string]string{"operators.operatorframework.io.index.configs.v1": "/configs"},
			files: func(platform) map[string]string {
				return map[string]string{"configs/holdfast/catalog.yaml": readText(t, r.path(catalogFile))}
			},
		},
	}
}

// readText is the content of a file.
func readText(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// A node pulls the images for OLM whatever its processor, and finds in them what the release
// has in files.
func TestImagesForOLMArePulled(t *testing.T) {
	r := &release{version: "v0.1.0", image: "registry.example.com/holdfast", root: tree, out: t.TempDir(), packer: buildPacker(t)}
	for _, write := range []func(context.Context) error{r.writeBundle, r.writeCatalog, r.packCatalog} {
		if err := write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	checkPulled(t, r, imagesForOLM(t, r))
}

// olmManifests are those that the page on installation has users apply.
var olmManifests = regexp.MustCompile("(?s)```yaml\n([^`]*\nkind: Subscription\n[^`]*)```")

// The manifests of the page lead from the Subscription to the catalog's image, and to where the
// catalog is in it.
func TestInstallationNamesTheCatalog(t *testing.T) {
	found := olmManifests.FindStringSubmatch(readText(t, tree+"/docs/guides/installation.md"))
	if found == nil {
		t.Fatal("the page has no Subscription")
	}
	var source operators.CatalogSource
	var subscription operators.Subscription
	for _, document := range strings.Split(found[1], "\n---\n") {
		var kind struct{ Kind string }
		err := yaml.Unmarshal([]byte(document), &kind)
		switch kind.Kind {
		case "CatalogSource":
			err = yaml.UnmarshalStrict([]byte(document), &source)
		case "Subscription":
			err = yaml.UnmarshalStrict([]byte(document), &subscription)
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
	}
	if source.Spec.SourceType != operators.SourceTypeGrpc || source.Spec.GrpcPodConfig == nil || source.Spec.GrpcPodConfig.ExtractContent == nil {
		t.Fatalf("the catalog's image is not one that OLM copies the catalog out of: %+v", source.Spec)
	}
	if got := source.Spec.GrpcPodConfig.ExtractContent.CatalogDir; got != catalogFolder {
		t.Errorf("the catalog is looked for in %s, and is in %s", got, catalogFolder)
	}
	repository, version, _ := strings.Cut(source.Spec.Image, ":")
	r := &release{version: version, image: strings.TrimSuffix(repository, "-catalog"), root: tree}
	if err := checkVersion(version); err != nil || r.catalogImage() != source.Spec.Image {
		t.Errorf("the CatalogSource has the image %s (%v), which no release makes", source.Spec.Image, err)
	}
	if page := readText(t, tree+"/docs/guides/installation.md"); !strings.Contains(page, "docker://"+source.Spec.Image+"\n") || !strings.Contains(page, "docker://"+r.bundleImage()+"\n") {
		t.Errorf("the page does not push both %s and the bundle that it names, %s", source.Spec.Image, r.bundleImage())
	}
	bundle, err := r.buildBundle()
	if err != nil {
		t.Fatal(err)
	}
	labels, err := bundle.Labels()
	if err != nil {
		t.Fatal(err)
	}
	want := operators.SubscriptionSpec{
		CatalogSource: source.Name, CatalogSourceNamespace: source.Namespace,
		Package: labels["operators.operatorframework.io.bundle.package.v1"], Channel: labels["operators.operatorframework.io.bundle.channels.v1"],
	}
	if diff := cmp.Diff(&want, subscription.Spec); diff != "" {
		t.Errorf("Subscription (-want +got):\n%s", diff)
	}
}

// checkPulled pushes archives to a registry as the pages say, and pulls each for every
// platform.
func checkPulled(t *testing.T, r *release, images []publishedImage) {
	t.Helper()
	address := startRegistry(t)
	for _, image := range images {
		pushed := pushArchive(t, r, image, address)
		for _, p := range image.platforms {
			pulled, err := remote.Image(pushed, remote.WithPlatform(v1.Platform{OS: p.os, Architecture: p.arch}))
			if err != nil {
				t.Errorf("pull %s for %s: %v", image.file, p, err)
				continue
			}
			config, err := pulled.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if config.OS != p.os || config.Architecture != p.arch {
				t.Errorf("%s for %s is of %s/%s", image.file, p, config.OS, config.Architecture)
			}
			if diff := cmp.Diff(image.labels, config.Config.Labels); diff != "" {
				t.Errorf("labels of %s for %s (-want +got):\n%s", image.file, p, diff)
			}
			// Programs differ as a whole: their names are enough to read.
			want, got := image.files(p), filesOf(t, pulled)
			if !maps.Equal(want, got) {
				t.Errorf("%s for %s has other files than the release, or other content. Files (-want +got):\n%s", image.file, p, cmp.Diff(sizes(want), sizes(got)))
			}
		}
	}
}

// sizes of files, by name.
func sizes(files map[string]string) map[string]int {
	lengths := map[string]int{}
	for file, content := range files {
		lengths[file] = len(content)
	}
	return lengths
}

// startRegistry is a registry in this process, until the test's end.
func startRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// pushArchive pushes an archive under its name, to a registry at another address.
func pushArchive(t *testing.T, r *release, image publishedImage, address string) name.Reference {
	t.Helper()
	folder := t.TempDir()
	unpackTar(t, r.path(image.file), folder)
	top, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := top.IndexManifest()
	if err != nil || len(entries.Manifests) != 1 {
		t.Fatalf("%s lists %v (%v), want one image", image.file, entries, err)
	}
	if got := entries.Manifests[0].Annotations["io.containerd.image.name"]; got != image.reference {
		t.Errorf("a node would import %s as %q, want %s", image.file, got, image.reference)
	}
	list, err := top.ImageIndex(entries.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	_, path, _ := strings.Cut(image.reference, "/")
	reference, err := name.ParseReference(address + "/" + path)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(reference, list); err != nil {
		t.Fatalf("push %s: %v", image.file, err)
	}
	return reference
}

// unpackTar unpacks an archive into a folder.
func unpackTar(t *testing.T, archive, folder string) {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for r := tar.NewReader(file); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(folder, filepath.FromSlash(header.Name)) //nolint:gosec // of a file that the test made
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(at, 0o700)
		} else {
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(at, content, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// filesOf are the files of an image, by name. Its processes can read all of them.
func filesOf(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	files := map[string]string{}
	for r := tar.NewReader(mutate.Extract(image)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if header.FileInfo().Mode().Perm()&0o444 != 0o444 {
			t.Errorf("%s has the mode %v, which not every user can read", header.Name, header.FileInfo().Mode())
		}
		files[header.Name] = string(content)
	}
}
