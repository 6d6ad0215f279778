package tune

import (
	"fmt"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

var mysqlRules = []rule{
	{
		name: "innodb_redo_log_capacity", field: "spec.parameters.innodb_redo_log_capacity", unit: mebibyte, format: mysqlSize,
		symptom: agentapi.TuningRedoFull, most: shareOfVolume(0.1), judge: judgeRedo,
	},
	{
		// MySQL rounds up to chunks of 128 MiB.
		name: "innodb_buffer_pool_size", field: "spec.parameters.innodb_buffer_pool_size", unit: 128 * mebibyte, format: mysqlSize, memory: true,
		symptom: agentapi.TuningPageReads, most: shareOfMemory(0.7), judge: judgePool,
	},
}

// judgeRedo looks for a redo log that is close to the point at which writes wait.
func judgeRedo(o observed, _ float64) string {
	full, samples := o.sums[agentapi.TuningRedoFull], o.sums[agentapi.TuningSamples]
	if full < 3 || full < samples/10 {
		return ""
	}
	return fmt.Sprintf("the redo log was filled to %.0f %% of its capacity, or more, in %.0f of %.0f samples in %s", 100*agentapi.TuningFull, full, samples, o.duration())
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
