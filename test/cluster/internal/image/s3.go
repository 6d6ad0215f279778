package image

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-db/holdfast/test/cluster/internal/artifact"
)

// s3Repository is where the store's maker publishes its images.
const s3Repository = "docker.io/versity/versitygw"

// s3Recipe changes when the image changes and the program does not.
const s3Recipe = "1"

// BuildS3 builds the image of the S3 store that backups are tested with, or
// takes the one it built before: of one version, which go.mod pins, so that
// there is nothing to refresh.
func BuildS3(ctx context.Context, _ []string, _ bool, _ io.Writer) ([]Image, error) {
	folder, version, err := artifact.BuildS3(ctx)
	if err != nil {
		return nil, err
	}
	image, program := s3Image(folder, version)
	if _, err := os.Stat(image.Archive); err != nil {
		if err := PackBinary(program, image.Archive); err != nil {
			return nil, err
		}
	}
	return []Image{image}, nil
}

// s3Image has its program where the official image has it, and no shell. It
// names a user, since pods that may not be root have to.
func s3Image(folder, version string) (Image, Binary) {
	image := Image{
		Engine: "s3", Line: version[:strings.LastIndex(version, ".")], Version: version,
		Source:  "github.com/versity/versitygw v" + version,
		Archive: filepath.Join(folder, "image-"+s3Recipe+".tar"),
		Refs:    []string{s3Repository + ":v" + version},
	}
	return image, Binary{
		Ref: image.Refs[0], File: filepath.Join(folder, "versitygw"),
		Path: "/usr/local/bin/versitygw", User: "65532:65532",
	}
}
