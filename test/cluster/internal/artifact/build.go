package artifact

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// recipe changes when the way of building changes what is built.
const recipe = "2"

// CoreDNS returns the folder of the program coredns.
func CoreDNS(ctx context.Context) (string, error) {
	return buildOnce(ctx, "coredns", "coredns", "building CoreDNS, about a minute, once",
		func(module, folder string) error {
			return goBuild(ctx, module, ".", filepath.Join(folder, "coredns"), "")
		})
}

// versitygw is the module of the S3 store for tests of backups.
const versitygw = "github.com/versity/versitygw"

// BuildS3 returns the folder of the program versitygw, and its version.
func BuildS3(ctx context.Context) (folder, version string, err error) {
	folder, err = buildOnce(ctx, "s3", "s3", "building versitygw, about 2 minutes on two idle cores, once",
		func(module, folder string) error {
			return goBuild(ctx, module, versitygw+"/cmd/versitygw", filepath.Join(folder, "versitygw"), "")
		})
	if err != nil {
		return "", "", err
	}
	source, err := FindSource()
	if err != nil {
		return "", "", err
	}
	version, err = pinnedVersion(ctx, filepath.Join(source, "s3"), versitygw)
	return folder, strings.TrimPrefix(version, "v"), err
}

// BuildPause returns the folder of the program pause.
func BuildPause(ctx context.Context) (string, error) {
	return buildOnce(ctx, "pause", "pause", "building the pause program",
		func(module, folder string) error {
			return goBuild(ctx, filepath.Dir(module), "./pause", filepath.Join(folder, "pause"), "")
		})
}

func buildOnce(ctx context.Context, name, subfolder, what string, fill func(module, folder string) error) (string, error) {
	source, err := FindSource()
	if err != nil {
		return "", err
	}
	module := filepath.Join(source, subfolder)
	files := []string{filepath.Join(module, "main.go"), filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum")}
	key, err := ComputeKey(files, recipe)
	if err != nil {
		return "", err
	}
	return MakeFolder(name, key, func(folder string) error {
		return RunTimed(what, func() error { return fill(module, folder) })
	})
}

// RunTimed says what goes on and how long it took.
func RunTimed(what string, do func() error) error {
	start := time.Now()
	fmt.Fprintln(os.Stderr, what)
	if err := do(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "  took %s\n", time.Since(start).Round(100*time.Millisecond))
	return nil
}

func goBuild(ctx context.Context, module, target, output, ldflags string) error {
	command := exec.CommandContext(ctx, "go", "build", "-trimpath",
		"-ldflags", strings.TrimSpace("-s -w "+ldflags), "-o", output, target)
	command.Dir = module
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("build %s: %w", module, err)
	}
	return nil
}

// pinnedVersion is the version of a dependency by a module's go.mod.
func pinnedVersion(ctx context.Context, module, dependency string) (string, error) {
	out, err := inModule(ctx, module, "list", "-m", "-f", "{{.Version}}", dependency)
	if err != nil {
		return "", fmt.Errorf("read the version of %s: %w", dependency, err)
	}
	return strings.TrimSpace(out), nil
}

// versionFlags make the programs say their version; one that does not know it
// takes itself for v0.0.0, and clients then avoid newer features.
func versionFlags(version string) string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	var flags []string
	// The second is what clients call themselves in the audit log.
	for _, where := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags, "-X "+where+".gitVersion="+version, "-X "+where+".gitMajor="+major, "-X "+where+".gitMinor="+minor)
	}
	return strings.Join(flags, " ")
}
