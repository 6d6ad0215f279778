package pki

import (
	"errors"
	"io/fs"
	"os"

	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
)

// clients are the users with a kubeconfig of their own, so that the audit log
// distinguishes them.
var clients = []Request{
	{File: "admin", User: "admin", Groups: []string{"system:masters"}},
	{File: "controller-manager", User: "system:kube-controller-manager"},
	{File: "scheduler", User: "system:kube-scheduler"},
	{File: "proxy", User: "system:kube-proxy"},
	{File: "provisioner", User: "holdfast-cluster:provisioner"},
	{File: "installer", User: "holdfast-cluster:installer", Groups: []string{"system:masters"}},
}

// EnsureFiles makes every key, certificate and kubeconfig of the cluster, once: a
// running cluster keeps the ones it has.
func EnsureFiles(dir layout.Dir) error {
	const complete = "complete"
	if _, err := os.Stat(dir.PKIFile(complete)); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ca, err := NewAuthority(dir, "ca")
	if err != nil {
		return err
	}
	if err := issueServers(dir, ca); err != nil {
		return err
	}
	if err := issueClients(dir, ca); err != nil {
		return err
	}
	frontProxy, err := NewAuthority(dir, "front-proxy-ca")
	if err != nil {
		return err
	}
	if err := frontProxy.IssueCertificate(dir, Request{File: "front-proxy", User: "front-proxy"}); err != nil {
		return err
	}
	if err := NewSigningKey(dir, "service-accounts"); err != nil {
		return err
	}
	return layout.WriteFile(dir.PKIFile(complete), nil, 0o600)
}

func issueServers(dir layout.Dir, ca *Authority) error {
	requests := []Request{{
		File: "apiserver", User: "kube-apiserver", ForServerAuth: true,
		Names: []string{
			"localhost", "127.0.0.1", layout.ControlPlaneIP, layout.APIServiceIP,
			"kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc." + layout.ClusterDomain,
		},
	}}
	for _, n := range layout.AllNodes() {
		requests = append(requests, Request{
			File: n.Name + "-server", User: "system:node:" + n.Name, Groups: []string{"system:nodes"},
			Names: []string{n.Name, n.IP()}, ForServerAuth: true,
		})
	}
	for _, r := range requests {
		if err := ca.IssueCertificate(dir, r); err != nil {
			return err
		}
	}
	return nil
}

func issueClients(dir layout.Dir, ca *Authority) error {
	kubelet := Request{File: "apiserver-kubelet", User: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}}
	if err := ca.IssueCertificate(dir, kubelet); err != nil {
		return err
	}
	requests := clients
	for _, n := range layout.AllNodes() {
		requests = append(requests, Request{
			File: n.Name, User: "system:node:" + n.Name, Groups: []string{"system:nodes"},
		})
	}
	for _, r := range requests {
		if err := ca.IssueCertificate(dir, r); err != nil {
			return err
		}
		content, err := NewKubeconfig(dir, r.File)
		if err != nil {
			return err
		}
		if err := layout.WriteFile(dir.KubeconfigFile(r.File), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
