package elector

import (
	"context"
	"time"

	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// Server is the member's PostgreSQL. Its methods, apart from ReadWAL, only begin what
// they are named for and return at once; the outcome is reported to Reports. They are
// called in the order in which they are meant, and each replaces what was begun before
// and contradicts it. Fence alone may be called while another one runs.
type Server interface {
	// ReadWAL measures what the volume holds by now: what is flushed, and all timelines
	// that the data went through. It may take time, within the context.
	ReadWAL(ctx context.Context) (election.WAL, error)
	// StopReceiver stops receiving WAL and answers once with
	// Reports.ReportReceiverStopped and the same ID. Only Follow starts it again.
	StopReceiver(id int64)
	// Follow streams from the leader, as a standby. What it receives must not be
	// written to the volume before Reports.RecordTimeline has returned for its
	// timeline, nor data replaced before Reports.BeginRewind has.
	Follow(leader Leader)
	// Promote makes the server the primary on exactly that timeline, and answers with
	// ReportPromoted or ReportFailed. The context ends when the term does. After that
	// nothing may be promoted any more, whatever has begun.
	Promote(ctx context.Context, p Promotion)
	// SetQuorum sets the quorum of a primary, nil for asynchronous mode, and answers
	// with ReportQuorumSet once every process of the server uses it and the quorum has
	// flushed all that was acknowledged before. A higher ID replaces it.
	SetQuorum(ctx context.Context, id int64, quorum *lease.Quorum)
	// StopServer begins an orderly, fast shutdown of the term's server and answers with
	// ReportStopped when no process of it is left.
	StopServer(term int64)
	// Fence kills every process that could commit, before it returns. It waits for
	// nothing, and may be called again. It answers with ReportFenced and the same ID
	// when none of them is left. What was asked of the server before starts nothing.
	Fence(id int64)
}

// Promotion is what a term that was won asks of the server.
type Promotion struct {
	Term int64
	// Timeline is the one that the term reserved.
	Timeline int64
	// Quorum is in effect before the promotion; nil is asynchronous mode.
	Quorum *lease.Quorum
}

// Guard kills every process of the container at its deadline, whatever the agent does.
// Both methods return at once. They fail if the deadline has passed: the guard is about
// to act then.
type Guard interface {
	// Extend moves the deadline to a moment of CLOCK_BOOTTIME, never back.
	Extend(until time.Duration) bool
	// Clear removes the deadline: no process is left that could commit.
	Clear() bool
}
