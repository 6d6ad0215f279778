package memberapi

// These types are for engines whose members form a group of their own accord,
// and elect for themselves.

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

// States of a Ticket.
const (
	// TicketNew admits the seed of a new group.
	TicketNew = "new"
	// TicketExisting admits a member that the group already counts.
	TicketExisting = "existing"
)

// SeedMember is the MemberID of a ticket that begins a new group.
const SeedMember = "seed"

// Ticket admits a pod whose volume is empty, once: the agent records on the
// Lease <cluster>-members which volume it was used for. Data on a volume needs
// none. A ticket for another member than that of the data sets the data aside,
// when the group confirms that it counts the ticket's member and no longer the
// data's.
type Ticket struct {
	// MemberID is the ID that the group has given the member, in hex and
	// without leading zeros; SeedMember for the seed.
	MemberID string `json:"memberID"`
	// State is TicketNew or TicketExisting.
	State string `json:"state"`
	// InitialCluster are the peer URLs of all members that the group counts, by
	// pod, the admitted one included.
	InitialCluster map[string]string `json:"initialCluster"`
}

// Recovery orders one member to drop all others from the group, for their
// majority is lost for good, and to go on alone with the data that it has. The
// member obeys only while neither its own database nor any other member that
// answers knows of a leader; otherwise Status.Message says why it does not.
type Recovery struct {
	// Token of the order; one is carried out once, and is then the member's
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
	// the start of this member on this volume is on record: no member may be
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
