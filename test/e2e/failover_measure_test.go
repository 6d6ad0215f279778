//go:build e2e && (soak || bench)

package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// measuredEvents are the rows of the table.
var measuredEvents = []struct {
	name string
	run  func(*failover) time.Duration
}{
	{"Switchover", switchover},
	{"PodDeleted", podDeleted},
	{"NodeDrained", nodeDrained},
	{"PostmasterKilled", postmasterKilled},
	{"PodForced", podForced},
	{"NodeCutOff", nodeCutOff},
	{"OperatorAway", operatorAway},
	{"APIServerStopped", apiServerStopped},
	{"RollingRestart", rollingRestart},
	{"MinorUpgrade", upgradeMinor},
}

// measureFailovers has each event happen so often, each event on a cluster of its own,
// and prints the table.
func measureFailovers(t *testing.T, runs int) {
	t.Helper()
	needLocalCluster(t)
	_, older, _ := needMinors(t)
	var measured []measurement
	for _, event := range measuredEvents {
		t.Run(event.name, func(t *testing.T) {
			f := newFailover(newUnwatched(t, failoverMembers, func(obj *v1alpha1.PostgresCluster) {
				obj.Spec.Version = v1alpha1.PostgresVersion(older)
			}))
			f.measured = &measured
			for n := range runs {
				f.runPart(t, strconv.Itoa(n+1), func(f *failover) { event.run(f) })
			}
		})
	}
	t.Log(formatMeasurements(measured))
}

// failoverRuns is how often each event happens, unless FAILOVER_RUNS says.
func failoverRuns(t *testing.T, usual int) int {
	t.Helper()
	given := os.Getenv("FAILOVER_RUNS")
	if given == "" {
		return usual
	}
	runs, err := strconv.Atoi(given)
	must(t, err, "read FAILOVER_RUNS")
	return runs
}

// rollingRestart: a setting restarts every member, the primary last.
func rollingRestart(f *failover) time.Duration {
	connections, since := 120, f.history.Now()
	if n, err := strconv.Atoi(f.getCluster().Spec.Parameters["max_connections"]); err == nil {
		connections = n + 1
	}
	f.changeSpec(fmt.Sprintf(`parameters: {max_connections: "%d"}`, connections))
	f.waitReady()
	return f.endEvent(eventRollingRestart, since, true)
}

// upgradeMinor goes to the newer minor version, or back to the older one.
func upgradeMinor(f *failover) time.Duration {
	_, older, newer := needMinors(f.t)
	since := f.history.Now()
	f.editCluster(func(obj *v1alpha1.PostgresCluster) {
		if string(obj.Spec.Version) == newer {
			newer = older
		}
		obj.Spec.Version = v1alpha1.PostgresVersion(newer)
	})
	if obj := f.waitReady(); obj.Status.Version != newer {
		f.t.Errorf("status says version %s, want %s", obj.Status.Version, newer)
	}
	return f.endEvent(eventMinorUpgrade, since, true)
}

// nodeDrained: the primary's node is cordoned, and its pod is evicted as by kubectl
// drain. Other pods of the node stay.
func nodeDrained(f *failover) time.Duration {
	pod, before := f.primaryPod(), f.currentLeadership()
	node := pod.Spec.NodeName
	must(f.t, cordonNode(f.t.Context(), node, true), "cordon "+node)
	uncordon := func() {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		if err := cordonNode(ctx, node, false); err != nil {
			f.t.Errorf("uncordon %s: %v", node, err)
		}
	}
	f.t.Cleanup(uncordon)
	since := f.history.Now()
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(pod.UID)}},
	}
	eventually(f.t, failoverTimeout, pod.Name+" is evicted", func(ctx context.Context) error {
		return client.IgnoreNotFound(env.client.SubResource("eviction").Create(ctx, pod.DeepCopy(), eviction.DeepCopy()))
	})
	if next := f.awaitSuccessor(before); next.Name == pod.Name {
		f.t.Errorf("%s was evicted, and leads again", pod.Name)
	}
	gap := f.endEvent(eventDrained, since, true)
	for _, p := range f.listPods() {
		if p.Spec.NodeName == node {
			f.t.Errorf("%s runs on %s, which is drained", p.Name, node)
		}
	}
	uncordon()
	return gap
}
