package election

import (
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// Effect is what a member has to do. Effects are done in order, and none after
// one that failed.
type Effect interface{ isEffect() }

// Persist writes the state to the volume, flushed, before the next effect.
type Persist struct{ Disk Persistent }

// ReadLease reads the Lease; Sent identifies the request.
type ReadLease struct{ Sent time.Duration }

// WriteLease replaces the state of the Lease named by Base. A zero Base creates
// the Lease.
type WriteLease struct {
	Base   lease.Version
	Record lease.Record
	Sent   time.Duration
}

// StopReceiver stops receiving WAL and answers with ReceiverStopped.
type StopReceiver struct{}

// AskVote sends the request to the member with that volume.
type AskVote struct {
	To      string
	Request VoteRequest
}

// Vote answers the member with that volume.
type Vote struct {
	To    string
	Reply VoteReply
}

// Promote makes the server the primary, on exactly this timeline. The quorum is in
// effect before the promotion; nil is asynchronous mode.
type Promote struct {
	Term, Timeline int64
	Quorum         *lease.Quorum
}

// SetQuorum sets the quorum on the primary's server and answers with QuorumSet. One
// with a higher ID replaces it, whether or not it was answered.
type SetQuorum struct {
	ID     int64
	Quorum *lease.Quorum
}

// Follow streams from the holder of that term.
type Follow struct {
	Volume string
	Term   int64
}

// StopServer begins an orderly, fast shutdown and answers with ServerStopped.
type StopServer struct{}

// RefuseSwitchover says why a SwitchoverRequest is not followed.
type RefuseSwitchover struct{ Reason string }

// Fence ends every process that could commit, at once.
type Fence struct{}

// ExtendGuard moves the moment at which the guard ends every process.
type ExtendGuard struct{ Until time.Duration }

// AskConfirm sends the request to the member with that volume.
type AskConfirm struct {
	To      string
	Request ConfirmRequest
}

// Confirm answers the member with that volume.
type Confirm struct {
	To    string
	Reply ConfirmReply
}

// Stall reports why no member is elected. An empty reason ends it.
type Stall struct{ Reason string }

func (Persist) isEffect()          {}
func (ReadLease) isEffect()        {}
func (WriteLease) isEffect()       {}
func (StopReceiver) isEffect()     {}
func (AskVote) isEffect()          {}
func (Vote) isEffect()             {}
func (Promote) isEffect()          {}
func (Follow) isEffect()           {}
func (SetQuorum) isEffect()        {}
func (StopServer) isEffect()       {}
func (RefuseSwitchover) isEffect() {}
func (Fence) isEffect()            {}
func (ExtendGuard) isEffect()      {}
func (AskConfirm) isEffect()       {}
func (Confirm) isEffect()          {}
func (Stall) isEffect()            {}
