package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// pluginPackage is built for machines of users.
const pluginPackage = "./internal/plugin/kubectl-holdfast"

// build compiles a program. Nothing of this machine gets into it but the version
// of Go: no path, no state of the clone, and no variant of a processor.
func (r *release) build(ctx context.Context, pkg string, p platform, file string) error {
	out, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", r.tags,
		"-ldflags", "-s -w -X main.version="+r.version, "-o", out, pkg)
	command.Dir = r.root
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOWORK=off")
	if r.cache != "" {
		command.Env = append(command.Env, "GOCACHE="+r.cache)
	}
	return runProgram(command)
}

// runProgram reports what a program wrote when it fails.
func runProgram(command *exec.Cmd) error {
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(command.Args, " "), err, out)
	}
	return nil
}

// writeBinaries builds the operator, with an SBOM of each program.
func (r *release) writeBinaries(ctx context.Context) error {
	for _, p := range r.platforms {
		file := r.binaryFile(p)
		if err := r.build(ctx, ".", p, r.path(file)); err != nil {
			return err
		}
		if err := r.writeSBOM(sbomFile(file), r.path(file)); err != nil {
			return err
		}
	}
	return nil
}

// packImage packs the operator's programs as make image does. The archive has the name
// that manifests refer to, so that nodes can import it without a registry.
func (r *release) packImage(ctx context.Context) error {
	var programs []string
	for _, p := range r.platforms {
		programs = append(programs, p.arch+"="+r.path(r.binaryFile(p)))
	}
	return runProgram(exec.CommandContext(ctx, r.packer, "pack", "--oci", strings.Join(programs, ","), "--name", r.image+":"+r.version, "--out", r.path(imageFile),
		"--label", "org.opencontainers.image.title=holdfast",
		"--label", "org.opencontainers.image.source="+repository,
		"--label", "org.opencontainers.image.version="+r.version,
		"--label", "org.opencontainers.image.revision="+r.source.commit,
		"--label", "org.opencontainers.image.licenses=Apache-2.0"))
}

// writePlugins builds the plugin, with archives, SBOMs and Krew's manifest.
func (r *release) writePlugins(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "holdfast-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	for _, p := range r.plugins {
		program := filepath.Join(folder, p.String(), pluginProgram(p))
		if err := r.build(ctx, pluginPackage, p, program); err != nil {
			return err
		}
		content, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		files := []archived{{name: pluginProgram(p), content: content, executable: true}, {name: "LICENSE", content: license}}
		if err := r.writeArchive(r.pluginFile(p), files); err != nil {
			return err
		}
		if err := r.writeSBOM(sbomFile(r.pluginFile(p)), program); err != nil {
			return err
		}
	}
	return r.writeKrewManifest()
}

// pluginProgram is the plugin's name in its archive.
func pluginProgram(p platform) string {
	if p.os == "windows" {
		return "kubectl-holdfast.exe"
	}
	return "kubectl-holdfast"
}
