package agentapi

import "time"

// TuningPath answers Tuning over mutual TLS, as StatusPath does. With TuningHoursQuery=true
// there is a slot for each hour of the last five days.
const TuningPath = "/tuning"

// TuningHoursQuery is the query parameter at TuningPath that asks for slots by the hour.
const TuningHoursQuery = "hours"

// Tuning is what a member has measured of its database while it led, for recommendations
// about settings. It holds numbers under the names below, and no text of a client.
type Tuning struct {
	Pod    string `json:"pod"`
	PodUID string `json:"podUID"`
	// Revision is Status.TuningRevision that this answer belongs to, or a newer one.
	Revision string `json:"revision,omitempty"`
	// Slots of the last day, the oldest first, or of the last five days by the hour. A slot
	// ends when a setting changes.
	Slots []TuningSlot `json:"slots"`
}

// TuningSlot is what was measured with the same settings.
type TuningSlot struct {
	// Start and End of the measurement, and Seconds that it covers: the member may have
	// led for only a part of that time.
	Start   time.Time `json:"start"`
	End     time.Time `json:"end"`
	Seconds float64   `json:"seconds"`
	// Sums are how far counters went, and Peaks the largest values of levels.
	Sums  map[string]float64 `json:"sums,omitempty"`
	Peaks map[string]float64 `json:"peaks,omitempty"`
	// Settings that were in force, by name: in bytes where they are sizes.
	Settings map[string]float64 `json:"settings,omitempty"`
}

// TuningSamples in TuningSlot.Sums counts the measurements, of every engine.
const TuningSamples = "samples"

// Names in TuningSlot.Sums and Peaks of what only some engines measure.
const (
	TuningBlocksRead           = "blocks_read"
	TuningBlocksHit            = "blocks_hit"
	TuningTempFiles            = "temp_files"
	TuningTempBytes            = "temp_bytes"
	TuningCheckpointsRequested = "checkpoints_requested"
	TuningCheckpointsTimed     = "checkpoints_timed"
	TuningWALBytes             = "wal_bytes"
	// TuningTransactions are those in databases of clients: the agent's own do not count.
	TuningTransactions = "transactions"
	// TuningConnections is a level: client connections. TuningDataSize is one, too.
	TuningConnections = "connections"
	TuningDataSize    = "data_size"
)

const (
	// TuningPageRequests are reads of pages.
	TuningPageRequests = "page_requests"
	// TuningPageReads are the pages that were read from the volume for them and ahead of them.
	TuningPageReads = "page_reads"
	// TuningRedoBytes is what was written to the redo log.
	TuningRedoBytes = "redo_bytes"
)
