package main

import (
	"context"
	"fmt"

	"github.com/holdfast-db/holdfast/test/kustomization"
)

// overlay is an installation of the tree that becomes a manifest.
type overlay struct {
	name, folder string
	// mirrored is set where images come from the user's registry, so the
	// repository stays and the version alone is filled in.
	mirrored bool
	// operators is how many it installs; 0 for one.
	operators int
}

// placeholderImage is what the mirror's overlay names for the reader to replace.
const placeholderImage = "registry.example.com/holdfast"

// overlays of a release. A test compares them with the folders.
var overlays = []overlay{
	{name: "cluster-wide", folder: "kustomize/overlays/cluster-wide"},
	{name: "mirror", folder: "kustomize/overlays/mirror", mirrored: true},
	{name: "namespaced", folder: "kustomize/overlays/namespaced"},
	{name: "production", folder: "kustomize/overlays/production"},
	{name: "sharded", folder: "kustomize/overlays/sharded", operators: 2},
}

// plainInstall is what most users apply.
var plainInstall = overlay{folder: "config/default"}

func (o overlay) file() string {
	if o.name == "" {
		return installFile
	}
	return "install-" + o.name + ".yaml"
}

// writeManifests writes the installation, and each overlay, for the image of this
// version.
func (r *release) writeManifests(context.Context) error {
	for _, o := range append([]overlay{plainInstall}, overlays...) {
		named, image := kustomization.OperatorImage, r.image
		if o.mirrored {
			named, image = placeholderImage, placeholderImage
		}
		text, err := buildManifest(r.root, o.folder, named, image, r.version)
		if err != nil {
			return fmt.Errorf("%s: %w", o.folder, err)
		}
		header := fmt.Sprintf("# Holdfast %s, of %s in %s.\n# kubectl apply --server-side -f %s\n", r.version, o.folder, repository, o.file())
		if err := r.writeText(o.file(), append([]byte(header), text...)); err != nil {
			return err
		}
	}
	return nil
}

// buildManifest builds a folder as a user's overlay does that names an image.
func buildManifest(root, folder, image, newName, newTag string) ([]byte, error) {
	built, err := kustomization.Build(root, fmt.Sprintf("resources: [\"{root}/%s\"]\nimages: [{name: %q, newName: %q, newTag: %q}]\n", folder, image, newName, newTag))
	if err != nil {
		return nil, err
	}
	return built.AsYaml()
}
