package leaseclient

import "time"

// Times of the Lease.
const (
	LeaseDuration   = 10 * time.Second
	LeaseRenewal    = 2 * time.Second
	LeaseTimeout    = 1500 * time.Millisecond
	leaseReadGapMax = 4 * time.Second
)

// expiry counts how long a Lease was read, without interruption, without a change.
type expiry struct {
	counting bool
	uid      string
	version  string
	since    time.Duration
	last     time.Duration
}

// recordReading counts a successful reading. Another Lease of the same name, any write
// to it, or a pause in the readings starts the count again.
func (e expiry) recordReading(uid, version string, now time.Duration) expiry {
	if !e.counting || e.uid != uid || e.version != version || now-e.last > leaseReadGapMax {
		return expiry{counting: true, uid: uid, version: version, since: now, last: now}
	}
	e.last = now
	return e
}

// recordFailure starts the count again after a reading that failed.
func (e expiry) recordFailure() expiry { return expiry{} }

// hasPassed says whether the whole duration was observed to pass.
func (e expiry) hasPassed(duration time.Duration) bool {
	return e.counting && e.last-e.since >= duration
}

// ClaimState says who may claim a Lease.
type ClaimState int

// The states of a claim.
const (
	// ClaimUnknown: the Lease could not be read.
	ClaimUnknown ClaimState = iota
	// ClaimMissing: there is no Lease.
	ClaimMissing
	// ClaimMine: this member holds it.
	ClaimMine
	// ClaimLapsed: it names this member's pod, and this process does not hold
	// it: the claim was made by a process that is no more, or its answer was
	// lost. To be claimed again, at once.
	ClaimLapsed
	// ClaimHeld: another holds it, or may hold it still.
	ClaimHeld
	// ClaimReleased: its holder shut down in order and gave it up.
	ClaimReleased
	// ClaimExpired: its holder did not renew it for its whole duration.
	ClaimExpired
)

// claimState judges a Lease that was read.
func claimState(r Record, self string, e expiry) ClaimState {
	switch {
	case r.HolderUID == self:
		return ClaimMine
	case r.HolderUID == "" && r.ShutdownPosition != "":
		return ClaimReleased
	case e.hasPassed(r.Duration):
		return ClaimExpired
	default:
		return ClaimHeld
	}
}
