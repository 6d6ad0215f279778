package postgresapi

// Paths of the messages by which members elect a primary. Each takes a request by POST
// and answers with its reply, from a member to a member: the operator is refused. A
// member that does not answer in time does not answer at all.
//
// A request names the volumes of the member that asks and of the member that is asked.
// A member that runs on another volume than the one named answers 421 Misdirected
// Request. Fields that a member does not know are ignored. A message of another
// ElectionFormat is refused with 400 Bad Request: a change that a member must
// understand before it promises anything needs the next number.
const (
	// VotePath takes a VoteRequest and answers a VoteReply.
	VotePath = "/election/vote"
	// ConfirmPath takes a ConfirmRequest and answers a ConfirmReply.
	ConfirmPath = "/election/confirm"
	// ReleasePath takes a ReleaseRequest and answers a ReleaseReply. A member that does not
	// write the release answers 409 Conflict if the Lease is in another state, and an
	// earlier agent 404 Not Found.
	ReleasePath = "/election/release"
	// ReleasedPath takes an empty object, and answers one: the member reads the Lease at
	// once, since it may be free.
	ReleasedPath = "/election/released"
)

// ElectionFormat is the format of the messages at VotePath, ConfirmPath and ReleasePath.
const ElectionFormat = 1

// ElectionHeader is a part of each message at VotePath, ConfirmPath and ReleasePath.
type ElectionHeader struct {
	// Format is ElectionFormat.
	Format int `json:"format"`
	// Pod is the sender's pod, and From the ID of its volume.
	Pod  string `json:"pod"`
	From string `json:"from"`
	// To is the ID of the volume that the message is for.
	To string `json:"to"`
}

// ObservedLease names one state of the Lease <cluster>-primary, and the age of what it
// records.
type ObservedLease struct {
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
	// Term and Revision are those of the record.
	Term     int64 `json:"term"`
	Revision int64 `json:"revision"`
}

// VoteRequest asks a member to promise a term to a candidate.
type VoteRequest struct {
	ElectionHeader
	// Term and Timeline are what the candidate wants to win.
	Term     int64 `json:"term"`
	Timeline int64 `json:"timeline"`
	// Lease is the state that the candidate has observed as free.
	Lease ObservedLease `json:"lease"`
	// Flushed is how far the candidate's WAL goes.
	Flushed WALPoint `json:"flushed"`
}

// VoteReply answers a VoteRequest.
type VoteReply struct {
	ElectionHeader
	// Term is that of the request.
	Term int64 `json:"term"`
	// Granted says that the member has promised the term, on its disk, and receives no
	// more WAL.
	Granted bool `json:"granted"`
	// Vetoed says that no candidate may win now: the member leads, or has promised a
	// primary not to be elected.
	Vetoed bool `json:"vetoed"`
	// Competes says that the member is a candidate itself, to which the other one yields.
	// An earlier agent does not say it.
	Competes bool `json:"competes,omitempty"`
	// KnownTerm and KnownRevision are those of the newest record of the Lease that
	// the member has read.
	KnownTerm     int64 `json:"knownTerm"`
	KnownRevision int64 `json:"knownRevision"`
	// HighestTerm and HighestTimeline are the highest ones that the member knows of,
	// used or not.
	HighestTerm     int64 `json:"highestTerm"`
	HighestTimeline int64 `json:"highestTimeline"`
	// Flushed is how far the member's WAL goes, and Timelines are all that its data
	// went through.
	Flushed   WALPoint `json:"flushed"`
	Timelines []int64  `json:"timelines"`
	// NoFailover says that the member does not lead.
	NoFailover bool `json:"noFailover"`
	// SystemIdentifier is that of the member's data; empty without any.
	SystemIdentifier string `json:"systemIdentifier"`
}

// ConfirmRequest asks a member, while the API server does not answer, to promise a
// primary not to be elected.
type ConfirmRequest struct {
	ElectionHeader
	// Term is that of the primary.
	Term int64 `json:"term"`
	// Sent is when the primary sent the request, by a clock of its own, in nanoseconds.
	// The reply repeats it.
	Sent int64 `json:"sent"`
}

// ConfirmReply answers a ConfirmRequest.
type ConfirmReply struct {
	ElectionHeader
	// Term and Sent are those of the request.
	Term int64 `json:"term"`
	Sent int64 `json:"sent"`
	// Confirmed says that the member promises, for the duration of the Lease from its
	// receipt of the request.
	Confirmed bool `json:"confirmed"`
	// Promised is that duration, in nanoseconds; 0 for 10 s.
	Promised int64 `json:"promised,omitempty"`
}

// ReleaseRequest asks a member to release the Lease for its holder, from which the API
// server takes no requests any more: its pod was deleted by force. The holder's server
// has shut down in order.
type ReleaseRequest struct {
	ElectionHeader
	// Lease is the state that is to be replaced, and no other.
	Lease ObservedLease `json:"lease"`
	// Term is that of the holder, and HolderUID the UID of its pod.
	Term      int64  `json:"term"`
	HolderUID string `json:"holderUID"`
	// Shutdown is the end of the shutdown checkpoint.
	Shutdown WALPoint `json:"shutdown"`
	// Successor is the volume that alone may take the Lease at once; empty for any.
	Successor string `json:"successor,omitempty"`
}

// ReleaseReply answers a ReleaseRequest whose release is written.
type ReleaseReply struct {
	ElectionHeader
	// Lease is its state afterwards.
	Lease ObservedLease `json:"lease"`
}
