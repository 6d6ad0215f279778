// Package election is a member's part in choosing PostgreSQL's primary: a state
// machine over messages and a monotonic clock that are passed in. It returns what
// to do as data, and neither waits, reads a clock nor calls a client.
package election

import (
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// Input is what a member is given: the answer to an effect, a message, or a tick.
type Input interface{ isInput() }

// Tick lets time pass. It is due several times per renewal.
type Tick struct{}

// LeaseRead is the answer to ReadLease.
type LeaseRead struct{ Reading lease.Reading }

// LeaseWritten is the answer to the WriteLease that was sent at Sent.
type LeaseWritten struct {
	Answer  lease.Answer
	Version lease.Version
	Sent    time.Duration
}

// WAL is what a volume holds. The timelines are all that its data went through,
// which can be more than a stopped receiver reports.
type WAL struct {
	Flushed   lease.Position
	Timelines []int64
	// Reach is how far the pages go that hold a part of one more record, as an LSN of
	// the timeline of Flushed; 0 for none. A server may have called that flushed.
	Reach uint64
}

// findReach is how far what a server called flushed can go on this volume.
func (w WAL) findReach() lease.Position {
	return lease.Position{Timeline: w.Flushed.Timeline, LSN: max(w.Flushed.LSN, w.Reach)}
}

// hasAll reports whether the shutdown checkpoint was received to its end.
func (w WAL) hasAll(end lease.Position) bool {
	return w.Flushed.Timeline == end.Timeline && w.Flushed.LSN >= end.LSN
}

// ReceiverStopped answers StopReceiver: no more WAL is received. The WAL is that
// of the volume, measured afterwards.
type ReceiverStopped struct{ WAL WAL }

// VoteRequest asks a member for its vote and its position.
type VoteRequest struct {
	// From is the candidate's volume.
	From string
	// Term and Timeline are what the candidate wants to win.
	Term, Timeline int64
	// Base is the state of the Lease that the candidate observed as free, and
	// BaseAge the age of its record.
	Base    lease.Version
	BaseAge lease.Age
	// Flushed is what the candidate holds.
	Flushed lease.Position
	// WAL is what the asked member holds at receipt; its driver fills it in.
	WAL WAL
}

// VoteReply answers a VoteRequest.
type VoteReply struct {
	// From is the voter's volume, and Term that of the request.
	From string
	Term int64
	// Granted says that the voter promised the term and receives no more WAL.
	Granted bool
	// Vetoed says that no candidate may win now: the voter leads, or it promised a
	// primary not to be elected.
	Vetoed bool
	// Competes says that the voter is a candidate itself, to which the other one yields.
	Competes bool
	// Known is the age of the newest record that the voter has read.
	Known lease.Age
	// Promised and Timeline are the highest ones that the voter knows of.
	Promised, Timeline int64
	WAL                WAL
	// NoFailover says that the voter does not lead.
	NoFailover       bool
	SystemIdentifier string
}

// VoterSilent says that the member with that volume, which was asked for its vote, has
// answered nothing for Timing.Silence: not one of several questions before that. Its vote
// counts if it comes.
type VoterSilent struct {
	Volume string
	// Term of the candidacy.
	Term int64
}

// isAbove reports whether the voter knows of a term or timeline that a candidacy for
// these is not above.
func (r VoteReply) isAbove(term, timeline int64) bool {
	return r.Timeline >= timeline || r.Promised > term
}

// Promoted says that the server writes the timeline of Promote.
type Promoted struct{ Term, Timeline int64 }

// ServerFailed says that the server of a term cannot be promoted, ended, or hangs.
type ServerFailed struct{ Term int64 }

// Received says that the receiver is about to write a timeline to the volume.
type Received struct{ Timeline int64 }

// Streamed says that another member received a record of the timeline.
type Streamed struct{ Timeline int64 }

// Acknowledged says up to where every commit of the primary was acknowledged: what
// it has flushed, and in synchronous mode what its quorum has flushed.
type Acknowledged struct{ Position lease.Position }

// RewindBegun says that the data directory is about to be rewound or replaced.
type RewindBegun struct{}

// RewindEnded says that the data directory is complete again, with the system
// identifier and the timelines of its source.
type RewindEnded struct {
	SystemIdentifier string
	Timelines        []int64
}

// ConfirmRequest asks a member to promise not to be elected.
type ConfirmRequest struct {
	// From is the primary's volume, and Term its term.
	From string
	Term int64
	// Sent is the primary's clock at the send; the answer repeats it.
	Sent time.Duration
}

// ConfirmReply answers a ConfirmRequest.
type ConfirmReply struct {
	From      string
	Term      int64
	Sent      time.Duration
	Confirmed bool
	// Promised is for how long from its receipt the member is not elected; 0 for the
	// default duration of the Lease.
	Promised time.Duration
}

// SwitchoverRequest asks the primary to shut down in order and to release the
// Lease. The target is the volume of a member that is alive, streams and is not
// being deleted, as the driver found; empty for any.
type SwitchoverRequest struct {
	Target string
	// Stops says that the server stops in any case: its Lease need not have been renewed
	// just now, as that of a pod which the API server does not know any more.
	Stops bool
}

// ServerStopped says that every process of the server is gone after StopServer.
// End is the end of its shutdown checkpoint.
type ServerStopped struct{ End lease.Position }

// MembersWanted asks the primary to change the volumes that may lead and the
// quorum, one safe step at a time. A nil quorum is asynchronous mode.
type MembersWanted struct {
	Volumes []string
	Quorum  *lease.Quorum
}

// QuorumSet answers the SetQuorum of that ID: every process of the server uses the
// quorum, and the quorum has flushed everything that was acknowledged before.
type QuorumSet struct{ ID int64 }

// ForceRequest is a person's one-time request that this member leads with what it
// has, whatever other members hold. The driver repeats it until Persistent has its
// ID, which must not be empty.
type ForceRequest struct{ ID string }

// Held says why what this member's volume holds is not known, or may not be used, so
// that the member does not lead and, unless Votes is set, does not vote either. An empty
// reason ends it.
type Held struct {
	Reason string
	// Votes says that what the volume holds is known, and that it takes records: the
	// member votes all the same.
	Votes bool
}

// LimitsWanted are the limits of failover and the timing, as the cluster declares them now.
type LimitsWanted struct {
	NoFailover bool
	MaxLag     uint64
	// Timing of the Lease; the zero value leaves it.
	Timing lease.Timing
}

// LeaseChanged says that the Lease may be free: it is read at once.
type LeaseChanged struct{}

func (Tick) isInput()              {}
func (LeaseChanged) isInput()      {}
func (Held) isInput()              {}
func (LimitsWanted) isInput()      {}
func (LeaseRead) isInput()         {}
func (LeaseWritten) isInput()      {}
func (ReceiverStopped) isInput()   {}
func (VoteRequest) isInput()       {}
func (VoteReply) isInput()         {}
func (VoterSilent) isInput()       {}
func (Promoted) isInput()          {}
func (ServerFailed) isInput()      {}
func (Received) isInput()          {}
func (Streamed) isInput()          {}
func (Acknowledged) isInput()      {}
func (RewindBegun) isInput()       {}
func (RewindEnded) isInput()       {}
func (ConfirmRequest) isInput()    {}
func (ConfirmReply) isInput()      {}
func (SwitchoverRequest) isInput() {}
func (ServerStopped) isInput()     {}
func (MembersWanted) isInput()     {}
func (QuorumSet) isInput()         {}
func (ForceRequest) isInput()      {}
