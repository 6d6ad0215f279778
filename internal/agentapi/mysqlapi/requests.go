package mysqlapi

// ReplicationConfig is the part of the cluster's configuration that only MySQL reads.
type ReplicationConfig struct {
	// GroupReplication holds what is requested of the members; nil for nothing.
	GroupReplication *GroupRequests `json:"groupReplication,omitempty"`
}

// GroupRequests are what is requested of the members of a group. A request is tried again
// until it is carried out, which it is once, or withdrawn.
type GroupRequests struct {
	// Switchover is the request for another primary; nil for none.
	Switchover *SwitchoverRequest `json:"switchover,omitempty"`
	// Recovery is the request to start the group without members that do not answer; nil
	// for none.
	Recovery *RecoveryRequest `json:"recovery,omitempty"`
	// CloneAgain is the request to replace a member's diverged data; nil for none.
	CloneAgain *CloneRequest `json:"cloneAgain,omitempty"`
}

// SwitchoverRequest asks the primary to move the lead to another member. It is carried out
// when another member leads. While that fails, MemberReport.Refused of the primary has its
// ID.
type SwitchoverRequest struct {
	// ID of the request.
	ID string `json:"id"`
	// From is the UUID of the server that leads and is asked. Another primary ignores the
	// request.
	From string `json:"from"`
	// Target is the pod that is to lead; empty for any member that can.
	Target string `json:"target,omitempty"`
}

// RecoveryRequest asks one member to start the group without those that do not answer,
// whose transactions are lost where this member does not have them. The member obeys only
// while no member that answers is in a group, and only if it holds all transactions of the
// members that answer. It is carried out when Status.Recovered of the member is its ID.
type RecoveryRequest struct {
	// ID of the request.
	ID string `json:"id"`
	// Pod and ServerUUID of the member that goes on. Other data on the pod's volume does
	// not.
	Pod        string `json:"pod"`
	ServerUUID string `json:"serverUUID"`
}

// CloneRequest asks one member that is held for HoldDataDiverged to keep its data aside,
// and to clone that of the group. The data that is kept aside is removed once the member
// is online. A member that is not held so ignores the request. It is carried out when
// Status.Recovered of the member is its ID.
type CloneRequest struct {
	// ID of the request.
	ID string `json:"id"`
	// Pod and ServerUUID of the member.
	Pod        string `json:"pod"`
	ServerUUID string `json:"serverUUID"`
}
