package main

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"slices"

	"github.com/holdfast-db/holdfast/test/olm"
)

// bundleImage is what the bundle's image is to be pushed as.
func (r *release) bundleImage() string { return r.image + "-bundle:" + r.version }

// buildBundle makes OLM's bundle.
func (r *release) buildBundle() (olm.Bundle, error) {
	return olm.Build(r.root, r.version, r.image+":"+r.version)
}

// writeCatalog writes what a publisher adds to a catalog of OLM.
func (r *release) writeCatalog(context.Context) error {
	bundle, err := r.buildBundle()
	if err != nil {
		return err
	}
	catalog, err := bundle.Catalog(r.bundleImage())
	if err != nil {
		return err
	}
	return r.writeText(catalogFile, catalog)
}

// writeBundle packs OLM's bundle as the image that a catalog names.
func (r *release) writeBundle(ctx context.Context) error {
	bundle, err := r.buildBundle()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "holdfast-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if err := bundle.Write(folder); err != nil {
		return err
	}
	labels, err := bundle.Labels()
	if err != nil {
		return err
	}
	return r.packFolder(ctx, folder, bundleFile, r.bundleImage(), labels)
}

// packFolder packs files as an image that nodes with any processor can pull, or import under
// its name.
func (r *release) packFolder(ctx context.Context, folder, file, reference string, labels map[string]string) error {
	args := []string{"pack", "--folder", folder, "--name", reference, "--out", r.path(file)}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		args = append(args, "--label", key+"="+labels[key])
	}
	return runProgram(exec.CommandContext(ctx, r.packer, args...))
}
