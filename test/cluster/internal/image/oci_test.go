package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// untar unpacks an archive into a folder.
func untar(t *testing.T, archive, folder string) {
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
		at := filepath.Join(folder, header.Name)
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(at, 0o755)
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

// The archive is an OCI layout with one image for each kind of processor, each
// with its own program and nothing that runs as root.
func TestImageArchive(t *testing.T) {
	folder := t.TempDir()
	binaries := map[string]string{}
	for _, processor := range []string{"amd64", "arm64"} {
		binaries[processor] = filepath.Join(folder, processor)
		if err := os.WriteFile(binaries[processor], []byte("program of "+processor), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	archive := filepath.Join(folder, "image.tar")
	labels := map[string]string{"org.opencontainers.image.version": "v0.1.0"}
	const ref = "registry.example.com/holdfast:v0.1.0"
	if err := PackOCI(Binary{Ref: ref, Path: "/holdfast", User: "65532:65532", Labels: labels}, binaries, archive); err != nil {
		t.Fatal(err)
	}
	untar(t, archive, filepath.Join(folder, "layout"))
	index, err := layout.ImageIndexFromPath(filepath.Join(folder, "layout"))
	if err != nil {
		t.Fatal(err)
	}
	top, err := index.IndexManifest()
	if err != nil || len(top.Manifests) != 1 {
		t.Fatalf("index.json lists %v: %v", top, err)
	}
	if got := top.Manifests[0].Annotations[nameAnnotation]; got != ref {
		t.Errorf("a node would import it as %q, want %s", got, ref)
	}
	list, err := index.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := list.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range manifests.Manifests {
		image, err := list.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Config.User != "65532:65532" || config.Architecture != m.Platform.Architecture || config.OS != "linux" {
			t.Errorf("the image is of %s/%s, for user %q", config.OS, config.Architecture, config.Config.User)
		}
		if diff := cmp.Diff(labels, config.Config.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		got[m.Platform.Architecture] = readFiles(t, image)["holdfast"]
	}
	want := map[string]string{"amd64": "program of amd64", "arm64": "program of arm64"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("programs (-want +got):\n%s", diff)
	}
}

// A folder becomes an image with its files and labels, which nodes with either
// processor can pull. The same files give the same bytes.
func TestFolderArchive(t *testing.T) {
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "manifests", "a.yaml"), []byte("kind: A"), 0o600); err != nil {
		t.Fatal(err)
	}
	const ref = "registry.example.com/holdfast-bundle:v0.1.0"
	labels, unpacked := map[string]string{"package": "holdfast"}, t.TempDir()
	var archives [][]byte
	for _, name := range []string{"one.tar", "two.tar"} {
		archive := filepath.Join(t.TempDir(), name)
		if err := PackFolder(ref, folder, labels, archive); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, content)
		untar(t, archive, unpacked)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the same files give other bytes")
	}
	index, err := layout.ImageIndexFromPath(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	top, err := index.IndexManifest()
	if err != nil || len(top.Manifests) != 1 {
		t.Fatalf("index.json lists %v: %v", top, err)
	}
	if got := top.Manifests[0].Annotations[nameAnnotation]; got != ref {
		t.Errorf("a node would import it as %q, want %s", got, ref)
	}
	list, err := index.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := list.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	layers := map[string]string{}
	for _, m := range manifests.Manifests {
		image, err := list.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.OS != m.Platform.OS || config.Architecture != m.Platform.Architecture {
			t.Errorf("the image for %s is of %s/%s", m.Platform, config.OS, config.Architecture)
		}
		if diff := cmp.Diff(labels, config.Config.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"manifests/a.yaml": "kind: A"}, readFiles(t, image)); diff != "" {
			t.Errorf("files for %s (-want +got):\n%s", m.Platform, diff)
		}
		manifest, err := image.Manifest()
		if err != nil || len(manifest.Layers) != 1 {
			t.Fatalf("the image for %s has the layers %v: %v", m.Platform, manifest, err)
		}
		layers[m.Platform.String()] = manifest.Layers[0].Digest.String()
	}
	if len(layers) != 2 || layers["linux/amd64"] == "" || layers["linux/amd64"] != layers["linux/arm64"] {
		t.Errorf("layers by platform: %v, want one layer for linux/amd64 and linux/arm64", layers)
	}
}

// readFiles are the files of an image.
func readFiles(t *testing.T, image v1.Image) map[string]string {
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
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			files[header.Name] = string(content)
		}
	}
}
