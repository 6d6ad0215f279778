package lease

import (
	"fmt"
	"time"
)

// Limits of a Lease's duration.
const (
	DefaultDuration = 10 * time.Second
	MinDuration     = 10 * time.Second
	MaxDuration     = 60 * time.Second
)

// Timing holds the times of a Lease. All of them scale with its duration.
type Timing struct{ duration time.Duration }

// NewTiming is the timing of a Lease of that duration, from MinDuration to
// MaxDuration. Zero is the default.
func NewTiming(duration time.Duration) (Timing, error) {
	if duration == 0 {
		duration = DefaultDuration
	}
	if duration < MinDuration || duration > MaxDuration {
		return Timing{}, fmt.Errorf("leaseDuration %s is not within %s and %s", duration, MinDuration, MaxDuration)
	}
	return Timing{duration}, nil
}

// LongestTiming is the timing of the longest of several durations. One that is not
// known, or is out of the limits, counts as the nearest limit.
func LongestTiming(t Timing, durations ...time.Duration) Timing {
	for _, d := range durations {
		t.duration = max(t.duration, min(d, MaxDuration))
	}
	return t
}

// Within is the timing of the shorter of both durations. Zero is none, and limits
// nothing.
func (t Timing) Within(d time.Duration) Timing {
	if d > 0 && d < t.duration {
		return Timing{d}
	}
	return t
}

// Duration is how long a Lease has to be observed without a renewal to be expired.
func (t Timing) Duration() time.Duration { return t.duration }

// Renewal is the time between two renewals, and about that between two readings: see
// Expiry.UntilReading.
func (t Timing) Renewal() time.Duration { return t.duration / 5 }

// RequestTimeout is how long an answer of the API server is waited for.
func (t Timing) RequestTimeout() time.Duration { return t.duration * 3 / 20 }

// ReadGap is the longest time between two readings that count as uninterrupted.
func (t Timing) ReadGap() time.Duration { return t.duration * 2 / 5 }

// Soft is how long after the send of the last successful renewal the holder
// begins to shut its database down.
func (t Timing) Soft() time.Duration { return t.duration * 3 / 5 }

// Fence is how long after the send of the last successful renewal no process of
// the holder may be left that can commit.
func (t Timing) Fence() time.Duration { return t.duration * 7 / 10 }

// VoteWait is how long a candidate waits for peers that do not answer.
func (t Timing) VoteWait() time.Duration { return t.duration / 5 }

// Silence is how long a member answers nothing at all, however often it is asked, until
// a candidate takes it for one that is cut off or down.
func (t Timing) Silence() time.Duration { return t.duration / 2 }

// SilentWait is how long a candidate waits for the vote of a member that was silent for
// that long.
func (t Timing) SilentWait() time.Duration { return t.duration / 20 }

// Deadlines are two moments of the monotonic clock.
type Deadlines struct{ Soft, Fence time.Duration }

// Deadlines are those of a holder whose last successful renewal was sent then.
func (t Timing) Deadlines(sent time.Duration) Deadlines {
	return Deadlines{Soft: sent + t.Soft(), Fence: sent + t.Fence()}
}
