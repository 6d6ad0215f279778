// Package layout knows where everything of the cluster is: addresses, names
// of nodes and network namespaces, and the files under the state folder.
//
// Addresses are fixed, so one machine holds one such cluster at a time. What
// must outlive a lost state folder, or needs short socket paths, is in RunDir.
package layout

import (
	"fmt"
	"os"
	"path/filepath"
)

const (
	// RunDir holds sockets and what a reboot may forget.
	RunDir = "/run/holdfast-cluster"
	// CgroupRoot is the cluster's cgroup in every hierarchy; whatever runs in
	// it is the cluster's and dies with it.
	CgroupRoot = "/holdfast-cluster"

	ControlPlaneNetns = "hf-control"
	ControlPlaneIP    = "10.89.0.1"
	HostIP            = "10.89.0.254"
	MachineCIDR       = "10.89.0.0/24"
	PodCIDR           = "10.244.0.0/16"
	ServiceCIDR       = "10.96.0.0/16"
	APIServiceIP      = "10.96.0.1"
	DNSServiceIP      = "10.96.0.10"
	APIServerPort     = 6443
	ClusterDomain     = "cluster.local"

	// PauseImage and DNSImage are made here and never pulled.
	PauseImage = "localhost/holdfast/pause:1"
	DNSImage   = "localhost/holdfast/coredns:1"
)

// APIServerURL is what kubeconfigs name; the machine reaches it by its own leg
// of the bridge, the nodes by theirs.
func APIServerURL() string { return fmt.Sprintf("https://%s:%d", ControlPlaneIP, APIServerPort) }

// Node is one machine of the cluster.
type Node struct {
	Name  string // node-1
	Index int    // from 1
}

// AllNodes are the three nodes, in order.
func AllNodes() []Node {
	return []Node{{"node-1", 1}, {"node-2", 2}, {"node-3", 3}}
}

// FindNode returns the node of that name.
func FindNode(name string) (Node, error) {
	for _, n := range AllNodes() {
		if n.Name == name {
			return n, nil
		}
	}
	return Node{}, fmt.Errorf("no node %q: there are node-1, node-2 and node-3", name)
}

// IP is the node's address on the bridge.
func (n Node) IP() string { return fmt.Sprintf("10.89.0.%d", 10+n.Index) }

// PodCIDR is the range of the node's pods.
func (n Node) PodCIDR() string { return fmt.Sprintf("10.244.%d.0/24", n.Index) }

// ZoneName is the value of the node's topology.kubernetes.io/zone.
func (n Node) ZoneName() string { return fmt.Sprintf("zone-%d", n.Index) }

// NetnsName is the node's network namespace.
func (n Node) NetnsName() string { return "hf-" + n.Name }

// BridgePort is the bridge's end of the node's cable.
func (n Node) BridgePort() string { return "hf-" + n.Name }

// RunDir is what the node forgets when it reboots.
func (n Node) RunDir() string { return filepath.Join(RunDir, n.Name) }

// ContainerdSocket is where the node's containerd listens.
func (n Node) ContainerdSocket() string { return filepath.Join(n.RunDir(), "containerd.sock") }

// CgroupPath is the parent of the node's processes and pods.
func (n Node) CgroupPath() string { return filepath.Join(CgroupRoot, n.Name) }

// ControlPlaneCgroup is the parent of the control plane's processes.
func ControlPlaneCgroup() string { return filepath.Join(CgroupRoot, "control-plane") }

// Dir is the state folder.
type Dir string

// JoinPath is a path under the state folder.
func (d Dir) JoinPath(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

func (d Dir) PKIFile(name string) string        { return d.JoinPath("pki", name) }
func (d Dir) KubeconfigFile(name string) string { return d.JoinPath("kubeconfigs", name) }
func (d Dir) LogFile(name string) string        { return d.JoinPath("logs", name+".log") }
func (d Dir) AuditLog() string                  { return d.JoinPath("audit", "audit.log") }
func (d Dir) VolumesDir() string                { return d.JoinPath("volumes") }
func (d Dir) NodeDir(n Node) string             { return d.JoinPath("nodes", n.Name) }
func (d Dir) ImagesDir() string                 { return d.JoinPath("images.json") }

// ProgramsDir is a link to the folder of Kubernetes' programs, kubectl included.
func (d Dir) ProgramsDir() string { return d.JoinPath("bin", "kubernetes") }

// AdminKubeconfig is the default place of the kubeconfig that users get.
func (d Dir) AdminKubeconfig() string { return d.JoinPath("kubeconfig") }

// WriteFile writes a file with its folders, whole or not at all.
func WriteFile(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, content, mode); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
