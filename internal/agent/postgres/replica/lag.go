package replica

import "time"

// sampleGap between two samples is so long that the newer one's position may be
// much older than its answer.
const sampleGap = 1500 * time.Millisecond

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

// Lag is how far a replica is behind its primary, if that is known.
type Lag struct {
	Behind time.Duration
	Known  bool
}

// readLag at a time of a replica that has replayed up to a position.
func (t *lagTracker) readLag(now time.Duration, replayed uint64) Lag {
	for len(t.history) > 0 && t.history[0].position <= replayed {
		t.history = t.history[1:]
		t.caughtUp = true
	}
	switch {
	case !t.caughtUp:
		return Lag{}
	case len(t.history) == 0:
		return Lag{Known: true}
	default:
		return Lag{now - t.history[0].at, true}
	}
}
