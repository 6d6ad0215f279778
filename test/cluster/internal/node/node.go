// Package node starts, stops and loads images into the cluster's nodes: a
// containerd, a kubelet and a kube-proxy each, in a network namespace and a
// cgroup of their own.
package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
	"github.com/holdfast-db/holdfast/test/cluster/internal/network"
	"github.com/holdfast-db/holdfast/test/cluster/internal/process"
)

// runtimeNamespace is containerd's namespace of what Kubernetes sees.
const runtimeNamespace = "k8s.io"

// EnsureNode starts what does not run of the node's programs. binaries is the
// folder of kubelet and kube-proxy.
func EnsureNode(dir layout.Dir, n layout.Node, binaries string) error {
	if len(MissingPrograms(dir, n)) == 0 {
		return nil
	}
	if !process.IsRunning(dir, programName(n, "containerd")) && !process.IsRunning(dir, programName(n, "kubelet")) {
		if err := clearAfterReboot(dir, n); err != nil {
			return err
		}
	}
	if err := writeConfiguration(dir, n); err != nil {
		return err
	}
	// The kubelet refuses a cgroup root that it did not find.
	if err := process.MakeCgroup(n.CgroupPath()); err != nil {
		return err
	}
	if _, err := process.EnsureRunning(dir, containerdProgram(dir, n)); err != nil {
		return err
	}
	if err := waitForContainerd(n); err != nil {
		return err
	}
	if _, err := process.EnsureRunning(dir, kubeletProgram(dir, n, binaries)); err != nil {
		return err
	}
	_, err := process.EnsureRunning(dir, proxyProgram(dir, n, binaries))
	return err
}

// Stop ends the node as a power cut does: first nothing can be heard from it,
// then everything on it is gone.
func Stop(n layout.Node) error {
	if err := network.UnplugNode(n); err != nil {
		return err
	}
	return process.KillCgroup(n.CgroupPath())
}

// Start starts a node that was stopped, or what is missing of one.
func Start(dir layout.Dir, n layout.Node, binaries string) error {
	if err := EnsureNode(dir, n, binaries); err != nil {
		return err
	}
	return network.PlugIn(n)
}

// clearAfterReboot clears what a machine loses with its power: shims and pods that were
// left, their mounts and network namespaces, and containerd's running state.
func clearAfterReboot(dir layout.Dir, n layout.Node) error {
	if err := process.KillCgroup(n.CgroupPath()); err != nil {
		return err
	}
	if err := CleanNode(dir, n); err != nil {
		return err
	}
	if err := network.RemoveNode(n); err != nil {
		return err
	}
	return network.EnsureNode(n)
}

// CleanNode removes mounts and running state of a node on which nothing runs.
func CleanNode(dir layout.Dir, n layout.Node) error {
	if err := process.UnmountUnder(n.RunDir(), dir.NodeDir(n)); err != nil {
		return err
	}
	leases, _ := filepath.Glob("/var/lib/cni/results/holdfast-" + n.Name + "-*")
	for _, lease := range leases {
		if err := os.Remove(lease); err != nil {
			return err
		}
	}
	return os.RemoveAll(n.RunDir())
}

// MissingPrograms are the node's programs that do not run.
func MissingPrograms(dir layout.Dir, n layout.Node) []string {
	var missing []string
	for _, component := range []string{"containerd", "kubelet", "kube-proxy"} {
		if !process.IsRunning(dir, programName(n, component)) {
			missing = append(missing, n.Name+": "+component)
		}
	}
	return missing
}

// LoadImage imports a docker or OCI archive into the node's containerd. It is
// unpacked only when the first container needs it: most nodes never run most
// images.
func LoadImage(n layout.Node, archive string) error {
	return runCtr(n, "images", "import", "--no-unpack", "--digests=false", archive)
}

// OnAll does something on all nodes at the same time.
func OnAll(do func(layout.Node) error) error {
	var wait sync.WaitGroup
	errs := make([]error, len(layout.AllNodes()))
	for i, n := range layout.AllNodes() {
		wait.Go(func() { errs[i] = do(n) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// TagImage gives an image that the node has another name.
func TagImage(n layout.Node, ref, other string) error {
	return runCtr(n, "images", "tag", "--force", ref, other)
}

// TagDigest gives an image the name with its digest too, as one has that was
// pulled from a registry, so that pods report it and may ask for it.
func TagDigest(n layout.Node, ref string) error {
	out, err := exec.Command("ctr", "--address", n.ContainerdSocket(), "--namespace", runtimeNamespace,
		"images", "list", "name=="+ref).Output()
	if err != nil {
		return fmt.Errorf("%s: list %s: %w", n.Name, ref, err)
	}
	digest := regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(string(out))
	if digest == "" {
		return fmt.Errorf("%s: image %s has no digest: %s", n.Name, ref, out)
	}
	return TagImage(n, ref, ref[:strings.LastIndex(ref, ":")]+"@"+digest)
}

// HasImage says whether the node has an image of that name.
func HasImage(n layout.Node, ref string) bool {
	out, err := exec.Command("ctr", "--address", n.ContainerdSocket(), "--namespace", runtimeNamespace,
		"images", "list", "--quiet", "name=="+ref).Output()
	return err == nil && strings.TrimSpace(string(out)) != ""
}

func runCtr(n layout.Node, arguments ...string) error {
	arguments = append([]string{"--address", n.ContainerdSocket(), "--namespace", runtimeNamespace}, arguments...)
	out, err := exec.Command("ctr", arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: ctr %s: %w: %s", n.Name, strings.Join(arguments[4:], " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func waitForContainerd(n layout.Node) error {
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		if exec.Command("ctr", "--address", n.ContainerdSocket(), "version").Run() == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New(n.Name + ": containerd does not answer")
}

func programName(n layout.Node, component string) string { return n.Name + "-" + component }

func newProgram(n layout.Node, component string, command ...string) process.Program {
	return process.Program{
		// Beside the pods' cgroups: version 2 wants processes in leaves only.
		Name: programName(n, component), Cgroup: filepath.Join(n.CgroupPath(), "system"), Netns: n.NetnsName(), Command: command,
	}
}

func containerdProgram(dir layout.Dir, n layout.Node) process.Program {
	return newProgram(n, "containerd", "containerd",
		"--config", filepath.Join(dir.NodeDir(n), "containerd.toml"), "--log-level", "warn")
}

func kubeletProgram(dir layout.Dir, n layout.Node, binaries string) process.Program {
	return newProgram(n, "kubelet", filepath.Join(binaries, "kubelet"),
		"--config="+filepath.Join(dir.NodeDir(n), "kubelet.yaml"),
		"--kubeconfig="+dir.KubeconfigFile(n.Name),
		"--root-dir="+filepath.Join(dir.NodeDir(n), "kubelet"),
		"--hostname-override="+n.Name,
		"--node-ip="+n.IP(),
		"--node-labels="+nodeLabels(n),
	)
}

func proxyProgram(dir layout.Dir, n layout.Node, binaries string) process.Program {
	return newProgram(n, "kube-proxy", filepath.Join(binaries, "kube-proxy"),
		"--config="+filepath.Join(dir.NodeDir(n), "proxy.yaml"))
}
