// Package lifecycle brings the whole cluster up, repairs it and takes it down.
package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-db/holdfast/test/cluster/internal/addons"
	"github.com/holdfast-db/holdfast/test/cluster/internal/artifact"
	"github.com/holdfast-db/holdfast/test/cluster/internal/controlplane"
	"github.com/holdfast-db/holdfast/test/cluster/internal/image"
	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
	"github.com/holdfast-db/holdfast/test/cluster/internal/network"
	"github.com/holdfast-db/holdfast/test/cluster/internal/node"
	"github.com/holdfast-db/holdfast/test/cluster/internal/pki"
	"github.com/holdfast-db/holdfast/test/cluster/internal/process"
)

// Intervals that waiting goes by.
const (
	pollInterval   = 250 * time.Millisecond
	servingTimeout = 2 * time.Minute
	readyTimeout   = 4 * time.Minute
)

// started marks a state folder whose cluster was ready once. Without it a
// folder holds the remains of a start that was cut short.
const started = "started"

// StartCluster brings the cluster up, or repairs what is missing of a running one. That
// gets the present tool for its faults. The kubeconfig is written when everything is
// ready, never before. A cluster keeps the minor version of Kubernetes that it was started
// with: another one is refused, and none stands for it.
func StartCluster(ctx context.Context, dir layout.Dir, kubeconfig, minor string) error {
	minor, err := chooseVersion(dir, minor)
	if err != nil {
		return err
	}
	if CheckHealth(ctx, dir) == nil {
		if _, err := copyTool(dir); err != nil {
			return err
		}
		return writeKubeconfig(dir, kubeconfig)
	}
	begin := time.Now()
	if err := artifact.EnsurePackages(ctx); err != nil {
		return err
	}
	if err := prepareMachine(dir); err != nil {
		return err
	}
	binaries, err := buildBinaries(ctx, dir, minor)
	if err != nil {
		return err
	}
	if err := startPrograms(ctx, dir, binaries); err != nil {
		return fmt.Errorf("%w (logs: %s; to start afresh: down, then up)", err, dir.JoinPath("logs"))
	}
	version, err := artifact.KubernetesVersion(minor)
	if err != nil {
		return err
	}
	if err := layout.WriteFile(dir.JoinPath(started), []byte(version+"\n"), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "cluster ready after %s\n", time.Since(begin).Round(100*time.Millisecond))
	return writeKubeconfig(dir, kubeconfig)
}

// CheckHealth says by an error what is wrong with the cluster of the state folder.
func CheckHealth(ctx context.Context, dir layout.Dir) error {
	if _, err := os.Stat(dir.JoinPath(started)); err != nil {
		return errors.New("no cluster was started here")
	}
	missing := controlplane.MissingPrograms(dir)
	for _, n := range layout.AllNodes() {
		missing = append(missing, node.MissingPrograms(dir, n)...)
		if !network.PluggedIn(n) {
			missing = append(missing, n.Name+": cut off")
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not running: %v", missing)
	}
	client, err := addons.NewClient(dir.KubeconfigFile("installer"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return addons.CheckReady(ctx, client)
}

// prepareMachine makes the machine fit for a start: remains of another cluster, of a
// start cut short or of a boot before this one are cleared away.
func prepareMachine(dir layout.Dir) error {
	if owner, ok := FindOwner(); ok && owner != dir {
		if len(process.ListMembers(layout.CgroupRoot)) > 0 {
			return fmt.Errorf("another cluster of this kind uses the machine's addresses: take it down first (down --any, or down --dir %s)", owner)
		}
		if err := StopCluster(owner); err != nil {
			return fmt.Errorf("clear what a dead cluster left in %s: %w", owner, err)
		}
	}
	_, startedErr := os.Stat(dir.JoinPath(started))
	switch {
	case startedErr == nil:
		// A running cluster, or one to be revived with its objects.
	case errors.Is(startedErr, fs.ErrNotExist):
		if err := StopCluster(dir); err != nil {
			return fmt.Errorf("clear the remains of an earlier start: %w", err)
		}
	default:
		return startedErr
	}
	return layout.WriteFile(filepath.Join(layout.RunDir, "dir"), []byte(dir), 0o644)
}

// buildBinaries makes the programs, and a copy of this one.
func buildBinaries(ctx context.Context, dir layout.Dir, minor string) (controlplane.Binaries, error) {
	var b controlplane.Binaries
	var err error
	if b.Kubernetes, err = artifact.BuildKubernetes(ctx, minor); err != nil {
		return b, err
	}
	if err := replaceSymlink(b.Kubernetes, dir.ProgramsDir()); err != nil {
		return b, err
	}
	b.Cluster, err = copyTool(dir)
	return b, err
}

// copyTool makes a copy of this program that stays when the folder that "go run" made is
// gone. A process that runs the one before keeps that.
func copyTool(dir layout.Dir) (path string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path = dir.JoinPath("bin", "cluster")
	return path, copyFile(self, path)
}

func startPrograms(ctx context.Context, dir layout.Dir, b controlplane.Binaries) error {
	archives, err := systemImages(ctx)
	if err != nil {
		return err
	}
	if err := pki.EnsureFiles(dir); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	if err := network.EnsureNetwork(); err != nil {
		return err
	}
	if err := controlplane.EnsureServing(dir, b); err != nil {
		return err
	}
	client, err := addons.NewClient(dir.KubeconfigFile("installer"))
	if err != nil {
		return err
	}
	err = waitFor(ctx, "the API server", servingTimeout, func() error { return addons.CheckServing(ctx, client) })
	if err != nil {
		return err
	}
	// First of all: the provisioner is refused until its role is there,
	// and then waits longer with every attempt.
	kubectl := filepath.Join(b.Kubernetes, "kubectl")
	if err := addons.InstallAddons(ctx, dir.KubeconfigFile("installer"), kubectl); err != nil {
		return err
	}
	if err := controlplane.EnsureControllers(dir, b); err != nil {
		return err
	}
	begin := time.Now()
	if err := startNodes(dir, b, archives); err != nil {
		return err
	}
	return waitFor(ctx, "the cluster", readyTimeout, func() error {
		return cmp.Or(addons.HeardSince(ctx, client, begin), addons.CheckReady(ctx, client))
	})
}

// startNodes starts all nodes at the same time and gives them the images that
// no node can do without.
func startNodes(dir layout.Dir, b controlplane.Binaries, archives map[string]string) error {
	return node.OnAll(func(n layout.Node) error {
		if err := node.Start(dir, n, b.Kubernetes); err != nil {
			return err
		}
		for ref, archive := range archives {
			if node.HasImage(n, ref) {
				continue
			}
			if err := node.LoadImage(n, archive); err != nil {
				return err
			}
		}
		return nil
	})
}

// systemImages packs the pause image and CoreDNS; it returns archives by name.
func systemImages(ctx context.Context) (map[string]string, error) {
	pause, err := artifact.BuildPause(ctx)
	if err != nil {
		return nil, err
	}
	dns, err := artifact.CoreDNS(ctx)
	if err != nil {
		return nil, err
	}
	images := []image.Binary{
		{Ref: layout.PauseImage, File: filepath.Join(pause, "pause"), Path: "/pause", User: "65535:65535"},
		{Ref: layout.DNSImage, File: filepath.Join(dns, "coredns"), Path: "/coredns"},
	}
	archives := map[string]string{}
	for _, i := range images {
		archive := i.File + ".tar"
		archives[i.Ref] = archive
		if _, err := os.Stat(archive); err == nil {
			continue
		}
		if err := image.PackBinary(i, archive); err != nil {
			return nil, fmt.Errorf("pack %s: %w", i.Ref, err)
		}
	}
	return archives, nil
}

func waitFor(ctx context.Context, what string, timeout time.Duration, ready func() error) error {
	deadline := time.Now().Add(timeout)
	for {
		err := ready()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready after %s: %w", what, timeout, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

func writeKubeconfig(dir layout.Dir, path string) error {
	content, err := os.ReadFile(dir.KubeconfigFile("admin"))
	if err != nil {
		return err
	}
	return layout.WriteFile(path, content, 0o600)
}

// replaceSymlink makes a symlink, or lets an old one point elsewhere.
func replaceSymlink(target, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(target, path+".new"); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Rename(path+".new", path)
}

// copyFile copies a program, also over one that runs.
func copyFile(from, to string) error {
	if from == to {
		return nil
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	target, err := os.OpenFile(to+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, copyErr := io.Copy(target, source)
	if err := errors.Join(copyErr, target.Close()); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}
