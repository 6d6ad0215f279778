package lifecycle

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
	"github.com/holdfast-db/holdfast/test/cluster/internal/network"
	"github.com/holdfast-db/holdfast/test/cluster/internal/node"
	"github.com/holdfast-db/holdfast/test/cluster/internal/process"
)

// FindOwner is the state folder of the cluster that this machine has, or had.
func FindOwner() (layout.Dir, bool) {
	owner, err := os.ReadFile(filepath.Join(layout.RunDir, "dir"))
	return layout.Dir(owner), err == nil && len(owner) > 0
}

// StopCluster stops everything of the cluster and removes its state. It goes by the
// cgroups and namespaces alone, so it also clears up after a start that was
// killed, or when the state folder was deleted first.
func StopCluster(dir layout.Dir) error {
	// The folder that the running cluster uses, if the caller named another.
	if running, ok := FindOwner(); ok && running != dir {
		return errors.New("the running cluster's state is in " + string(running) + ": name that with --dir, or use --any")
	}
	if err := process.KillCgroup(layout.CgroupRoot); err != nil {
		return err
	}
	for _, n := range layout.AllNodes() {
		if err := node.CleanNode(dir, n); err != nil {
			return err
		}
	}
	if err := process.UnmountUnder(string(dir), layout.RunDir); err != nil {
		return err
	}
	if err := network.RemoveNetwork(); err != nil {
		return err
	}
	if err := process.RemoveCgroup(layout.CgroupRoot); err != nil {
		return err
	}
	if err := removeState(dir); err != nil {
		return err
	}
	return os.RemoveAll(layout.RunDir)
}

// removeState removes what the cluster put into the folder, and what deployments
// wrote of it below loaded; other files that someone keeps there stay.
func removeState(dir layout.Dir) error {
	ours := []string{
		"kubeconfig", started, "images.json", "audit", "bin", "etcd", "kubeconfigs", "loaded", "logs", "nodes", "pids", "pki", "volumes",
	}
	for _, name := range ours {
		if err := os.RemoveAll(dir.JoinPath(name)); err != nil {
			return err
		}
	}
	// Fails when something of someone else's is in it, which is fine.
	_ = os.Remove(string(dir))
	return nil
}
