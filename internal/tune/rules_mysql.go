package tune

import (
	"fmt"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

var mysqlRules = []rule{
	{
		name: "innodb_redo_log_capacity", field: "spec.parameters.innodb_redo_log_capacity", unit: mebibyte, units: mysqlUnits, rounding: mebibyte,
		most: shareOfVolume(0.1), judge: judgeRedo,
	},
	{
		// MySQL rounds up to chunks.
		name: "innodb_buffer_pool_size", field: "spec.parameters.innodb_buffer_pool_size", units: mysqlUnits, memory: true,
		unit: 128 * mebibyte, unitFrom: "innodb_buffer_pool_chunk_size",
		most: shareOfMemory(0.7), judge: judgePool,
	},
}

// leastTurnovers is how often in an hour the redo log is written over for it to be too
// small: pages are then flushed within five minutes of their change.
const leastTurnovers = 12

// judgeRedo looks for a redo log that is written over again and again, so that pages are
// flushed for its sake.
func judgeRedo(o observed, now float64) string {
	if o.perHour(agentapi.TuningRedoBytes) < leastTurnovers*now {
		return ""
	}
	turnovers := o.sums[agentapi.TuningRedoBytes] / now
	return fmt.Sprintf("the redo log of %s was written over %.1f times in %s, by %s",
		describeBytes(now), turnovers, o.duration(), describeBytes(o.sums[agentapi.TuningRedoBytes]))
}

// judgePool looks for pages that are read again and again.
func judgePool(o observed, now float64) string {
	reads, requests := o.sums[agentapi.TuningPageReads], o.sums[agentapi.TuningPageRequests]
	size := max(o.settings["innodb_page_size"], 4*kibibyte)
	if reads*size < 2*now || reads < requests/100 {
		return ""
	}
	return fmt.Sprintf("%.1f %% of page accesses in %s went to the volume, and %s were read into a buffer pool of %s",
		100*reads/requests, o.duration(), describeBytes(reads*size), describeBytes(now))
}
