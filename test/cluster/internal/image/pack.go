// Package image makes container images without a registry or a daemon.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Binary is an image of one static program.
type Binary struct {
	Ref  string
	File string // on this machine
	Path string // in the image; also the entrypoint
	User string
	// Labels say where the image is from, such as org.opencontainers.image.source.
	Labels map[string]string
}

// PackBinary writes the image to an archive that containerd imports.
func PackBinary(b Binary, archive string) error {
	layer, err := b.newLayer()
	if err != nil {
		return err
	}
	return writeArchive(archive, b.Ref, b.newConfig(), layer)
}

// newLayer is the layer of the program and the folders above it.
func (b Binary) newLayer() (v1.Layer, error) {
	return layerOf(func(w *tar.Writer) error {
		if err := writeFolders(w, path.Dir(b.Path)); err != nil {
			return err
		}
		return writeProgram(w, b.File, b.Path)
	})
}

func (b Binary) newConfig() v1.Config {
	return v1.Config{
		Entrypoint: []string{b.Path},
		User:       b.User,
		WorkingDir: "/",
		Labels:     b.Labels,
		Env:        []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
	}
}

// writeProgram writes a program of this machine into the image.
func writeProgram(w *tar.Writer, file, where string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return writeFile(w, where, content, 0o755)
}

// writeFolders writes a folder after those above it.
func writeFolders(w *tar.Writer, folder string) error {
	folder = strings.TrimPrefix(path.Clean(folder), "/")
	if folder == "" || folder == "." {
		return nil
	}
	if err := writeFolders(w, path.Dir(folder)); err != nil {
		return err
	}
	return w.WriteHeader(&tar.Header{Name: folder + "/", Typeflag: tar.TypeDir, Mode: 0o755})
}

func writeFile(w *tar.Writer, file string, content []byte, mode int64) error {
	header := &tar.Header{Name: strings.TrimPrefix(file, "/"), Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content))}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// layerOf is a layer of what fill writes, and of a /tmp for programs that need one.
func layerOf(fill func(*tar.Writer) error) (v1.Layer, error) {
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	if err := w.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}); err != nil {
		return nil, err
	}
	if err := fill(w); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, fastest)
}

// fastest compresses little: archives are read on the machine they are made on.
var fastest = tarball.WithCompressionLevel(1)

// writeArchive puts an image of one layer into an archive, in its place whole or not
// at all. Without a time in it the same content has the same digest.
func writeArchive(archive, ref string, config v1.Config, layers ...v1.Layer) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return fmt.Errorf("image name %q: %w", ref, err)
	}
	image, err := imageOf(architecture, config, layers...)
	if err != nil {
		return err
	}
	unfinished := archive + ".new"
	if err := tarball.WriteToFile(unfinished, tag, image); err != nil {
		return err
	}
	return os.Rename(unfinished, archive)
}

// imageOf layers for one kind of processor.
func imageOf(processor string, config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	image, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Config, file.OS, file.Architecture = config, "linux", processor
	file.Created = v1.Time{Time: time.Unix(0, 0)}
	return mutate.ConfigFile(image, file)
}
