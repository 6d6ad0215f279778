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
	// write.
	Executed string `json:"executed,omitempty"`
	Received string `json:"received,omitempty"`
	Purged   string `json:"purged,omitempty"`
	// ViewID changes with each change of View.
	ViewID string `json:"viewID,omitempty"`
	// View are the members that the server counts, as it sees them; empty in no group.
	View []ViewMember `json:"view,omitempty"`
	// Persisted are the UUIDs of the servers that may be in the group, by the record on the
	// member's volume.
	Persisted []string `json:"persisted,omitempty"`
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
