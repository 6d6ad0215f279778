//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/test/podprocess"
)

// apiServerAddress is that of test/cluster's API server, which pods reach through the
// Service kubernetes.
const apiServerAddress = "10.89.0.1"

// needLocalCluster skips a test of faults that only this machine's own cluster can
// have: its processes and networks are this machine's.
func needLocalCluster(t *testing.T) {
	t.Helper()
	_, err := os.Stat("/run/netns/hf-node-1")
	if os.Geteuid() != 0 || err != nil || !strings.Contains(env.config.Host, apiServerAddress) {
		skipTest(t, "needs root and the cluster of test/cluster for its faults")
	}
}

// runClusterTool runs a command of test/cluster.
func runClusterTool(ctx context.Context, arguments ...string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(state, "bin", "cluster"), append([]string{"--dir", state}, arguments...)...).CombinedOutput()
	if err != nil {
		return errors.New(strings.Join(arguments, " ") + ": " + err.Error() + ": " + string(out))
	}
	return nil
}

// beginFault runs a command of test/cluster, and the one that ends it when the function
// that it returns is called, or when the test ends.
func beginFault(t *testing.T, begin, end []string) (heal func()) {
	t.Helper()
	heal = healLater(t, end)
	must(t, runClusterTool(t.Context(), begin...), "begin a fault")
	return heal
}

// healLater ends a fault when the function that it returns is called, or when the test
// ends.
func healLater(t *testing.T, end []string) (heal func()) {
	t.Helper()
	healed := false
	heal = func() {
		t.Helper()
		if healed {
			return
		}
		if err := runClusterTool(context.Background(), end...); err != nil {
			t.Errorf("end a fault: %v", err)
			return // tried again when the test ends
		}
		healed = true
	}
	t.Cleanup(heal)
	return heal
}

// cutNode pulls a node's cable.
func cutNode(t *testing.T, node string) (heal func()) {
	t.Helper()
	return beginFault(t, []string{"cut", node}, []string{"heal", node})
}

// pauseAPIServer has the API server stand still: connections to it stay open, and
// nothing answers. Commands in containers stand still with it.
func pauseAPIServer(t *testing.T) (heal func()) {
	t.Helper()
	return beginFault(t, []string{"pause", "kube-apiserver"}, []string{"resume", "kube-apiserver"})
}

// direction of packets that are dropped.
type direction string

// The directions, as the pod sees them.
const (
	bothWays direction = "both"
	outgoing direction = "outgoing"
	incoming direction = "incoming"
)

// cutPod drops packets between a pod and some addresses, or all of them for none. What
// runs on its node goes on, and its kubelet reaches it: other tests do not notice.
func cutPod(t *testing.T, pod *corev1.Pod, way direction, others ...string) (heal func()) {
	t.Helper()
	if pod.Status.PodIP == "" || pod.Spec.NodeName == "" {
		t.Fatalf("pod %s has no address", pod.Name)
	}
	begin, end := podCut(pod, way, others...)
	return beginFault(t, begin, end)
}

// podCut are the commands of test/cluster that cut a pod off, and connect it again.
func podCut(pod *corev1.Pod, way direction, others ...string) (begin, end []string) {
	node, name := pod.Spec.NodeName, "pod_"+strings.ReplaceAll(string(pod.UID), "-", "_")
	if len(others) > 0 {
		name += "_some"
	}
	sides := []string{"--from", pod.Status.PodIP}
	if way == incoming {
		sides[0] = "--to"
	}
	if len(others) > 0 {
		other := map[direction]string{bothWays: "--to", outgoing: "--to", incoming: "--from"}[way]
		sides = append(sides, other, strings.Join(others, ","))
	}
	if way == bothWays {
		sides = append(sides, "--both")
	}
	return append([]string{"drop", node, name}, sides...), []string{"pass", node, name}
}

// cutFromAPIServer keeps a pod from the API server alone.
func cutFromAPIServer(t *testing.T, pod *corev1.Pod) (heal func()) {
	t.Helper()
	return cutPod(t, pod, bothWays, apiServerAddress)
}

// freezePod stops the processes of a role in a pod. They go on when the function that it
// returns is called, or when the test ends.
func freezePod(t *testing.T, pod *corev1.Pod, role podprocess.Role) (heal func()) {
	t.Helper()
	heal = func() {
		t.Helper()
		if err := podprocess.Continue(podprocess.Proc, string(pod.UID)); err != nil {
			t.Errorf("let the %s of %s go on: %v", role, pod.Name, err)
		}
	}
	t.Cleanup(heal)
	_, err := podprocess.Freeze(podprocess.Proc, string(pod.UID), role)
	must(t, err, "freeze the "+string(role)+" of "+pod.Name)
	return heal
}

// killInPod kills the processes of a role in a pod. One that is being started again is
// waited for.
func killInPod(t *testing.T, pod *corev1.Pod, role podprocess.Role) {
	t.Helper()
	eventually(t, failoverTimeout, "the "+string(role)+" of "+pod.Name+" is killed", func(context.Context) error {
		return podprocess.Kill(podprocess.Proc, string(pod.UID), role)
	})
}

// deletePod deletes exactly this pod: with its grace period, or by force, while the
// kubelet still ends its processes.
func deletePod(t *testing.T, pod *corev1.Pod, force bool) {
	t.Helper()
	options := []client.DeleteOption{client.Preconditions{UID: &pod.UID}}
	if force {
		options = append(options, client.GracePeriodSeconds(0))
	}
	must(t, client.IgnoreNotFound(env.client.Delete(t.Context(), pod.DeepCopy(), options...)), "delete "+pod.Name)
}

// moveOperatorAway has the operator run on another node than those that will be lost.
func moveOperatorAway(t *testing.T, lost ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), operatorTimeout)
	defer cancel()
	pods, err := installed.listPods(ctx)
	must(t, err, "list the operator's pods")
	there := false
	for _, p := range pods {
		there = there || slices.Contains(lost, p.Spec.NodeName)
	}
	if !there {
		return
	}
	uncordon := cordonNodes(t, lost...)
	must(t, installed.killPods(ctx), "move the operator")
	eventually(t, operatorTimeout, "the operator leads elsewhere", func(ctx context.Context) error {
		leader, err := installed.findLeader(ctx)
		if err == nil && (slices.Contains(lost, leader.Spec.NodeName) || !podReady(leader)) {
			err = errors.New("it is on " + leader.Spec.NodeName)
		}
		return err
	})
	uncordon()
}

// cordonNodes keeps new pods off nodes until the function that it returns is called, or
// until the test ends.
func cordonNodes(t *testing.T, nodes ...string) (uncordon func()) {
	t.Helper()
	uncordon = func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		for _, node := range nodes {
			if err := cordonNode(ctx, node, false); err != nil {
				t.Errorf("uncordon %s: %v", node, err)
			}
		}
	}
	t.Cleanup(uncordon)
	for _, node := range nodes {
		must(t, cordonNode(t.Context(), node, true), "cordon "+node)
	}
	return uncordon
}

func cordonNode(ctx context.Context, name string, cordoned bool) error {
	body := []byte(`{"spec":{"unschedulable":null}}`)
	if cordoned {
		body = []byte(`{"spec":{"unschedulable":true}}`)
	}
	node := &corev1.Node{}
	node.SetName(name)
	return env.client.Patch(ctx, node, client.RawPatch(types.MergePatchType, body))
}

// failoverTimeout is for another member to lead and to take writes, and for a killed
// process to be found. It is no promise.
const failoverTimeout = 60 * time.Second
