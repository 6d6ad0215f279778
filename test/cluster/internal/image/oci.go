package image

import (
	"archive/tar"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// PackOCI writes an OCI archive of a program for several kinds of processor:
// binaries are files of this machine by GOARCH. Tools that push images read it.
func PackOCI(b Binary, binaries map[string]string, archive string) error {
	var manifests []mutate.IndexAddendum
	var processors []string
	for processor := range binaries {
		processors = append(processors, processor)
	}
	slices.Sort(processors)
	for _, processor := range processors {
		b.File = binaries[processor]
		layer, err := b.newLayer()
		if err != nil {
			return err
		}
		image, err := imageOf(processor, b.newConfig(), layer)
		if err != nil {
			return err
		}
		manifests = append(manifests, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: processor}},
		})
	}
	folder, err := os.MkdirTemp(filepath.Dir(archive), "oci-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	// One entry stands in index.json: the list of the images by processor.
	written, err := layout.Write(folder, empty.Index)
	if err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	if err := written.AppendIndex(mutate.AppendManifests(empty.Index, manifests...)); err != nil {
		return fmt.Errorf("write the images: %w", err)
	}
	if err := tarFolder(folder, archive+".new"); err != nil {
		return err
	}
	return os.Rename(archive+".new", archive)
}

// tarFolder writes the files of a folder to an archive, without times.
func tarFolder(folder, archive string) error {
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	w := tar.NewWriter(out)
	err = filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		name := strings.TrimPrefix(strings.TrimPrefix(file, folder), "/")
		switch {
		case err != nil || name == "":
			return err
		case entry.IsDir():
			return w.WriteHeader(&tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755})
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return writeFile(w, name, content, 0o644)
	})
	if err == nil {
		err = w.Close()
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	return err
}
