package olm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Program is a program of the Operator Lifecycle Manager, built from source.
type Program struct{ name, module string }

// Programs that test/tools/olm pins.
var (
	// Operator installs what versions declare.
	Operator = Program{"olm", "github.com/operator-framework/operator-lifecycle-manager/cmd/olm"}
	// CatalogOperator turns subscriptions into versions.
	CatalogOperator = Program{"olm-catalog", "github.com/operator-framework/operator-lifecycle-manager/cmd/catalog"}
	// PackageManager renders, validates and serves catalogs.
	PackageManager = Program{"opm", "github.com/operator-framework/operator-registry/cmd/opm"}
)

// toolsFolder is the module of the programs, from the root of the tree.
const toolsFolder = "test/tools/olm"

// Build builds the program into bin, and returns its path. The first build of all three takes
// minutes. No signature is checked here, so none of the libraries in C are needed.
func (p Program) Build(ctx context.Context, root string) (string, error) {
	binary, err := filepath.Abs(filepath.Join(root, "bin", p.name))
	if err != nil {
		return "", err
	}
	if _, err := runGo(ctx, root, "build", "-trimpath", "-tags", "containers_image_openpgp", "-o", binary, p.module); err != nil {
		return "", fmt.Errorf("build %s: %w", p.name, err)
	}
	return binary, nil
}

// KindsFolder is where the module of the programs has the definitions of their kinds.
func KindsFolder(ctx context.Context, root string) (string, error) {
	module, err := runGo(ctx, root, "list", "-m", "-f", "{{.Dir}}", "github.com/operator-framework/operator-lifecycle-manager")
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Join(strings.TrimSpace(module), "deploy", "chart", "crds"), nil
}

// runGo runs Go in the module of the programs, and returns what it prints.
func runGo(ctx context.Context, root string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = filepath.Join(root, toolsFolder)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	var complaints bytes.Buffer
	command.Stderr = &complaints
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, complaints.String())
	}
	return string(out), nil
}
