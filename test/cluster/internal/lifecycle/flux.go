package lifecycle

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-db/holdfast/test/cluster/internal/addons"
	"github.com/holdfast-db/holdfast/test/cluster/internal/artifact"
	"github.com/holdfast-db/holdfast/test/cluster/internal/image"
	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
	"github.com/holdfast-db/holdfast/test/cluster/internal/node"
)

// StartFlux brings Flux's kustomize-controller up on the cluster, building it where
// it was never built.
func StartFlux(ctx context.Context, dir layout.Dir) error {
	folder, err := artifact.BuildFlux(ctx)
	if err != nil {
		return err
	}
	// The folder's name changes with what was built.
	_, key, _ := strings.Cut(filepath.Base(folder), "-")
	program := image.Binary{
		Ref: "localhost/holdfast/kustomize-controller:" + key, File: filepath.Join(folder, "kustomize-controller"),
		Path: "/kustomize-controller", User: "65534:65534",
	}
	if err := giveToNodes(program); err != nil {
		return err
	}
	kinds, err := os.ReadFile(filepath.Join(folder, "crds.yaml"))
	if err != nil {
		return err
	}
	kubeconfig := dir.KubeconfigFile("installer")
	kubectl := filepath.Join(dir.ProgramsDir(), "kubectl")
	if err := addons.InstallFlux(ctx, kubeconfig, kubectl, kinds, program.Ref); err != nil {
		return err
	}
	client, err := addons.NewClient(kubeconfig)
	if err != nil {
		return err
	}
	return waitFor(ctx, "Flux", readyTimeout, func() error { return addons.FluxReady(ctx, client) })
}

// giveToNodes packs a program and gives the image to the nodes that lack it.
func giveToNodes(b image.Binary) error {
	archive := b.File + ".tar"
	if _, err := os.Stat(archive); err != nil {
		if err := image.PackBinary(b, archive); err != nil {
			return err
		}
	}
	return node.OnAll(func(n layout.Node) error {
		if node.HasImage(n, b.Ref) {
			return nil
		}
		return node.LoadImage(n, archive)
	})
}
