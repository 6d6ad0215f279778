package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// fluxTypes are the packages of Flux's kinds: its own, and those of the sources
// that it watches.
var fluxTypes = []string{
	"github.com/fluxcd/kustomize-controller/api/v1",
	"github.com/fluxcd/source-controller/api/v1",
}

// BuildFlux returns the folder of Flux's kustomize-controller and of crds.yaml, the
// kinds that it works on.
func BuildFlux(ctx context.Context) (string, error) {
	return buildOnce(ctx, "flux", "flux", "building Flux's kustomize-controller, about 4 minutes on two idle cores, once",
		func(module, folder string) error {
			const program = "kustomize-controller"
			if err := goBuild(ctx, module, "github.com/fluxcd/"+program, filepath.Join(folder, program), ""); err != nil {
				return err
			}
			return fluxKinds(ctx, module, filepath.Join(folder, "crds.yaml"))
		})
}

// fluxKinds generates the kinds from their types: the modules of the types
// alone bring no manifests.
func fluxKinds(ctx context.Context, module, output string) error {
	folder, err := os.MkdirTemp("", "flux-crds-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	arguments := []string{"tool", "controller-gen", "crd"}
	for _, types := range fluxTypes {
		arguments = append(arguments, "paths="+types)
	}
	command := exec.CommandContext(ctx, "go", append(arguments, "output:crd:dir="+folder)...)
	command.Dir = module
	command.Env = append(os.Environ(), "GOWORK=off")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("generate Flux's kinds: %w: %s", err, bytes.TrimSpace(out))
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("generate Flux's kinds: there are none")
	}
	slices.Sort(files)
	var all bytes.Buffer
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		all.Write(content) // each begins with ---
	}
	return os.WriteFile(output, all.Bytes(), 0o644)
}
