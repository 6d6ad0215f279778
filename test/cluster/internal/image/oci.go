package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// PackOCI writes an OCI archive of a program for several kinds of processor:
// binaries are files of this machine by GOARCH. Tools that push images read it, and
// nodes import it under the name b.Ref, if that is set.
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
	return writeOCI(archive, b.Ref, manifests...)
}

// folderProcessors are those of nodes that pull an image of files. No program is in
// it, so its layer is the same for each: but a node refuses an image that is not for
// its own processor.
var folderProcessors = []string{"amd64", "arm64"}

// PackFolder writes an OCI archive of the files of a folder, which no program
// runs: catalogs read them from the image. Nodes import it under the name ref, if
// that is set.
func PackFolder(ref, folder string, labels map[string]string, archive string) error {
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	if err := writeTree(w, folder); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil })
	if err != nil {
		return err
	}
	var manifests []mutate.IndexAddendum
	for _, processor := range folderProcessors {
		image, err := imageOf(processor, v1.Config{Labels: labels}, layer)
		if err != nil {
			return err
		}
		manifests = append(manifests, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: processor}}})
	}
	return writeOCI(archive, ref, manifests...)
}

// nameAnnotation is what containerd calls an image that it imports.
const nameAnnotation = "io.containerd.image.name"

// writeOCI writes an archive of the images of one name. An empty name leaves it to the client
// that pushes the images.
func writeOCI(archive, ref string, manifests ...mutate.IndexAddendum) error {
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
	var options []layout.Option
	if ref != "" {
		options = append(options, layout.WithAnnotations(map[string]string{nameAnnotation: ref}))
	}
	if err := written.AppendIndex(mutate.AppendManifests(empty.Index, manifests...), options...); err != nil {
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
	err = writeTree(w, folder)
	if err == nil {
		err = w.Close()
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	return err
}

// writeTree writes the files of a folder, in the order of their names.
func writeTree(w *tar.Writer, folder string) error {
	return filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
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
}
