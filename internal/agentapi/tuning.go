package agentapi

import "time"

// TuningPath answers Tuning over mutual TLS, as StatusPath does. With TuningHoursQuery=true
// there is a slot for each hour of the last five days.
const TuningPath = "/tuning"

// TuningHoursQuery is the query parameter at TuningPath that asks for slots by the hour.
const TuningHoursQuery = "hours"

// Tuning is what a member has measured of its database while it led, and of its container, for
// recommendations about settings and resources. It holds numbers under the names below, and no
// text of a client.
type Tuning struct {
	Pod    string `json:"pod"`
	PodUID string `json:"podUID"`
	// Revision is Status.TuningRevision that this answer belongs to, or a newer one.
	Revision string `json:"revision,omitempty"`
	// Slots of the last day, the oldest first, or of the last five days by the hour. A slot
	// ends when a setting changes.
	Slots []TuningSlot `json:"slots"`
	// Sizing is what the member measured of its container, whether or not it led; nil where
	// it cannot, and of agents that do not say it.
	Sizing *Sizing `json:"sizing,omitempty"`
}

// Sizing is what a member needs of CPU and memory, by what its container used while the
// database served. CPU is in millicores, memory in bytes, and both are rounded up.
type Sizing struct {
	// Seconds that were measured, of the last two weeks.
	Seconds int64 `json:"seconds"`
	// CPU is what sufficed in 95 % of the minutes, in which older ones count less, and MostCPU
	// the largest that this was in the last two weeks.
	CPU     int64 `json:"cpu"`
	MostCPU int64 `json:"mostCPU"`
	// Throttled is the share of the periods of limits.cpu in which the container had to stop,
	// and Stalled that of the time in which something in it waited for a processor.
	Throttled float64 `json:"throttled,omitempty"`
	Stalled   float64 `json:"stalled,omitempty"`
	// Memory is what a day takes at its peak: anonymous and shared memory, and files as far as
	// they are read again and again. Older days count less, and MostMemory is of the day that
	// needed most. MostHeld has all file pages in it that the kernel holds active: no less may
	// do.
	Memory     int64 `json:"memory"`
	MostMemory int64 `json:"mostMemory"`
	MostHeld   int64 `json:"mostHeld"`
	// Kills for lack of memory in eight weeks, the last one's time, and the largest limit that
	// did not suffice.
	Kills      int       `json:"kills,omitempty"`
	LastKill   time.Time `json:"lastKill,omitzero"`
	KillMemory int64     `json:"killMemory,omitempty"`
}

// Measured is the time that was measured, of the last two weeks.
func (s *Sizing) Measured() time.Duration { return time.Duration(s.Seconds) * time.Second }

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
	// ConfigHash is Status.ConfigHash at the last of its measurements; empty of agents that do
	// not say it.
	ConfigHash string `json:"configHash,omitempty"`
}

// TuningLeastSeconds must have been measured with a setting before there is a recommendation
// about it. Agents publish what they measured once it suffices.
const TuningLeastSeconds = 600

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
	// TuningCheckpointsAsked are those of the requested ones that a client asked for, such as a
	// backup, and not the amount of WAL. Earlier agents do not say it.
	TuningCheckpointsAsked = "checkpoints_asked"
	TuningWALBytes         = "wal_bytes"
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
