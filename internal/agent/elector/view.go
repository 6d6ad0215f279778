package elector

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-db/holdfast/internal/election"
)

// Leader is the member that leads by the Lease, as this member read it last and took it
// for true. It is the one view of the leader for every purpose.
type Leader struct {
	// UID and Pod are those of the pod, and Volume the ID of its volume. They are empty
	// while no member holds the Lease.
	UID, Pod, Volume string
	// Term of the Lease, 0 before the first reading, and the timeline that it reserved.
	Term, Timeline int64
	// ForcedTimeline is that of the record; see lease.Record.
	ForcedTimeline int64
}

// View is what other parts of the agent see of the election.
type View struct {
	// Volume is the ID of the member's volume.
	Volume string
	Phase  election.Phase
	// Term is that of the Lease that the member holds or tries to win.
	Term int64
	// Deadline is when the guard ends every process; 0 for none. It moves all the time,
	// which is no change.
	Deadline time.Duration
	// PromisedUntil is until when the member is not elected. It is no change either.
	PromisedUntil time.Duration
	// Stalled is why no member is elected, or why this one cannot take part; empty for
	// neither.
	Stalled string
	Leader  Leader
	// MayLead are the IDs of the volumes that may lead, and Quorum those of the
	// synchronous quorum, separated by commas. Write is how many of the quorum flush a
	// commit.
	MayLead, Quorum string
	Write           int
	// LeaseDuration is that of the Lease, as it is on the member's volume; 0 for the default
	// one.
	LeaseDuration time.Duration
	// Rewinding says that the data is being replaced, and SystemIdentifier is that of the
	// data, as they were recorded last.
	Rewinding        bool
	SystemIdentifier string
	// Forced is the ID of the last request by which this volume's member claimed the
	// Lease.
	Forced string
	// Fences counts how often this process has fenced its server.
	Fences int64
	// Held is why the member neither votes nor leads; empty for no reason.
	Held string
	// Renewed is when the last successful renewal of the Lease was sent, 0 for a member
	// that does not lead. It and Counts are no change.
	Renewed time.Duration
	Counts  Counts
}

// IsLeading reports whether the member's server takes writes now.
func (v View) IsLeading(now time.Duration) bool {
	return v.Phase == election.Leading && now < v.Deadline
}

// snapshot is a View with the channel that is closed when there is another one.
type snapshot struct {
	view    View
	changed chan struct{}
}

// viewStore holds the newest View. Only the loop publishes; readers take no lock.
type viewStore struct{ current atomic.Pointer[snapshot] }

func newViewStore(first View) *viewStore {
	s := &viewStore{}
	s.current.Store(&snapshot{first, make(chan struct{})})
	return s
}

// readView is the newest View, and a channel that is closed at the next change.
func (s *viewStore) readView() (View, <-chan struct{}) {
	now := s.current.Load()
	return now.view, now.changed
}

// publishView replaces the View.
func (s *viewStore) publishView(v View) {
	before := s.current.Load()
	if v == before.view {
		return
	}
	if omitMoving(v) == omitMoving(before.view) {
		s.current.Store(&snapshot{v, before.changed})
		return
	}
	s.current.Store(&snapshot{v, make(chan struct{})})
	close(before.changed)
}

func omitMoving(v View) View {
	v.Deadline, v.PromisedUntil, v.Renewed, v.Counts = 0, 0, 0, Counts{}
	return v
}
