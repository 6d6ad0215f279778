// Package controlplane starts etcd, the API server, the scheduler, the
// controller manager and the volume provisioner, as a kubeadm cluster of one
// control plane machine has them.
package controlplane

import (
	_ "embed"
	"fmt"
	"os"
	"strconv"

	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
	"github.com/holdfast-db/holdfast/test/cluster/internal/process"
)

//go:embed audit-policy.yaml
var auditPolicy []byte

// Binaries is where the programs are.
type Binaries struct {
	Kubernetes string // folder of kube-apiserver, etcd and so on
	Cluster    string // this program, for its provisioner
}

// EnsureServing starts etcd and the API server, which need nothing else.
func EnsureServing(dir layout.Dir, b Binaries) error {
	if err := layout.WriteFile(dir.Path("audit", "policy.yaml"), auditPolicy, 0o644); err != nil {
		return err
	}
	if err := os.MkdirAll(dir.Path("etcd"), 0o700); err != nil {
		return err
	}
	return ensureAll(dir, etcd(dir, b), apiServer(dir, b))
}

// EnsureControllers starts what acts on the API server's objects.
func EnsureControllers(dir layout.Dir, b Binaries) error {
	if err := os.MkdirAll(dir.Volumes(), 0o755); err != nil {
		return err
	}
	return ensureAll(dir, controllerManager(dir, b), scheduler(dir, b), provisioner(dir, b))
}

// Names are the control plane's programs.
func Names() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "provisioner"}
}

func ensureAll(dir layout.Dir, programs ...process.Program) error {
	for _, p := range programs {
		if _, err := process.Ensure(dir, p); err != nil {
			return err
		}
	}
	return nil
}

func program(name string, command ...string) process.Program {
	return process.Program{
		Name: name, Cgroup: layout.ControlPlaneCgroup(), Netns: layout.ControlPlaneNetns, Command: command,
	}
}

// etcd is one member without fsync: the cluster is thrown away, and two cores
// have better things to wait for.
func etcd(dir layout.Dir, b Binaries) process.Program {
	return program("etcd", b.Kubernetes+"/etcd",
		"--name=control-plane",
		"--data-dir="+dir.Path("etcd"),
		"--listen-client-urls=http://127.0.0.1:2379",
		"--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380",
		"--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=control-plane=http://127.0.0.1:2380",
		"--unsafe-no-fsync",
		"--quota-backend-bytes="+strconv.Itoa(4<<30),
		"--auto-compaction-retention=30m",
		"--log-level=warn",
	)
}

func apiServer(dir layout.Dir, b Binaries) process.Program {
	return program("kube-apiserver", b.Kubernetes+"/kube-apiserver",
		"--advertise-address="+layout.ControlPlaneIP,
		"--secure-port="+strconv.Itoa(layout.APIServerPort),
		"--etcd-servers=http://127.0.0.1:2379",
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--client-ca-file="+dir.PKI("ca.crt"),
		"--tls-cert-file="+dir.PKI("apiserver.crt"),
		"--tls-private-key-file="+dir.PKI("apiserver.key"),
		"--service-cluster-ip-range="+layout.ServiceCIDR,
		"--service-account-issuer=https://kubernetes.default.svc."+layout.ClusterDomain,
		"--service-account-key-file="+dir.PKI("service-accounts.pub"),
		"--service-account-signing-key-file="+dir.PKI("service-accounts.key"),
		// Names of nodes mean nothing to the API server's resolver.
		"--kubelet-preferred-address-types=InternalIP",
		"--kubelet-certificate-authority="+dir.PKI("ca.crt"),
		"--kubelet-client-certificate="+dir.PKI("apiserver-kubelet.crt"),
		"--kubelet-client-key="+dir.PKI("apiserver-kubelet.key"),
		"--requestheader-client-ca-file="+dir.PKI("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file="+dir.PKI("front-proxy.crt"),
		"--proxy-client-key-file="+dir.PKI("front-proxy.key"),
		// No kube-proxy runs here: extension servers and webhooks are reached
		// by the addresses of their pods.
		"--enable-aggregator-routing=true",
		"--audit-policy-file="+dir.Path("audit", "policy.yaml"),
		"--audit-log-path="+dir.AuditLog(),
		"--audit-log-mode=batch",
		"--audit-log-maxsize=64",
		"--audit-log-maxbackup=6",
		"--profiling=false",
	)
}

func controllerManager(dir layout.Dir, b Binaries) process.Program {
	kubeconfig := dir.Kubeconfig("controller-manager")
	return program("kube-controller-manager", b.Kubernetes+"/kube-controller-manager",
		"--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
		// Each controller its own account: the audit log tells them apart.
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+dir.PKI("service-accounts.key"),
		"--root-ca-file="+dir.PKI("ca.crt"),
		"--cluster-signing-cert-file="+dir.PKI("ca.crt"),
		"--cluster-signing-key-file="+dir.PKI("ca.key"),
		"--cluster-cidr="+layout.PodCIDR,
		"--service-cluster-ip-range="+layout.ServiceCIDR,
		"--allocate-node-cidrs=false",
		"--profiling=false",
	)
}

func scheduler(dir layout.Dir, b Binaries) process.Program {
	kubeconfig := dir.Kubeconfig("scheduler")
	return program("kube-scheduler", b.Kubernetes+"/kube-scheduler",
		"--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
		"--profiling=false",
	)
}

func provisioner(dir layout.Dir, b Binaries) process.Program {
	return program("provisioner", b.Cluster, "provision",
		"--kubeconfig="+dir.Kubeconfig("provisioner"), "--volumes="+dir.Volumes())
}

// Missing are the programs that do not run.
func Missing(dir layout.Dir) []string {
	var missing []string
	for _, name := range Names() {
		if !process.Running(dir, name) {
			missing = append(missing, fmt.Sprintf("control plane: %s", name))
		}
	}
	return missing
}
