// Package etcdapi holds what only etcd's agents, their peers and the operator
// exchange. Its types are parts of those of agentapi.
package etcdapi

// What PendingRestart may name beside parameters.
const (
	// PendingTrust: the database runs with another bundle of trusted
	// authorities than it was given since.
	PendingTrust = "trusted authorities"
	// PendingLimit: it runs with another DataLimit.
	PendingLimit = "quota"
	// PendingLog: its log must be shortened before the next version can read it.
	PendingLog = "a snapshot"
)

// States of a JoinGrant.
const (
	// JoinNew admits the seed of a new group.
	JoinNew = "new"
	// JoinExisting admits a member that the group already counts.
	JoinExisting = "existing"
)

// SeedMember is the MemberID of a join grant that begins a new group.
const SeedMember = "seed"

// JoinGrant admits a pod whose volume is empty, once: the agent records on the
// Lease <cluster>-members which volume it was used for. Data on a volume needs
// none. A grant for another member than that of the data sets the data aside,
// when the group confirms that it counts the grant's member and no longer the
// data's.
type JoinGrant struct {
	// MemberID is the ID that the group has given the member, in hex and
	// without leading zeros; SeedMember for the seed.
	MemberID string `json:"memberID"`
	// State is JoinNew or JoinExisting.
	State string `json:"state"`
	// InitialCluster are the peer URLs of all members that the group counts, by
	// pod, the admitted one included.
	InitialCluster map[string]string `json:"initialCluster"`
}

// Recovery requests one member to drop all others from the group, for their
// majority is lost for good, and to go on alone with the data that it has. The
// member obeys only while neither its own database nor any other member that
// answers knows of a leader; otherwise Status.Message says why it does not.
type Recovery struct {
	// Token is the ID of the request; one is carried out once, and is then the member's
	// Status.Recovered.
	Token string `json:"token"`
	// Pod and MemberID of the one that goes on. Data of another member on the
	// pod's volume does not.
	Pod      string `json:"pod"`
	MemberID string `json:"memberID"`
}

// Group is the membership of a group, as one of its members sees it. It may lag
// behind; that of the leader does not.
type Group struct {
	// Self is the ID by which the group knows this member. It is empty until
	// the start of this member on this volume is recorded: no member may be
	// given a vote before.
	Self string `json:"self,omitempty"`
	// Leader is the ID of the leader; empty while this member knows none.
	Leader string `json:"leader,omitempty"`
	// Members of the group, sorted by ID.
	Members []GroupMember `json:"members,omitempty"`
}

// GroupMember is one member of a group.
type GroupMember struct {
	ID string `json:"id"`
	// Name is the pod's; empty while the member has never started.
	Name    string `json:"name,omitempty"`
	PeerURL string `json:"peerURL"`
	// Learner says that the member follows without a vote.
	Learner bool `json:"learner,omitempty"`
}

// GroupConfig is the part of the cluster's configuration that only etcd reads.
type GroupConfig struct {
	// DataLimit is the size in bytes that etcd lets its data grow to; 0 for its
	// default.
	DataLimit int64 `json:"dataLimit,omitempty"`
	// JoinGrants of members whose volume is empty, by pod.
	JoinGrants map[string]JoinGrant `json:"tickets,omitempty"`
	// Recovery is the request to go on without a lost majority; see Recovery.
	Recovery *Recovery `json:"recovery,omitempty"`
}

// GroupStatus is what only members of etcd report.
type GroupStatus struct {
	// DataVersion is the version that served the data on the volume last, of
	// engines that keep it beside the data: known before the database runs.
	// Empty without data, and while no version has served it.
	DataVersion string `json:"dataVersion,omitempty"`
	// DataInUse is what of DataSize holds data: an engine that says it gives
	// the rest back only when it is asked to.
	DataInUse int64 `json:"dataInUse,omitempty"`
	// DataLimit is the quota in bytes that is in force; 0 for none.
	DataLimit int64 `json:"dataLimit,omitempty"`
	// DataFill is DataSize as a share of DataLimit, and DataUnused what of
	// DataSize is not in use, in percent and rounded down to steps of five, so
	// that the steps alone make a new revision. DataUnused stays 0 while that
	// is less than 16 MiB.
	DataFill   int `json:"dataFill,omitempty"`
	DataUnused int `json:"dataUnused,omitempty"`
	// Alarms that the engine has raised anywhere in the cluster, by its own
	// names, each followed by a colon and the ID of the member; sorted.
	Alarms []string `json:"alarms,omitempty"`
	// Group is the membership as this member sees it; nil without one.
	Group *Group `json:"group,omitempty"`
	// LostMember is the ID of the member that this pod was, and can never be
	// again because its data has gone: the group must remove it before it
	// admits the pod anew. Together with HoldDataMissing.
	LostMember string `json:"lostMember,omitempty"`
}

// RestoreGroup is the part of a restore's task that only etcd reads.
type RestoreGroup struct {
	// PeerURL of the member, and Token that names the new group: only this
	// cluster ever has it.
	PeerURL string `json:"peerURL,omitempty"`
	Token   string `json:"token,omitempty"`
}
