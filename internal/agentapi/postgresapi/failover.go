package postgresapi

// FailoverConfig is the part of the cluster's configuration that says how members elect
// a primary, and what is requested of the one that leads.
type FailoverConfig struct {
	// MaxLag is how many bytes of acknowledged WAL a failover may lose in asynchronous
	// mode; 0 sets no limit.
	MaxLag uint64 `json:"maxLag,omitempty"`
	// NoFailover are the pods of members that never lead, sorted.
	NoFailover []string `json:"noFailover,omitempty"`
	// LeaseDuration is how long the Lease counts without a renewal, in seconds; 0 for
	// the default of 10.
	LeaseDuration int64 `json:"leaseDurationSeconds,omitempty"`
	// Synchronous is set in synchronous mode only.
	Synchronous *SynchronousConfig `json:"synchronous,omitempty"`
	// Switchover is the request for another primary; nil for none.
	Switchover *SwitchoverRequest `json:"switchover,omitempty"`
	// Promotion is the request that one member leads with what it has; nil for none.
	Promotion *PromotionRequest `json:"promotion,omitempty"`
}

// SynchronousConfig says which standbys acknowledge a commit.
type SynchronousConfig struct {
	// Number of standbys that have flushed a commit before it is acknowledged.
	Number int `json:"number"`
	// Degrade says that commits are acknowledged by fewer standbys while fewer stream;
	// otherwise they wait.
	Degrade bool `json:"degrade,omitempty"`
}

// SwitchoverRequest asks the primary of a term to shut down in order, so that another
// member leads. The primary of another term ignores it.
type SwitchoverRequest struct {
	// ID of the request; one is carried out or refused once. See ElectionState.
	ID string `json:"id"`
	// Term of the primary that is asked.
	Term int64 `json:"term"`
	// Target is the pod that is to lead; empty for any member.
	Target string `json:"target,omitempty"`
	// Standing says that the request is tried again until another term begins or it is
	// withdrawn. ElectionState says why it is refused meanwhile.
	Standing bool `json:"standing,omitempty"`
}

// PromotionRequest asks one member to lead with what it has, whatever other members
// hold. It is carried out once the Lease is free, and ElectionState.Forced has its ID
// then.
type PromotionRequest struct {
	ID string `json:"id"`
	// Pod of the member.
	Pod string `json:"pod"`
}

// ElectionState is a member's part in the election.
type ElectionState struct {
	// Volume is the ID of the member's volume.
	Volume string `json:"volume"`
	// Stream is the application_name by which that volume streams from a leader that
	// reports this field as well. An agent of an earlier version reports none: it streams
	// by its pod's name, and counts such streams only.
	Stream string `json:"stream,omitempty"`
	// Phase of the member, by the names of the reference of the election: Standby,
	// Leading and others.
	Phase string `json:"phase"`
	// Stalled is why no member is elected, or why this one cannot take part; empty for
	// neither.
	Stalled string `json:"stalled,omitempty"`
	// Fences counts how often the database was fenced since the pod began.
	Fences int64 `json:"fences,omitempty"`
	// MayLead are the volumes that may lead, by the Lease, sorted.
	MayLead []string `json:"mayLead,omitempty"`
	// Quorum are the volumes of the synchronous quorum, and Write how many of them
	// flush a commit; empty in asynchronous mode.
	Quorum []string `json:"quorum,omitempty"`
	Write  int      `json:"write,omitempty"`
	// Streaming are, of a member that leads, the pods that stream from it and have
	// flushed some of its timeline, sorted.
	Streaming []string `json:"streaming,omitempty"`
	// LeaseDuration is that of the Lease, in seconds; 0 for the default of 10.
	LeaseDuration int64 `json:"leaseDurationSeconds,omitempty"`
	// Refused is the ID of the newest SwitchoverRequest that this member refused, and
	// RefusedReason why.
	Refused       string `json:"refused,omitempty"`
	RefusedReason string `json:"refusedReason,omitempty"`
	// Forced is the ID of the last PromotionRequest or OlderDataRequest by which this
	// volume's member claimed the Lease.
	Forced string `json:"forced,omitempty"`
}
