//go:build e2e || soak

package e2e

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/test/writehistory"
)

// measurement is what the clients saw of one event.
type measurement struct {
	event string
	// gap is the longest time without an acknowledged write, refused the longest one
	// without a new connection that takes writes.
	gap, refused time.Duration
	// whole is how long it took until all members served again and had everything; with
	// an outage of the API server or the operator, that is part of it.
	whole time.Duration
	// lost is how many acknowledged rows were lost.
	lost int
}

// Names of events in the report.
const (
	eventSwitchover     = "switchover"
	eventPodDeleted     = "pod deleted"
	eventDrained        = "node drained"
	eventCrashed        = "postmaster killed"
	eventForced         = "pod deleted by force"
	eventNodeCut        = "node cut off"
	eventAPIStopped     = "API server stopped for 60 s"
	eventRollingRestart = "rolling restart"
	eventMinorUpgrade   = "minor upgrade"
)

// postgresTargets are what a gap of writes is to be at most, by event.
var postgresTargets = map[string]string{
	eventSwitchover: "≤ 2 s",
	eventPodDeleted: "≤ 2 s",
	eventDrained:    "≤ 2 s",
	eventCrashed:    "≤ 5 s",
	eventForced:     "≤ 5 s",
	eventNodeCut:    "≤ 15 s",
	eventAPIStopped: "no failed write",
}

// report prints what was measured.
func (f *failover) report() {
	f.t.Helper()
	if len(*f.measured) > 0 {
		f.t.Log(formatMeasurements(*f.measured, postgresTargets))
	}
}

// unexplainedGap is longer than the Lease, an election and a promotion take, and than a
// group of MySQL waits for a member that is silent.
const unexplainedGap = 25 * time.Second

// formatMeasurements is a table in Markdown with a row for each event, in the order in
// which they came first.
func formatMeasurements(measured []measurement, targets map[string]string) string {
	var order []string
	of := map[string][]measurement{}
	for _, m := range measured {
		if of[m.event] == nil {
			order = append(order, m.event)
		}
		of[m.event] = append(of[m.event], m)
	}
	heading, line := "| event | runs | longest gap between writes: min, median, max | no new connection: min, median, max | until all members serve: min, median, max | acknowledged rows lost |", "|---|---|---|---|---|---|"
	heading, line = heading+" target |", line+"---|"
	table := []string{"", heading, line}
	for _, event := range order {
		var gaps, refusals, wholes []time.Duration
		lost := 0
		for _, m := range of[event] {
			gaps, refusals, wholes, lost = append(gaps, m.gap), append(refusals, m.refused), append(wholes, m.whole), lost+m.lost
		}
		row := fmt.Sprintf("| %s | %d | %s | %s | %s | %d |", event, len(gaps), formatSpread(gaps), formatSpread(refusals), formatSpread(wholes), lost)
		// Without the operator the same is to hold.
		table = append(table, row+" "+targets[strings.TrimSuffix(event, withoutOperatorSuffix)]+" |")
	}
	return strings.Join(table, "\n")
}

// formatSpread has a dash for what was not measured.
func formatSpread(measured []time.Duration) string {
	least, middle, most := writehistory.Spread(measured)
	if most == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f s, %.2f s, %.2f s", least.Seconds(), middle.Seconds(), most.Seconds())
}
