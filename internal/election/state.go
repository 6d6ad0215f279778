package election

import "time"

// Phase is what a member is doing.
type Phase int

// The phases.
const (
	// Standby: the member follows, or waits for a primary.
	Standby Phase = iota
	// Voting: its receiver stops for a vote.
	Voting
	// Stopping: its receiver stops for its own candidacy.
	Stopping
	// Asking: it waits for votes.
	Asking
	// Claiming: its claim is sent.
	Claiming
	// Unsure: the outcome of its claim is unknown until the Lease is read.
	Unsure
	// Promoting: it won, and its server is not the primary yet.
	Promoting
	// Leading: its server takes writes.
	Leading
	// Ending: its server shuts down in order.
	Ending
	// Releasing: its server is gone, and the Lease is to be given up.
	Releasing
)

// State is a member with its roles. Everything but Disk is lost when its agent ends.
// All parts are plain values: a step copies them, and changes only the copy.
type State struct {
	member

	votingFor  VoteRequest // while Voting
	candidacy  candidacy
	leadership leadership
}

// Renewed is when the last successful renewal of the term was sent. It says something of
// a primary only.
func (s State) Renewed() time.Duration { return s.leadership.renewed }

// NewState is a member whose agent just started: it does not lead, whatever the
// Lease says.
func NewState(c Config, d Persistent) State { return State{member: member{Config: c, Disk: d}} }
