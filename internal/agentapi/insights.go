package agentapi

import "time"

// InsightsPath answers Insights: over mutual TLS, as StatusPath does, and at the socket
// InsightsSocket.
const InsightsPath = "/insights"

// InsightsSocket is the name of the socket in RunDir at which the agent answers
// InsightsPath to programs of its own container.
const InsightsSocket = "insights.sock"

// Insights is what an agent has found in the text log of its database since it started.
// It holds names of classes, SQLSTATEs, query IDs, counts and times, and no text of a line.
type Insights struct {
	Pod    string `json:"pod"`
	PodUID string `json:"podUID"`
	// Revision is Status.InsightsRevision that this answer belongs to, or a newer one.
	Revision string `json:"revision,omitempty"`
	// Since is when the agent began to read.
	Since time.Time `json:"since"`
	// Unread says why lines are not read now; empty while they are.
	Unread string `json:"unread,omitempty"`
	// Lines that were read, Unclassified those of no class, and Dropped those that came
	// faster than they were read.
	Lines        int64 `json:"lines"`
	Unclassified int64 `json:"unclassified"`
	Dropped      int64 `json:"dropped"`
	// Classes that were seen, the worst first.
	Classes []Insight `json:"classes"`
	// Volume says when the member's volume is full, by the agent's measurements; missing
	// while that is not known.
	Volume *VolumeForecast `json:"volume,omitempty"`
	// Anomalies are the signals that are not as usual, or were not within the last day.
	Anomalies []Anomaly `json:"anomalies,omitempty"`
}

// Anomaly is a signal of a member that is far from what is usual at that time of the day.
type Anomaly struct {
	// Class that it is counted under, and Signal by the name that its metric has.
	Class  string `json:"class"`
	Signal string `json:"signal"`
	// Title and Unit describe the signal to a person; no unit for a number of things.
	Title string `json:"title"`
	Unit  string `json:"unit,omitempty"`
	// Observed and Expected when it was noticed, rounded to two digits.
	Observed float64 `json:"observed"`
	Expected float64 `json:"expected"`
	// Since is when it began, and Until when it ended; missing while it lasts.
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"`
	// Cause is a planned change of the hour before, at CausedAt: RoleChanged,
	// SettingsChanged, ServerStarted or DataCopied.
	Cause    string    `json:"cause,omitempty"`
	CausedAt time.Time `json:"causedAt,omitzero"`
}

// VolumeForecast says when a volume is full.
type VolumeForecast struct {
	// Fills says that a history shows that it is full in so many seconds.
	Fills   bool  `json:"fills"`
	Seconds int64 `json:"seconds,omitempty"`
	// BytesPerDay by which it fills; negative where data shrinks.
	BytesPerDay int64 `json:"bytesPerDay"`
	// ShownSeconds is how long a history shows the rate, and Trend says that it is all there
	// is, and not a last part of it.
	ShownSeconds int64 `json:"shownSeconds"`
	Trend        bool  `json:"trend,omitempty"`
}

// InsightNotice is the severity of classes that are good to know, which no status reports.
const InsightNotice = "Notice"

// Insight is one class of events.
type Insight struct {
	Class    string    `json:"class"`
	Severity string    `json:"severity"`
	Count    int64     `json:"count"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
	// SQLStates of the events, the most frequent first.
	SQLStates []string `json:"sqlStates,omitempty"`
	// Statements that caused the most events, by the ID that pg_stat_statements has.
	Statements []InsightStatement `json:"statements,omitempty"`
	// Largest and Latest are the numbers captured with the events, in Unit, rounded to
	// two digits; 0 for none.
	Unit    string  `json:"unit,omitempty"`
	Largest float64 `json:"largest,omitempty"`
	Latest  float64 `json:"latest,omitempty"`
}

// InsightStatement is a statement that caused events.
type InsightStatement struct {
	// QueryID as the server computes it. It is a string in JSON: JavaScript would round it.
	QueryID int64     `json:"queryID,string"`
	Count   int64     `json:"count"`
	Last    time.Time `json:"last"`
}
