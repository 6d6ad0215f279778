//go:build e2e || soak

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// dumpNamespace writes down what a namespace holds when its test failed: objects,
// events, logs. Of Secrets only the names are kept.
func dumpNamespace(t *testing.T, namespace string) {
	ctx, cancel := context.WithTimeout(context.Background(), podTimeout)
	defer cancel()
	root := os.Getenv("HOLDFAST_E2E_DUMP")
	if root == "" {
		root = filepath.Join(os.TempDir(), "holdfast-e2e")
	}
	dir := filepath.Join(root, strings.ReplaceAll(t.Name(), "/", "_"), namespace)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Logf("no dump: %v", err)
		return
	}
	lists := map[string]client.ObjectList{
		"pods": &corev1.PodList{}, "statefulsets": &appsv1.StatefulSetList{},
		"services": &corev1.ServiceList{}, "configmaps": &corev1.ConfigMapList{}, "volumes": &corev1.PersistentVolumeClaimList{},
		"budgets": &policyv1.PodDisruptionBudgetList{}, "events": &eventsv1.EventList{},
	}
	for _, k := range allKinds() {
		lists[k.name] = k.list()
	}
	for name, list := range lists {
		if err := env.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			t.Logf("dump %s: %v", name, err)
			continue
		}
		data, err := yaml.Marshal(list)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+".yaml"), data, 0o600)
		}
		if err != nil {
			t.Logf("dump %s: %v", name, err)
		}
	}
	dumpLogs(ctx, t, dir, namespace)
	dumpLogs(ctx, t, dir, operatorNamespace)
	summariseDump(t, lists, dir)
}

func dumpLogs(ctx context.Context, t *testing.T, dir, namespace string) {
	for key, text := range readLogs(ctx, t, namespace) {
		if err := os.WriteFile(filepath.Join(dir, key+".log"), []byte(text), 0o600); err != nil {
			t.Logf("dump logs: %v", err)
		}
	}
}

// readLogs reads the logs of every container in a namespace, those before a restart too, by
// pod.container.
func readLogs(ctx context.Context, t testing.TB, namespace string) map[string]string {
	var pods corev1.PodList
	if err := env.client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		t.Logf("logs of %s: %v", namespace, err)
		return nil
	}
	out := map[string]string{}
	for _, pod := range pods.Items {
		for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			for _, previous := range []bool{false, true} {
				opts := &corev1.PodLogOptions{Container: c.Name, Previous: previous}
				data, err := env.kube.CoreV1().Pods(namespace).GetLogs(pod.Name, opts).DoRaw(ctx)
				if err == nil {
					out[fmt.Sprintf("%s.%s.previous=%t", pod.Name, c.Name, previous)] = string(data)
				}
			}
		}
	}
	return out
}

// summariseDump says in the test's output what a reader needs first.
func summariseDump(t *testing.T, lists map[string]client.ObjectList, dir string) {
	var b strings.Builder
	fmt.Fprintf(&b, "written down in %s\n", dir)
	for _, k := range allKinds() {
		items, err := meta.ExtractList(lists[k.name])
		if err != nil {
			t.Logf("clusters: %v", err)
		}
		for _, item := range items {
			if c, ok := item.(v1alpha1.Cluster); ok {
				summariseCluster(&b, k, c)
			}
		}
	}
	if events, ok := lists["events"].(*eventsv1.EventList); ok {
		for _, e := range events.Items[max(0, len(events.Items)-25):] {
			fmt.Fprintf(&b, "  %s %s %s/%s %s: %s\n", e.CreationTimestamp.Format("15:04:05"), e.Type, e.Regarding.Kind, e.Regarding.Name, e.Reason, e.Note)
		}
	}
	t.Log(b.String())
}

func summariseCluster(b *strings.Builder, k *kind, c v1alpha1.Cluster) {
	said := c.CommonStatus()
	fmt.Fprintf(b, "%s %s generation %d observed %d phase %s\n", k.name, c.GetName(), c.GetGeneration(), said.ObservedGeneration, said.Phase)
	for _, cond := range said.Conditions {
		fmt.Fprintf(b, "  %s=%s %s: %s\n", cond.Type, cond.Status, cond.Reason, cond.Message)
	}
	for _, m := range said.Members {
		fmt.Fprintf(b, "  member %s %s %s on %s: %s\n", m.Name, m.Role, m.State, m.Node, m.Message)
	}
}
