package main

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/holdfast-db/holdfast/test/olm"
)

// bundleImage is what the bundle's image is to be pushed as.
func (r *release) bundleImage() string { return r.image + "-bundle:" + r.version }

// catalogImage is what the catalog's image is to be pushed as.
func (r *release) catalogImage() string { return r.image + "-catalog:" + r.version }

// Where the catalog is in its image, and the label that says so.
const (
	catalogFolder = "/configs"
	catalogLabel  = "operators.operatorframework.io.index.configs.v1"
)

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

// packCatalog packs the catalog as the image that a CatalogSource names. There is no program in
// it: OLM copies the catalog out, and serves it with a program of its own.
func (r *release) packCatalog(ctx context.Context) error {
	catalog, err := os.ReadFile(r.path(catalogFile))
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "holdfast-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	file := filepath.Join(folder, catalogFolder, "holdfast", "catalog.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, catalog, 0o644); err != nil { //nolint:gosec // it is published
		return err
	}
	return r.packFolder(ctx, folder, catalogImageFile, r.catalogImage(), map[string]string{catalogLabel: catalogFolder})
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
