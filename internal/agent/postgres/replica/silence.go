package replica

import (
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
)

// silenceLimit is how long after its last answer a primary's silence may stay
// unexplained.
const silenceLimit = 1500 * time.Millisecond

// silence follows a primary that does not answer. The zero value is none.
type silence struct {
	since   time.Duration // the last answer
	checked time.Duration // when the Lease was checked last
	version string        // of the Lease at the first check
	view    PrimaryView
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
		s.view = ViewCutOff
	case s.gone:
		s.view = ViewDown
	case age > 2*leaseclient.LeaseRenewal:
		s.view = ViewDown
	case now-s.since >= silenceLimit:
		s.view = ViewCutOff
	default:
		s.view = ViewSilent
	}
	return s
}

// recordUnreadable takes in that the Lease could not be read: a replica that
// reaches neither the primary nor the API server is the one that is cut off.
func (s silence) recordUnreadable(now time.Duration) silence {
	s.checked = now
	if !s.gone && now-s.since >= silenceLimit {
		s.view = ViewCutOff
	}
	return s
}
