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
	if err := layout.WriteFile(dir.JoinPath("audit", "policy.yaml"), auditPolicy, 0o644); err != nil {
		return err
	}
	if err := os.MkdirAll(dir.JoinPath("etcd"), 0o700); err != nil {
		return err
	}
	return ensureAll(dir, etcdProgram(dir, b), apiServer(dir, b))
}

// EnsureControllers starts what acts on the API server's objects.
func EnsureControllers(dir layout.Dir, b Binaries) error {
	if err := os.MkdirAll(dir.VolumesDir(), 0o755); err != nil {
		return err
	}
	return ensureAll(dir, controllerManager(dir, b), schedulerProgram(dir, b), provisionerProgram(dir, b))
}

// ProgramNames are the control plane's programs.
func ProgramNames() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "provisioner"}
}

func ensureAll(dir layout.Dir, programs ...process.Program) error {
	for _, p := range programs {
		if _, err := process.EnsureRunning(dir, p); err != nil {
			return err
		}
	}
	return nil
}

func newProgram(name string, command ...string) process.Program {
	return process.Program{
		Name: name, Cgroup: layout.ControlPlaneCgroup(), Netns: layout.ControlPlaneNetns, Command: command,
	}
}

// etcdProgram is one member without fsync: the cluster is thrown away, and two cores
// have better things to wait for.
func etcdProgram(dir layout.Dir, b Binaries) process.Program {
	return newProgram("etcd", b.Kubernetes+"/etcd",
		"--name=control-plane",
		"--data-dir="+dir.JoinPath("etcd"),
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
	return newProgram("kube-apiserver", b.Kubernetes+"/kube-apiserver",
		"--advertise-address="+layout.ControlPlaneIP,
		"--secure-port="+strconv.Itoa(layout.APIServerPort),
		"--etcd-servers=http://127.0.0.1:2379",
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--client-ca-file="+dir.PKIFile("ca.crt"),
		"--tls-cert-file="+dir.PKIFile("apiserver.crt"),
		"--tls-private-key-file="+dir.PKIFile("apiserver.key"),
		"--service-cluster-ip-range="+layout.ServiceCIDR,
		"--service-account-issuer=https://kubernetes.default.svc."+layout.ClusterDomain,
		"--service-account-key-file="+dir.PKIFile("service-accounts.pub"),
		"--service-account-signing-key-file="+dir.PKIFile("service-accounts.key"),
		// Names of nodes mean nothing to the API server's resolver.
		"--kubelet-preferred-address-types=InternalIP",
		"--kubelet-certificate-authority="+dir.PKIFile("ca.crt"),
		"--kubelet-client-certificate="+dir.PKIFile("apiserver-kubelet.crt"),
		"--kubelet-client-key="+dir.PKIFile("apiserver-kubelet.key"),
		"--requestheader-client-ca-file="+dir.PKIFile("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file="+dir.PKIFile("front-proxy.crt"),
		"--proxy-client-key-file="+dir.PKIFile("front-proxy.key"),
		// No kube-proxy runs here: extension servers and webhooks are reached
		// by the addresses of their pods.
		"--enable-aggregator-routing=true",
		"--audit-policy-file="+dir.JoinPath("audit", "policy.yaml"),
		"--audit-log-path="+dir.AuditLog(),
		"--audit-log-mode=batch",
		"--audit-log-maxsize=64",
		"--audit-log-maxbackup=6",
		"--profiling=false",
	)
}

func controllerManager(dir layout.Dir, b Binaries) process.Program {
	kubeconfig := dir.KubeconfigFile("controller-manager")
	return newProgram("kube-controller-manager", b.Kubernetes+"/kube-controller-manager",
		"--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
		// Each controller its own account: the audit log distinguishes them.
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+dir.PKIFile("service-accounts.key"),
		"--root-ca-file="+dir.PKIFile("ca.crt"),
		"--cluster-signing-cert-file="+dir.PKIFile("ca.crt"),
		"--cluster-signing-key-file="+dir.PKIFile("ca.key"),
		"--cluster-cidr="+layout.PodCIDR,
		"--service-cluster-ip-range="+layout.ServiceCIDR,
		"--allocate-node-cidrs=false",
		"--profiling=false",
	)
}

func schedulerProgram(dir layout.Dir, b Binaries) process.Program {
	kubeconfig := dir.KubeconfigFile("scheduler")
	return newProgram("kube-scheduler", b.Kubernetes+"/kube-scheduler",
		"--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
		"--profiling=false",
	)
}

func provisionerProgram(dir layout.Dir, b Binaries) process.Program {
	return newProgram("provisioner", b.Cluster, "provision",
		"--kubeconfig="+dir.KubeconfigFile("provisioner"), "--volumes="+dir.VolumesDir())
}

// MissingPrograms are the programs that do not run.
func MissingPrograms(dir layout.Dir) []string {
	var missing []string
	for _, name := range ProgramNames() {
		if !process.IsRunning(dir, name) {
			missing = append(missing, fmt.Sprintf("control plane: %s", name))
		}
	}
	return missing
}
