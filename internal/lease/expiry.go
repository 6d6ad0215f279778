package lease

import "time"

// Answer is what came back for a request to the API server.
type Answer int

// The answers. Every one but Unanswered shows that the API server is reached.
const (
	// Unanswered: a timeout, a broken connection or an error of the server. A
	// write may have been done.
	Unanswered Answer = iota
	// Done: the Lease was read or written.
	Done
	// Missing: there is no such Lease (404).
	Missing
	// Conflict: the Lease is not the one that was read before (409).
	Conflict
	// Forbidden: the request is not allowed (403).
	Forbidden
)

// IsReached reports whether the API server answered.
func (a Answer) IsReached() bool { return a != Unanswered }

// Version names one state of one Lease.
type Version struct {
	// UID is that of the Lease.
	UID string
	// Resource is its resource version; only equality has a meaning.
	Resource string
}

// Reading is the answer to one reading. Times are of the monotonic clock.
type Reading struct {
	Answer   Answer
	Version  Version
	Record   Record
	Sent     time.Duration
	Received time.Duration
}

// Expiry counts how long the Lease was read without interruption and without a
// change. Its zero value, that of an agent that just started, has counted nothing.
type Expiry struct {
	counting bool
	missing  bool
	version  Version
	since    time.Duration
	last     time.Duration
	// lag is at most how long before the first of these readings the Lease changed.
	lag time.Duration
}

// RecordReading counts a reading. One without an answer, a pause in the readings,
// a renewal and another Lease start the count again.
func (e Expiry) RecordReading(r Reading, t Timing) Expiry {
	if r.Answer != Done && r.Answer != Missing {
		return Expiry{}
	}
	missing := r.Answer == Missing
	version := r.Version
	if missing {
		version = Version{}
	}
	if !e.counting || e.missing != missing || e.version != version || r.Sent-e.last > t.ReadGap() {
		// Between the first answer and the last request, the Lease did not change.
		lag := t.Renewal()
		if e.counting {
			lag = min(lag, r.Sent-e.last)
		}
		return Expiry{counting: true, missing: missing, version: version, since: r.Received, last: r.Sent, lag: lag}
	}
	e.last = max(e.last, r.Sent)
	return e
}

// HasExpired reports whether that state of the Lease was observed for its whole
// duration, and up to the last reading.
func (e Expiry) HasExpired(version Version, t Timing) bool {
	return e.counting && !e.missing && e.version == version && e.last-e.since >= t.Duration()
}

// IsLost reports whether the Lease was observed to be missing for its duration.
func (e Expiry) IsLost(t Timing) bool {
	return e.counting && e.missing && e.last-e.since >= t.Duration()
}

// UntilReading is how long after the send of the last reading the next one is due. It
// keeps close behind the holder's renewals, so that the count begins soon after the last
// one: a reading comes earlier after a renewal than the one before it, by a third of what
// that may have been late, until one shows no change and is repeated soon. The last one
// comes when the Lease would expire.
func (e Expiry) UntilReading(t Timing) time.Duration {
	switch {
	case !e.counting || e.last-e.since >= t.Duration():
		return t.Renewal()
	case e.last <= e.since: // the one that began the count
		return t.Renewal() - e.lag/3
	default:
		return min(t.Duration()/25, e.since+t.Duration()-e.last)
	}
}
