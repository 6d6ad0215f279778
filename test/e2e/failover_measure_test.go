//go:build e2e && (soak || bench)

package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// measuredEvent is a row of a table.
type measuredEvent struct {
	name string
	run  func(*trial) time.Duration
	// apart is how long a cluster serves between two of them.
	apart time.Duration
	// upgrades needs two minor versions, and begins with the older one.
	upgrades bool
	// members and spec of its cluster, where they are other than usual.
	members int32
	spec    []string
	// once says that it happens once, however often the others do: it takes long.
	once bool
}

// crashesApart is between two crashes: those in a row are another event, as the agent
// waits longer before each start, and gives up leading.
const crashesApart = 65 * time.Second

// postgresEvents are the rows of PostgreSQL's table.
var postgresEvents = []measuredEvent{
	{name: "Switchover", run: switchover},
	{name: "PodDeleted", run: podDeleted},
	{name: "NodeDrained", run: nodeDrained},
	{name: "PostmasterKilled", run: postmasterKilled, apart: crashesApart},
	{name: "PodForced", run: podForced},
	{name: "NodeCutOff", run: nodeCutOff},
	{name: "OperatorAway", run: operatorAway},
	{name: "PodDeletedOperatorAway", run: whileOperatorAway(podDeleted)},
	{name: "PostmasterKilledOperatorAway", run: whileOperatorAway(postmasterKilled), apart: crashesApart},
	{name: "NodeCutOffOperatorAway", run: whileOperatorAway(nodeCutOff)},
	{name: "APIServerStopped", run: apiServerStopped},
	{name: "RollingRestart", run: func(f *trial) time.Duration { return rollingRestart(f, "max_connections", 120) }},
	{name: "MinorUpgrade", run: upgradeMinor, upgrades: true},
}

// measureFailovers measures PostgreSQL's events, and prints the table.
func measureFailovers(t *testing.T, runs int) {
	t.Helper()
	needLocalCluster(t)
	measured := measureEvents(t, runs, postgresEvents, func(t *testing.T, event measuredEvent) *trial {
		var edits []func(*v1alpha1.PostgresCluster)
		if event.upgrades {
			_, older, _ := needMinors(t)
			edits = append(edits, func(obj *v1alpha1.PostgresCluster) { obj.Spec.Version = v1alpha1.PostgresVersion(older) })
		}
		return &newFailover(newUnwatched(t, failoverMembers, edits...)).trial
	})
	t.Log(formatMeasurements(measured, postgresTargets))
}

// measureEvents has each event happen so often, each event on a cluster of its own.
func measureEvents(t *testing.T, runs int, events []measuredEvent, begin func(*testing.T, measuredEvent) *trial) []measurement {
	t.Helper()
	var measured []measurement
	for _, event := range events {
		t.Run(event.name, func(t *testing.T) {
			f := begin(t, event)
			if f.created > 0 {
				measured = append(measured, measurement{event: fmt.Sprintf("created with %d members", len(f.c.listPods())), whole: f.created})
			}
			f.measured = &measured
			count := runs
			if event.once {
				count = 1
			}
			for n := range count {
				f.runPart(t, strconv.Itoa(n+1), func(f *trial) { event.run(f) })
				time.Sleep(event.apart)
			}
		})
	}
	return measured
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

// rollingRestart: a setting restarts every member, the primary last. Its values count up
// from the least.
func rollingRestart(f *trial, setting string, least int) time.Duration {
	since := f.history.Now()
	value := least
	declared, _, err := unstructured.NestedString(unstructuredOf(f.c.t, f.c.getCluster()).Object, "spec", "parameters", setting)
	must(f.c.t, err, "read spec.parameters")
	if n, err := strconv.Atoi(declared); err == nil {
		value = n + 1
	}
	f.c.changeSpec(fmt.Sprintf(`parameters: {%s: "%d"}`, setting, value))
	f.c.waitReady()
	eventually(f.c.t, serviceTimeout, "the setting is in force", func(ctx context.Context) error { return f.c.kind.inForce(ctx, f.c.getCluster()) })
	return f.endEvent(eventRollingRestart, since, true)
}

// upgradeMinor goes to the newer minor version, or back to the older one.
func upgradeMinor(f *trial) time.Duration {
	_, older, newer := needMinors(f.c.t)
	since := f.history.Now()
	if string(asPostgres(f.c.getCluster()).Spec.Version) == newer {
		newer = older
	}
	f.c.changeSpec(fmt.Sprintf("version: %q", newer))
	if obj := f.c.waitReady(); obj.CommonStatus().Version != newer {
		f.c.t.Errorf("status says version %s, want %s", obj.CommonStatus().Version, newer)
	}
	return f.endEvent(eventMinorUpgrade, since, true)
}
