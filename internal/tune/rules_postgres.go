package tune

import (
	"fmt"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// page is the size of a block of PostgreSQL.
const page = 8 * kibibyte

var postgresRules = []rule{
	{
		name: "max_wal_size", field: "spec.parameters.max_wal_size", unit: mebibyte, units: postgresUnits, plain: mebibyte, rounding: mebibyte, disk: true,
		most: shareOfVolume(0.2), judge: judgeCheckpoints,
		// Fewer checkpoints write fewer whole pages: the WAL of a transaction must not grow.
		trial: &measure{
			symptom: agentapi.TuningCheckpointsRequested, other: agentapi.TuningCheckpointsAsked, least: 10, load: agentapi.TuningWALBytes, words: "forced checkpoints for the same WAL",
			cost: []string{agentapi.TuningWALBytes}, costLoad: agentapi.TuningTransactions, costWords: "WAL of a transaction",
		},
	},
	{
		name: "work_mem", field: "spec.parameters.work_mem", unit: mebibyte, units: postgresUnits, plain: kibibyte, rounding: kibibyte, memory: true,
		most: shareOfMemory(1. / 16), judge: judgeSpills,
		// With more memory the planner may choose a plan that reads more.
		trial: &measure{
			symptom: agentapi.TuningTempBytes, least: 64 * mebibyte, load: agentapi.TuningTransactions, words: "temporary files of a transaction",
			cost: []string{agentapi.TuningBlocksRead, agentapi.TuningBlocksHit}, costLoad: agentapi.TuningTransactions, costWords: "blocks that a transaction reads",
		},
	},
	{
		name: "shared_buffers", field: "spec.parameters.shared_buffers", unit: mebibyte, units: postgresUnits, plain: page, rounding: page, memory: true, restart: true,
		most: shareOfMemory(0.4), judge: judgeBuffers,
	},
}

// judgeCheckpoints looks for checkpoints that come since the WAL is full, not since they
// are due. Backups and people ask for some, too: those do not count. Agents of earlier releases
// do not say how many: those come with less WAL.
func judgeCheckpoints(o observed, now float64) string {
	forced := max(o.sums[agentapi.TuningCheckpointsRequested]-o.sums[agentapi.TuningCheckpointsAsked], 0)
	timed, wal := o.sums[agentapi.TuningCheckpointsTimed], o.sums[agentapi.TuningWALBytes]
	if forced < 3 || forced/o.seconds*3600 < 2 || forced <= timed || wal < forced*now*0.2 {
		return ""
	}
	return fmt.Sprintf("%.0f of %.0f checkpoints in %s were forced, after %s of WAL each on average",
		forced, forced+timed, o.duration(), describeBytes(wal/forced))
}

// judgeSpills looks for sorts and hashes that went to files. Files that are far larger than
// the setting would go there with twice as much, too.
func judgeSpills(o observed, now float64) string {
	files, bytes := o.sums[agentapi.TuningTempFiles], o.sums[agentapi.TuningTempBytes]
	if files < 10 || bytes < 16*mebibyte || o.perHour(agentapi.TuningTempBytes) < 64*mebibyte || bytes/files > 16*now {
		return ""
	}
	return fmt.Sprintf("%.0f temporary files with %s were written in %s, %s each on average",
		files, describeBytes(bytes), o.duration(), describeBytes(bytes/files))
}

// judgeBuffers looks for blocks that are read again and again.
func judgeBuffers(o observed, now float64) string {
	read, hit := o.sums[agentapi.TuningBlocksRead], o.sums[agentapi.TuningBlocksHit]
	if read*page < 2*now || o.peaks[agentapi.TuningDataSize] < now || hit/(hit+read) > 0.95 {
		return ""
	}
	return fmt.Sprintf("%.1f %% of block accesses in %s were hits, and %s were read into %s of buffers",
		100*hit/(hit+read), o.duration(), describeBytes(read*page), describeBytes(now))
}
