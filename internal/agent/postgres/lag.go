package postgres

import (
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
)

// Limits of a replica's role.
const (
	// lagLimit is the lag up to which a replica serves reads.
	lagLimit = time.Second
	// silenceLimit is how long after its last answer a primary's silence may
	// stay unexplained.
	silenceLimit = 1500 * time.Millisecond
	// sampleGap between two samples is so long that the newer one's position
	// may be much older than its answer.
	sampleGap = 1500 * time.Millisecond
)

// sample is a position that the primary had reached at a time.
type sample struct {
	at       time.Duration
	position uint64
}

// lagTracker tells a replica's lag from samples of its primary's position. An
// idle primary is no lag. The zero value knows nothing.
type lagTracker struct {
	history []sample // rising in both; what is replayed is forgotten
	last    time.Duration
	newest  uint64
	// caughtUp: the replica has replayed a sample since the history began.
	// Before, how old its data is cannot be known.
	caughtUp bool
	begun    bool
}

// recordSample takes in that the primary had reached position at a time.
func (t *lagTracker) recordSample(at time.Duration, position uint64) {
	if t.begun && position < t.newest { // another primary's
		*t = lagTracker{}
	}
	if !t.begun || position > t.newest {
		reached := at
		if t.begun && at-t.last > sampleGap {
			reached = t.last
		}
		t.history = append(t.history, sample{reached, position})
		t.newest = position
	}
	t.begun, t.last = true, at
}

// lagReading is a lag, if it is known.
type lagReading struct {
	Lag   time.Duration
	Known bool
}

// readLag at a time of a replica that has replayed up to a position.
func (t *lagTracker) readLag(now time.Duration, replayed uint64) lagReading {
	for len(t.history) > 0 && t.history[0].position <= replayed {
		t.history = t.history[1:]
		t.caughtUp = true
	}
	switch {
	case !t.caughtUp:
		return lagReading{}
	case len(t.history) == 0:
		return lagReading{Known: true}
	default:
		return lagReading{now - t.history[0].at, true}
	}
}

// primaryView is what a replica knows of its primary.
type primaryView int

const (
	// viewServing: it answers and takes writes.
	viewServing primaryView = iota + 1
	// viewDown: it surely takes no writes.
	viewDown
	// viewSilent: it does not answer, since a moment.
	viewSilent
	// viewCutOff: it does not answer, and may well take writes.
	viewCutOff
)

// chooseRole says whether a replica serves reads. While the primary is down,
// nothing new is written: who was close to it still is.
func chooseRole(before string, serving bool, view primaryView, lag lagReading) string {
	switch {
	case !serving, view == viewCutOff:
		return v1alpha1.RoleMember
	case view == viewDown, view == viewSilent:
		return before
	case lag.Known && lag.Lag < lagLimit:
		return v1alpha1.RoleReplica
	default:
		return v1alpha1.RoleMember
	}
}

// silence follows a primary that does not answer. The zero value is none.
type silence struct {
	since   time.Duration // the last answer
	checked time.Duration // when the Lease was checked last
	version string        // of the Lease at the first check
	view    primaryView
	// gone: what answers at its address says that no agent is there. An
	// address may be old.
	gone bool
}

// mustCheck says whether to check the Lease now.
func (s silence) mustCheck(now time.Duration) bool {
	return s.checked == 0 || now-s.checked >= time.Second
}

// recordLease takes in a check of the Lease. A write to it since the silence began
// proves that its holder is alive; one that is long due, that it is not. In
// between the replica stays what it was for a moment only.
func (s silence) recordLease(now time.Duration, version string, age time.Duration) silence {
	if s.checked == 0 {
		s.version = version
	}
	s.checked = now
	switch {
	case version != s.version:
		s.view = viewCutOff
	case s.gone:
		s.view = viewDown
	case age > 2*leaseclient.LeaseRenewal:
		s.view = viewDown
	case now-s.since >= silenceLimit:
		s.view = viewCutOff
	default:
		s.view = viewSilent
	}
	return s
}

// recordUnreadable takes in that the Lease could not be read: a replica that
// reaches neither the primary nor the API server is the one that is cut off.
func (s silence) recordUnreadable(now time.Duration) silence {
	s.checked = now
	if !s.gone && now-s.since >= silenceLimit {
		s.view = viewCutOff
	}
	return s
}
