package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/holdfast-db/holdfast/test/cluster/internal/artifact"
)

// etcdRepository is where the operator looks for etcd's images.
const etcdRepository = "quay.io/coreos/etcd"

// etcdLines are the minor versions of which the newest patch is built.
var etcdLines = []string{"3.5", "3.6", "3.7"}

// oldEtcd is a version that many still run and that upgrades start from.
const oldEtcd = "3.5.9"

// etcdRecipe changes when the image changes and the programs do not.
const etcdRecipe = "1"

// BuildEtcd builds the images of an old version and of the newest patch of
// every line, or of some lines; or takes those it built before. A version that cannot be built
// is said on complaints and left out. With refresh newer patches are asked for.
func BuildEtcd(ctx context.Context, lines []string, refresh bool, complaints io.Writer) ([]Image, error) {
	var images []Image
	complain := func(what string, err error) {
		fmt.Fprintf(complaints, "\n!!! NO IMAGE OF ETCD %s: %v\n\n", what, err)
	}
	var versions []string
	if len(lines) == 0 {
		lines, versions = etcdLines, []string{oldEtcd}
	}
	for _, line := range lines {
		version, err := EtcdVersion(ctx, line, refresh)
		if err != nil {
			complain(line, err)
			continue
		}
		versions = append(versions, version)
	}
	for _, version := range versions {
		image, err := buildEtcd(ctx, version)
		if err != nil {
			complain(version, err)
			continue
		}
		images = append(images, image)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(images) == 0 {
		return nil, errors.New("no image of etcd could be built")
	}
	return images, nil
}

// EtcdVersion is the newest patch of a line, as it was when it was first asked
// for, or is now with refresh; of a version that names its patch, the same.
func EtcdVersion(ctx context.Context, line string, refresh bool) (string, error) {
	if strings.Count(line, ".") == 2 {
		return line, nil
	}
	key, err := artifact.ComputeKey(nil)
	if err != nil {
		return "", err
	}
	name := "etcd-newest-" + line
	if refresh {
		if err := artifact.RemoveFolder(name, key); err != nil {
			return "", err
		}
	}
	folder, err := artifact.MakeFolder(name, key, func(folder string) error {
		newest, err := artifact.NewestEtcd(ctx, line)
		if err != nil {
			return err
		}
		return writeRecord(folder, newest)
	})
	if err != nil {
		return "", err
	}
	var version string
	err = readRecord(folder, &version)
	return version, err
}

func buildEtcd(ctx context.Context, version string) (Image, error) {
	programs, err := artifact.BuildEtcd(ctx, version)
	if err != nil {
		return Image{}, err
	}
	image := Image{
		Engine: "etcd", Line: version[:strings.LastIndex(version, ".")], Version: version,
		Source:  "go.etcd.io/etcd v" + version,
		Archive: filepath.Join(programs, "image-"+etcdRecipe+".tar"),
		Refs:    []string{etcdRepository + ":v" + version},
	}
	if _, err := os.Stat(image.Archive); err == nil {
		return image, nil
	}
	return image, packEtcd(programs, image)
}

// packEtcd lays the image out as the official one is: the programs, no user's
// shell, and no user of its own.
func packEtcd(programs string, image Image) error {
	const bin, data = "/usr/local/bin", "/var/lib/etcd"
	layer, err := layerOf(func(w *tar.Writer) error {
		if err := errors.Join(writeFolders(w, bin), writeFolders(w, data)); err != nil {
			return err
		}
		for _, program := range artifact.EtcdPrograms() {
			if err := writeProgram(w, filepath.Join(programs, program), bin+"/"+program); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return writeArchive(image.Archive, image.Refs[0], v1.Config{
		Cmd:        []string{bin + "/etcd"},
		WorkingDir: data,
		Env:        []string{"PATH=" + bin + ":/usr/bin:/bin"},
	}, layer)
}
