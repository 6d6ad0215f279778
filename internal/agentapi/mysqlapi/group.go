// Package mysqlapi holds what only MySQL's agents, their peers and the operator exchange.
// Its types are parts of those of agentapi.
package mysqlapi

// Phases of a member's part in its group.
const (
	// PhaseEmpty: it has no data.
	PhaseEmpty = "empty"
	// PhaseDown: its server does not run, or is about to be restarted.
	PhaseDown = "down"
	// PhaseDetached: its server runs in no group, and takes no write.
	PhaseDetached = "detached"
	// PhaseStarting: it is about to join a group, or to start one.
	PhaseStarting = "starting"
	// PhaseInGroup: see MemberReport.View.
	PhaseInGroup = "inGroup"
)

// States of a member of a view, as MySQL writes them. Others may come.
const (
	StateOnline      = "ONLINE"
	StateRecovering  = "RECOVERING"
	StateUnreachable = "UNREACHABLE"
)

// AboutCopyFile is the first file of a copy of a member, which says what it is: no part of
// the data.
const AboutCopyFile = ".holdfast-copy.json"

// Details of Status.Details, of a primary.
const (
	// DetailDatabase and DetailOwner are the first database and its owner that exist.
	DetailDatabase = "database"
	DetailOwner    = "owner"
	// DetailAbsent names what of the first database and its owner does not exist. It is not
	// made again.
	DetailAbsent = "absent"
)

// GroupStatus is what only members of MySQL report.
type GroupStatus struct {
	// GroupReplication is the member's part in the group; nil while it knows nothing of it.
	GroupReplication *MemberReport `json:"groupReplication,omitempty"`
}

// MemberReport is a member's part in the group, by which it and the others decide who
// starts the group or joins it.
type MemberReport struct {
	// ServerUUID of the data; empty without data, and before its server first ran.
	ServerUUID string `json:"serverUUID,omitempty"`
	// Group is the name of the group that the data belongs to: its system identifier.
	Group string `json:"group,omitempty"`
	// Phase is one of those above.
	Phase string `json:"phase"`
	// Executed, Received and Purged are sets of GTIDs, on one line. They change with each
	// write, and make no new revision.
	Executed string `json:"executed,omitempty"`
	Received string `json:"received,omitempty"`
	Purged   string `json:"purged,omitempty"`
	// ViewID changes with each change of View.
	ViewID string `json:"viewID,omitempty"`
	// View are the members that the server counts, as it sees them; empty in no group.
	View []ViewMember `json:"view,omitempty"`
	// ReplicationName is the name of the group that the server is in, which numbers its
	// transactions; empty in none. It is Group until a person has it go on without members.
	ReplicationName string `json:"replicationName,omitempty"`
	// SingleLeader says that the group that the server is in agrees by a single leader, its
	// primary. A server joins a group the way that the group agrees.
	SingleLeader bool `json:"singleLeader,omitempty"`
	// JoinsSingleLeader says that the agent can have its server join a group that agrees by
	// a single leader. Agents of earlier builds cannot, and do not say so.
	JoinsSingleLeader bool `json:"joinsSingleLeader,omitempty"`
	// Persisted are the UUIDs of the servers that may be in the group, by the record on the
	// member's volume, and Revision is that of the record.
	Persisted []string `json:"persisted,omitempty"`
	Revision  int64    `json:"revision,omitempty"`
	// Lineage is how often a person had the group go on without members, by that record, and
	// LineageName the name of the group since the last time.
	Lineage     int64  `json:"lineage,omitempty"`
	LineageName string `json:"lineageName,omitempty"`
	// Missing are, of a member that waits to start the group anew, the pods that must answer
	// first, sorted; a server whose pod is not known is named by its UUID. Their volumes may
	// hold the latest writes.
	Missing []string `json:"missing,omitempty"`
	// Errant are, of a member that is held for HoldDataDiverged, the transactions that the
	// group does not have: a set of GTIDs on one line.
	Errant string `json:"errant,omitempty"`
	// Refused is the ID of the request that this member cannot carry out now, and
	// RefusedReason why; empty for none. Status.Recovered is the last RecoveryRequest or
	// CloneRequest that was carried out.
	Refused       string `json:"refused,omitempty"`
	RefusedReason string `json:"refusedReason,omitempty"`
}

// ViewMember is one member of a view.
type ViewMember struct {
	ServerUUID string `json:"serverUUID"`
	// Address is the host and the port.
	Address string `json:"address,omitempty"`
	// State as MySQL writes it, such as ONLINE.
	State   string `json:"state"`
	Primary bool   `json:"primary,omitempty"`
	Version string `json:"version,omitempty"`
}

// HasMajority says whether the member is in a group that takes writes, as it sees it: more
// than half of the members can be reached, one of them online.
func (m *MemberReport) HasMajority() bool {
	if m == nil || m.Phase != PhaseInGroup {
		return false
	}
	states := make([]string, len(m.View))
	for i, v := range m.View {
		states[i] = v.State
	}
	return IsMajority(states)
}

// IsMajority says, by the states of all members of a view, whether their group takes
// writes: more than half of them can be reached, one of them online.
func IsMajority(states []string) bool {
	reached, online := 0, 0
	for _, state := range states {
		switch state {
		case StateOnline:
			reached++
			online++
		case StateRecovering:
			reached++
		}
	}
	return online > 0 && 2*reached > len(states)
}

// Primary is the UUID of the server that leads, as the member sees it; empty for none.
func (m *MemberReport) Primary() string {
	if m == nil {
		return ""
	}
	for _, v := range m.View {
		if v.Primary && v.State == StateOnline {
			return v.ServerUUID
		}
	}
	return ""
}
