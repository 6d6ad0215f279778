package agentapi

import "time"

// TuningPath answers Tuning over mutual TLS, as StatusPath does.
const TuningPath = "/tuning"

// Tuning is what a member has measured of its database while it led, for advice about
// settings. It holds numbers under the names below, and no text of a client.
type Tuning struct {
	Pod    string `json:"pod"`
	PodUID string `json:"podUID"`
	// Revision is Status.TuningRevision that this answer belongs to, or a newer one.
	Revision string `json:"revision,omitempty"`
	// Slots of the last day, the oldest first. A slot ends with the hour, and when a
	// setting changes.
	Slots []TuningSlot `json:"slots"`
}

// TuningSlot is what was measured in an hour, or in a part of one, with the same settings.
type TuningSlot struct {
	// Start of the measurement, and Seconds that it covers.
	Start   time.Time `json:"start"`
	Seconds float64   `json:"seconds"`
	// Sums are how far counters went, and Peaks the largest values of levels.
	Sums  map[string]float64 `json:"sums,omitempty"`
	Peaks map[string]float64 `json:"peaks,omitempty"`
	// Settings that were in force, by name: in bytes where they are sizes.
	Settings map[string]float64 `json:"settings,omitempty"`
}

// Names in TuningSlot.Sums that every engine may have.
const (
	// TuningSamples counts the measurements.
	TuningSamples = "samples"
	// TuningWork is what the database did: transactions.
	TuningWork = "work"
	// TuningCost is the time that statements took for it, in milliseconds.
	TuningCost = "cost_ms"
)

// Names of what only some engines measure.
const (
	TuningBlocksRead           = "blocks_read"
	TuningBlocksHit            = "blocks_hit"
	TuningReadTime             = "read_ms"
	TuningTempFiles            = "temp_files"
	TuningTempBytes            = "temp_bytes"
	TuningCheckpointsRequested = "checkpoints_requested"
	TuningCheckpointsTimed     = "checkpoints_timed"
	TuningWALBytes             = "wal_bytes"
	// TuningVacuumBusy counts samples in which every autovacuum worker was at work, and
	// TuningVacuumPasses those with a vacuum in its second pass over indexes or later.
	TuningVacuumBusy   = "vacuum_busy"
	TuningVacuumPasses = "vacuum_passes"
	// TuningConnections is a level: client connections. TuningDataSize is one, too.
	TuningConnections = "connections"
	TuningDataSize    = "data_size"
)

const (
	// Reads of pages, those that went to the volume, and the samples in which the redo log
	// was filled to TuningFull of its capacity.
	TuningPageRequests = "page_requests"
	TuningPageReads    = "page_reads"
	TuningRedoFull     = "redo_full"
)

// TuningQuotaFull counts the samples in which the data in use had TuningFull of the quota.
const TuningQuotaFull = "quota_full"

// TuningFull is the share of a log's capacity, or of a quota, from which it counts as full.
const TuningFull = 0.7
