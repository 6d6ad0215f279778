package image

import (
	"archive/tar"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The archive holds the store's program under the name that pods use.
func TestS3Image(t *testing.T) {
	folder := t.TempDir()
	const content = "a program"
	if err := os.WriteFile(filepath.Join(folder, "versitygw"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	image, program := s3Image(folder, "1.8.0")
	if image.Line != "1.8" || image.Refs[0] != "docker.io/versity/versitygw:v1.8.0" {
		t.Errorf("line %q, references %q", image.Line, image.Refs)
	}
	if err := PackBinary(program, image.Archive); err != nil {
		t.Fatal(err)
	}
	packed := read(t, image.Archive, image.Refs[0])
	file, err := packed.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	const path = "/usr/local/bin/versitygw"
	if diff := cmp.Diff([]string{path}, file.Config.Entrypoint); diff != "" || file.Config.User != "65532:65532" {
		t.Errorf("user %q, entrypoint %s", file.Config.User, diff)
	}
	if got, mode := fileOf(t, packed, path[1:]); got != content || mode != 0o755 {
		t.Errorf("%s holds %q, mode %o", path, got, mode)
	}
}

func read(t *testing.T, archive, ref string) v1.Image {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(archive, &tag)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// fileOf an image, its content and its mode.
func fileOf(t *testing.T, image v1.Image, path string) (content string, mode int64) {
	t.Helper()
	files := mutate.Extract(image)
	defer files.Close()
	for r := tar.NewReader(files); ; {
		header, err := r.Next()
		if err != nil {
			t.Fatalf("look for %s: %v", path, err)
		}
		if header.Name == path {
			all, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return string(all), header.Mode
		}
	}
}
