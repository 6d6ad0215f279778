//go:build soak

package e2e

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/test/prometheus"
)

// startPrometheus starts Debian's Prometheus, and has it follow the pods as a PodMonitor
// does, until the test ends.
func startPrometheus(t *testing.T, namespace string, interval time.Duration, rules []byte) *prometheus.Server {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(state, "bin", "cluster"), "programs", "prometheus").Output()
	must(t, err, "find Prometheus")
	server := prometheus.Start(t, prometheus.Options{Programs: strings.TrimSpace(string(out)), Interval: interval, Rules: rules})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if targets, err := listTargets(ctx, namespace); err == nil {
				if err := server.SetTargets(targets); err != nil {
					t.Errorf("set the targets: %v", err)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(pollInterval):
			}
		}
	}()
	return server
}

// listTargets are the pods of a namespace's members and of the operator, with the labels that
// the PodMonitors of config/prometheus give them.
func listTargets(ctx context.Context, namespace string) ([]prometheus.Target, error) {
	var pods corev1.PodList
	err := env.client.List(ctx, &pods, client.InNamespace(namespace),
		client.MatchingLabels{"app.kubernetes.io/managed-by": "holdfast", "app.kubernetes.io/component": "database"})
	operators, errOperators := installed.listPods(ctx)
	if err := errors.Join(err, errOperators); err != nil {
		return nil, err
	}
	var targets []prometheus.Target
	for _, pod := range slices.Concat(pods.Items, operators) {
		if pod.Status.PodIP == "" {
			continue
		}
		labels := map[string]string{"namespace": pod.Namespace, "pod": pod.Name}
		if cluster := pod.Labels[v1alpha1.LabelCluster]; cluster != "" {
			labels["holdfast_cluster"] = cluster
		}
		targets = append(targets, prometheus.Target{Address: net.JoinHostPort(pod.Status.PodIP, operatorPort), Labels: labels})
	}
	return targets, nil
}
