package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
)

// cniPlugins is where Debian keeps them.
const cniPlugins = "/usr/lib/cni"

// writeConfiguration writes what the node's programs read.
func writeConfiguration(dir layout.Dir, n layout.Node) error {
	files := map[string]string{
		"containerd.toml":           containerdConfig(dir, n),
		"cni/10-holdfast.conflist":  cniConfig(n),
		"kubelet.yaml":              kubeletConfig(dir, n),
		"proxy.yaml":                proxyConfig(dir, n),
		"resolv.conf":               "nameserver " + layout.DNSServiceIP + "\n",
		"kubelet/.holdfast-cluster": "",
	}
	for name, content := range files {
		if err := layout.WriteFile(filepath.Join(dir.NodeDir(n), name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return os.MkdirAll(n.RunDir(), 0o755)
}

// containerdConfig keeps everything of the node's in folders of its own; the
// pods' network namespaces too, so that they can be distinguished from other nodes'.
func containerdConfig(dir layout.Dir, n layout.Node) string {
	return fmt.Sprintf(`version = 2
root = %q
state = %q

[grpc]
  address = %q

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  netns_mounts_under_state_dir = true
  # Lowering oom_score_adj takes a capability that root in a container lacks.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
`, filepath.Join(dir.NodeDir(n), "containerd"), filepath.Join(n.RunDir(), "containerd"),
		n.ContainerdSocket(), layout.PauseImage, cniPlugins, filepath.Join(dir.NodeDir(n), "cni"))
}

// cniConfig routes each pod by a cable of its own instead of a bridge, so that
// traffic between pods of one node passes the service rules as well.
func cniConfig(n layout.Node) string {
	return fmt.Sprintf(`{
  "cniVersion": "0.4.0",
  "name": %q,
  "plugins": [
    {"type": "ptp", "ipMasq": false,
     "ipam": {"type": "host-local", "dataDir": %q,
              "ranges": [[{"subnet": %q}]],
              "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, "holdfast-"+n.Name, filepath.Join(n.RunDir(), "addresses"), n.PodCIDR())
}

// kubeletConfig differs from a usual one in what several kubelets on a machine
// need: a cgroup root and folders each, and eviction by bytes since they all
// see the same disk, which need not be theirs. What Secrets hold reaches pods
// within seconds, not minutes: tests wait for it.
func kubeletConfig(dir layout.Dir, n layout.Node) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %q}
authorization: {mode: Webhook}
tlsCertFile: %q
tlsPrivateKeyFile: %q
clusterDNS: [%s]
clusterDomain: %s
resolvConf: %q
containerRuntimeEndpoint: unix://%s
podLogsDir: %q
volumePluginDir: %q
cgroupDriver: cgroupfs
cgroupRoot: %s
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
maxPods: 150
syncFrequency: 10s
evictionHard: {memory.available: 200Mi, nodefs.available: 2Gi, imagefs.available: 2Gi}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
`, dir.PKIFile("ca.crt"), dir.PKIFile(n.Name+"-server.crt"), dir.PKIFile(n.Name+"-server.key"),
		layout.DNSServiceIP, layout.ClusterDomain, filepath.Join(dir.NodeDir(n), "resolv.conf"),
		n.ContainerdSocket(), filepath.Join(dir.NodeDir(n), "pod-logs"),
		filepath.Join(dir.NodeDir(n), "volume-plugins"), n.CgroupPath())
}

// proxyConfig leaves connection tracking's sizes alone: they are the
// machine's, and read-only from inside a network namespace.
func proxyConfig(dir layout.Dir, n layout.Node) string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %q}
clusterCIDR: %s
detectLocalMode: ClusterCIDR
hostnameOverride: %s
mode: nftables
oomScoreAdj: 0
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, dir.KubeconfigFile("proxy"), layout.PodCIDR, n.Name)
}

func nodeLabels(n layout.Node) string {
	return strings.Join([]string{
		"topology.kubernetes.io/region=local",
		"topology.kubernetes.io/zone=" + n.ZoneName(),
	}, ",")
}
