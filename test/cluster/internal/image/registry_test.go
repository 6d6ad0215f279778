package image

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const (
	// archiveVariable names the operator's image of a release, which is pushed and pulled in
	// place of the one that the test makes.
	archiveVariable = "HOLDFAST_IMAGE_ARCHIVE"
	// processorsVariable are the processors that this image is for, separated by commas.
	processorsVariable = "HOLDFAST_IMAGE_PROCESSORS"
)

// machines are the processors of the operator's image, as programs name them.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// The archive is pushed to a registry as the pages say, and each processor pulls its own
// program from there. One that the image is not for is refused.
func TestImageIsPushedAndPulled(t *testing.T) {
	archive, processors := os.Getenv(archiveVariable), strings.Split(os.Getenv(processorsVariable), ",")
	if archive == "" {
		processors = []string{"amd64", "arm64"}
		archive = packPrograms(t, processors)
	}
	ref := startRegistry(t).Tag("v0.1.0")
	pushed := pushArchive(t, archive, ref)
	found, err := remote.Get(ref)
	if err != nil || found.Digest != pushed {
		t.Fatalf("the registry has %v, want the archive's list of images %s: %v", found, pushed, err)
	}
	for _, processor := range processors {
		image, err := pullImage(ref, processor)
		if err != nil {
			t.Errorf("%s: %v", processor, err)
			continue
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != processor || config.OS != "linux" || config.Config.User != "65532:65532" {
			t.Errorf("for %s an image of %s/%s is pulled, for user %s", processor, config.OS, config.Architecture, config.Config.User)
		}
		program, err := elf.NewFile(bytes.NewReader(readEntrypoint(t, image, config.Config.Entrypoint)))
		if err != nil {
			t.Fatalf("%s: %v", processor, err)
		}
		if want, isKnown := machines[processor]; !isKnown || program.Machine != want {
			t.Errorf("for %s a program of %s is pulled", processor, program.Machine)
		}
	}
	if _, err := pullImage(ref, "s390x"); err == nil {
		t.Error("an image is pulled for a processor that it is not made for")
	}
}

// packPrograms packs a program of each processor: the head of one is enough.
func packPrograms(t *testing.T, processors []string) (archive string) {
	t.Helper()
	folder := t.TempDir()
	binaries := map[string]string{}
	for _, processor := range processors {
		binaries[processor] = filepath.Join(folder, processor)
		head := make([]byte, 64)
		copy(head, elf.ELFMAG)
		head[elf.EI_CLASS], head[elf.EI_DATA], head[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
		head[16], head[18], head[20] = byte(elf.ET_EXEC), byte(machines[processor]), byte(elf.EV_CURRENT)
		if err := os.WriteFile(binaries[processor], head, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	archive = filepath.Join(folder, "image.tar")
	if err := PackOCI(Binary{Ref: "registry.example.com/holdfast:v0.1.0", Path: "/holdfast", User: "65532:65532"}, binaries, archive); err != nil {
		t.Fatal(err)
	}
	return archive
}

// startRegistry serves an empty registry on this machine, and returns a repository of it.
func startRegistry(t *testing.T) name.Repository {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	repository, err := name.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/platform/holdfast")
	if err != nil {
		t.Fatal(err)
	}
	return repository
}

// pushArchive pushes what an archive holds, as skopeo copy --all and crane push do: the one
// entry of its index.json, with all that it lists.
func pushArchive(t *testing.T, archive string, ref name.Reference) v1.Hash {
	t.Helper()
	folder := t.TempDir()
	untar(t, archive, folder)
	top, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 || !manifest.Manifests[0].MediaType.IsIndex() {
		t.Fatalf("index.json has %v, want one list of images: %v", manifest, err)
	}
	list, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, list); err != nil {
		t.Fatalf("push: %v", err)
	}
	return manifest.Manifests[0].Digest
}

// pullImage pulls the image for a kind of processor, as a node of it does, with every layer.
func pullImage(ref name.Reference, processor string) (v1.Image, error) {
	image, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: processor}))
	if err != nil {
		return nil, err
	}
	layers, err := image.Layers()
	for _, layer := range layers {
		var content io.ReadCloser
		if content, err = layer.Compressed(); err != nil {
			break
		}
		// The reader compares the digest at the end.
		_, err = io.Copy(io.Discard, content)
		if err = errors.Join(err, content.Close()); err != nil {
			break
		}
	}
	return image, err
}

// readEntrypoint is the program that an image runs, which must be executable.
func readEntrypoint(t *testing.T, image v1.Image, entrypoint []string) []byte {
	t.Helper()
	if len(entrypoint) != 1 {
		t.Fatalf("entrypoint %q", entrypoint)
	}
	files := mutate.Extract(image)
	defer files.Close()
	for r := tar.NewReader(files); ; {
		header, err := r.Next()
		if err != nil {
			t.Fatalf("look for %s: %v", entrypoint[0], err)
		}
		if "/"+header.Name != entrypoint[0] {
			continue
		}
		if header.Mode&0o111 == 0 {
			t.Errorf("%s has the mode %o", header.Name, header.Mode)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
}
