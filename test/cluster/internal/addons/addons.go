// Package addons installs what a cluster needs beyond Kubernetes itself (names
// and volumes) and knows when all of it is ready.
package addons

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
)

//go:embed storage.yaml
var storageManifest []byte

//go:embed dns.yaml
var dnsManifest []byte

// InstallAddons applies the manifests.
func InstallAddons(ctx context.Context, kubeconfig, kubectl string) error {
	if err := applyManifests(ctx, kubeconfig, kubectl, storageManifest, dnsManifest); err != nil {
		return fmt.Errorf("install add-ons: %w", err)
	}
	return nil
}

func applyManifests(ctx context.Context, kubeconfig, kubectl string, manifests ...[]byte) error {
	command := exec.CommandContext(ctx, kubectl, "--kubeconfig", kubeconfig, "apply", "--server-side",
		"--force-conflicts", "--field-manager=holdfast-cluster", "-f", "-")
	command.Stdin = bytes.NewReader(bytes.Join(manifests, []byte("---\n")))
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// NewClient returns a client of the cluster.
func NewClient(kubeconfig string) (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "holdfast-cluster-installer"
	return kubernetes.NewForConfig(config)
}

// CheckServing says by an error what keeps the API server from being ready.
func CheckServing(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return err
}

// CheckReady says by an error what is not ready yet.
func CheckReady(ctx context.Context, client kubernetes.Interface) error {
	if err := CheckServing(ctx, client); err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	if err := nodesReady(ctx, client); err != nil {
		return err
	}
	dns, err := client.AppsV1().DaemonSets("kube-system").Get(ctx, "coredns", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("CoreDNS: %w", err)
	}
	if s := dns.Status; s.ObservedGeneration < dns.Generation || int(s.NumberReady) < len(layout.AllNodes()) {
		return fmt.Errorf("CoreDNS is ready on %d of %d nodes", dns.Status.NumberReady, len(layout.AllNodes()))
	}
	if _, err := client.StorageV1().StorageClasses().Get(ctx, "standard", metav1.GetOptions{}); err != nil {
		return fmt.Errorf("storage class: %w", err)
	}
	// Pods are refused until their namespace has its account.
	if _, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return fmt.Errorf("default service account: %w", err)
	}
	return nil
}

func nodesReady(ctx context.Context, client kubernetes.Interface) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	ready := 0
	for _, n := range nodes.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}
	if ready < len(layout.AllNodes()) {
		return fmt.Errorf("%d of %d nodes are ready", ready, len(layout.AllNodes()))
	}
	return nil
}

// HeardSince says by an error which node has not been heard of since that
// time. For 50 seconds a lost node is reported ready, and is not.
func HeardSince(ctx context.Context, client kubernetes.Interface, since time.Time) error {
	for _, n := range layout.AllNodes() {
		lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("lease of %s: %w", n.Name, err)
		}
		if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(since) {
			return fmt.Errorf("nothing heard of %s", n.Name)
		}
	}
	return nil
}
