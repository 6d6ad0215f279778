// Package postgresapi holds what only PostgreSQL's agents, their peers and the
// operator exchange. Its types are parts of those of agentapi.
//
// Beside its status, the agent answers a WALComparison at ComparisonPath.
package postgresapi

import "time"

// ComparisonPath answers a WALComparison, for the query parameters timeline,
// from and to, in decimal, on a member that leads. Timeline 0 asks for the part
// as the member has it, whatever timeline that is of.
const ComparisonPath = "/wal-comparison"

// ComparisonMost is the most WAL, in bytes, that is compared at once.
const ComparisonMost = 4 << 30

// FirstDatabase is the database that applications use, and its owner.
type FirstDatabase struct {
	Database string `json:"database,omitempty"`
	Owner    string `json:"owner,omitempty"`
}

// Details of a primary whose engine has a FirstDatabase.
const (
	// DetailDatabase and DetailOwner are the first database and its owner as
	// the data itself records them.
	DetailDatabase = "database"
	DetailOwner    = "owner"
	// DetailAbsent names what of the first database and its owner does not
	// exist.
	DetailAbsent = "absent"
)

// OlderDataRequest asks one member that is held for HoldDataStale to go on with
// the data that it has, on a new timeline. Of a member that is not held so it
// asks nothing.
type OlderDataRequest struct {
	// ID of the request; one is carried out once, and is then the member's
	// Status.Recovered.
	ID string `json:"id"`
	// Pod of the member.
	Pod string `json:"pod"`
}

// WALComparison says what a member's WAL has to do with a part of another's.
type WALComparison struct {
	// Timeline and Position of the member itself.
	WALPoint
	// Descends says that the timeline asked for is the member's, or one before
	// it, which it left at Left; 0 where it has not.
	Descends bool   `json:"descends,omitempty"`
	Left     uint64 `json:"left,omitempty"`
	// Sum is the SHA-256, in hex, of the part; empty where the member does not
	// hold all of it any more, or not yet.
	Sum string `json:"sum,omitempty"`
}

// WALPoint is a position in the WAL of a timeline.
type WALPoint struct {
	Timeline int64  `json:"timeline"`
	Position uint64 `json:"position"`
}

// Reset is a setting that an agent has reset.
type Reset struct {
	// Parameter and the value that it had.
	Parameter string `json:"parameter"`
	Was       string `json:"was"`
	// Time of the reset, to the second.
	Time time.Time `json:"time"`
}

// RequestConfig is the part of the cluster's configuration that holds requests to
// members of PostgreSQL.
type RequestConfig struct {
	// OlderData is the request to go on with older data; see OlderDataRequest.
	OlderData *OlderDataRequest `json:"olderData,omitempty"`
}

// LeaseState is what a member knows of the Lease of its cluster's primary.
type LeaseState struct {
	// HolderUID is the UID of the pod that holds it; empty for none.
	HolderUID string `json:"holderUID,omitempty"`
	// HolderPod is the name of that pod, or of the last one that held it.
	HolderPod string `json:"holderPod,omitempty"`
	// Term counts the changes of the holder.
	Term int64 `json:"term"`
}

// ReplicationStatus is what only members of PostgreSQL report.
type ReplicationStatus struct {
	// Source is the pod that a replica follows.
	Source string `json:"source,omitempty"`
	// Timeline of the data; 0 while unknown.
	Timeline int64 `json:"timeline,omitempty"`
	// PositionOld says that a primary could not look at its position for this
	// answer: the WAL may go further by now.
	PositionOld bool `json:"positionOld,omitempty"`
	// WALEnd is how far the WAL on the member's volume goes, of an engine with
	// timelines: of a replica, what it has received. It is nil while that is
	// not known, and zero of a volume without data.
	WALEnd *WALPoint `json:"walEnd,omitempty"`
	// Diverged is where a primary was that led without what this volume holds, for
	// which the data is marked for good: WALEnd is no measure of a primary that has
	// come so far. It is nil for data without a mark.
	Diverged *WALPoint `json:"diverged,omitempty"`
	// Resets are the settings of Holdfast's that a client had changed in the
	// database, and that the agent has reset since it runs; the newest of each.
	Resets []Reset `json:"resets,omitempty"`
	// Lease is the Lease as the member last read or wrote it. It is nil of a member
	// that could not read it last, unless it holds it; of one that does not read it
	// all the time; and of agents that do not report it.
	Lease *LeaseState `json:"lease,omitempty"`
	// Election is the member's part in the election; nil of agents of earlier versions.
	Election *ElectionState `json:"election,omitempty"`
}
