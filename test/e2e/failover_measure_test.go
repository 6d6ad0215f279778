//go:build e2e && (soak || bench)

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// measuredEvents are the rows of the table.
var measuredEvents = []struct {
	name string
	run  func(*failover) time.Duration
	// apart is how long a cluster serves between two of them.
	apart time.Duration
	// upgrades needs two minor versions, and begins with the older one.
	upgrades bool
}{
	{"Switchover", switchover, 0, false},
	{"PodDeleted", podDeleted, 0, false},
	{"NodeDrained", nodeDrained, 0, false},
	// Crashes in a row are another event: the agent waits longer before each start, and
	// gives up leading.
	{"PostmasterKilled", postmasterKilled, 65 * time.Second, false},
	{"PodForced", podForced, 0, false},
	{"NodeCutOff", nodeCutOff, 0, false},
	{"OperatorAway", operatorAway, 0, false},
	{"APIServerStopped", apiServerStopped, 0, false},
	{"RollingRestart", rollingRestart, 0, false},
	{"MinorUpgrade", upgradeMinor, 0, true},
}

// measureFailovers has each event happen so often, each event on a cluster of its own,
// and prints the table.
func measureFailovers(t *testing.T, runs int) {
	t.Helper()
	needLocalCluster(t)
	var measured []measurement
	for _, event := range measuredEvents {
		t.Run(event.name, func(t *testing.T) {
			var edits []func(*v1alpha1.PostgresCluster)
			if event.upgrades {
				_, older, _ := needMinors(t)
				edits = append(edits, func(obj *v1alpha1.PostgresCluster) { obj.Spec.Version = v1alpha1.PostgresVersion(older) })
			}
			f := newFailover(newUnwatched(t, failoverMembers, edits...))
			f.measured = &measured
			for n := range runs {
				f.runPart(t, strconv.Itoa(n+1), func(f *failover) { event.run(f) })
				time.Sleep(event.apart)
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
