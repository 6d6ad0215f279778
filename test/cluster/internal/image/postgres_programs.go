package image

import (
	"context"
	"fmt"
	"io"
	"os/exec"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/holdfast-db/holdfast/test/cluster/internal/artifact"
)

// BuildPostgresPrograms returns the folder of a file tree with the newest PostgreSQL of a
// major and all that its programs need, to be the root of a test.
func BuildPostgresPrograms(ctx context.Context, major int, complaints io.Writer) (string, error) {
	built, err := findMajor(ctx, major, complaints)
	if err != nil {
		return "", err
	}
	newest := built[0]
	for _, p := range built {
		if minorOf(p.Version) > minorOf(newest.Version) {
			newest = p
		}
	}
	key, err := artifact.ComputeKey(nil, newest.Archive, recipe)
	if err != nil {
		return "", err
	}
	folder, err := artifact.MakeFolder("postgres-programs-"+newest.Version, key, func(folder string) error {
		return unpackImage(ctx, newest.Archive, folder)
	})
	return folder, err
}

// findMajor makes the images of a major.
func findMajor(ctx context.Context, major int, complaints io.Writer) ([]postgres, error) {
	var known []int
	for _, s := range suites {
		if s.Major == major {
			return buildSuite(ctx, s, false, complaints)
		}
		known = append(known, s.Major)
	}
	return nil, fmt.Errorf("no suite of Debian has PostgreSQL %d: name one of %v", major, known)
}

// unpackImage writes the file tree of an image, with its owners.
func unpackImage(ctx context.Context, archive, folder string) error {
	packed, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		return fmt.Errorf("read %s: %w", archive, err)
	}
	tree := mutate.Extract(packed)
	defer tree.Close()
	unpack := exec.CommandContext(ctx, "tar", "--extract", "--numeric-owner", "--preserve-permissions", "--directory", folder)
	unpack.Stdin = tree
	return runQuietly(unpack)
}
