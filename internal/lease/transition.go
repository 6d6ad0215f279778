package lease

import (
	"errors"
	"fmt"
)

// Errors of a change that is refused.
var (
	// ErrNotHolder says that the Lease is held by another pod or in another term.
	ErrNotHolder = errors.New("the Lease has another holder or term")
	// ErrOldTerm says that a term is not newer than the recorded one.
	ErrOldTerm = errors.New("the term is not newer than that of the Lease")
	// ErrUsedTimeline says that a timeline was reserved before.
	ErrUsedTimeline = errors.New("the timeline was reserved before")
	// ErrNotEligible says that the volume or the database may not lead.
	ErrNotEligible = errors.New("the volume is not one that may lead")
	// ErrHeld says that the Lease is neither expired nor released.
	ErrHeld = errors.New("the Lease may still be held")
)

// Claim is what a winner writes.
type Claim struct {
	UID, Pod, Volume string
	SystemIdentifier string
	// Term is higher than that of the record.
	Term int64
	// Timeline is higher than every reserved one.
	Timeline int64
	// Free says that the claimant has observed the Lease expired or released.
	Free bool
}

// Acquire is the record after the claim. It reserves the claim's timeline in the
// same update that wins its term.
func (r Record) Acquire(c Claim) (Record, error) {
	switch {
	case !c.Free:
		return r, ErrHeld
	case c.Term <= r.Term:
		return r, fmt.Errorf("%w: %d after %d", ErrOldTerm, c.Term, r.Term)
	case c.Timeline <= r.HighestTimeline:
		return r, fmt.Errorf("%w: %d after %d", ErrUsedTimeline, c.Timeline, r.HighestTimeline)
	case !r.MayLead(c.Volume) || c.SystemIdentifier != r.SystemIdentifier:
		return r, fmt.Errorf("%w: %s", ErrNotEligible, c.Volume)
	}
	r.HolderUID, r.HolderPod, r.HolderVolume = c.UID, c.Pod, c.Volume
	r.Term, r.Timeline, r.HighestTimeline = c.Term, c.Timeline, c.Timeline
	r.Shutdown = nil
	return r, nil
}

// Renew is the record after a renewal by the holder. A reached timeline is that
// of this term as soon as a second member received it, else 0.
func (r Record) Renew(uid string, term, reached int64) (Record, error) {
	if uid == "" || r.HolderUID != uid || r.Term != term {
		return r, ErrNotHolder
	}
	r.ReachedTimeline = max(r.ReachedTimeline, reached)
	return r, nil
}

// Release is the record after its holder shut down in order. The position is the
// end of the shutdown checkpoint.
func (r Record) Release(uid string, term int64, end Position) (Record, error) {
	if uid == "" || r.HolderUID != uid || r.Term != term {
		return r, ErrNotHolder
	}
	if end.Timeline != r.Timeline {
		return r, fmt.Errorf("%w: the shutdown position is on timeline %d, not on %d", ErrInvalid, end.Timeline, r.Timeline)
	}
	r.HolderUID, r.HolderPod, r.HolderVolume = "", "", ""
	r.Shutdown = &end
	return r, nil
}

// Restore is the record to create in place of a lost Lease, by a member that does
// not hold it: it keeps all but the holder, so that it elects no member.
func (r Record) Restore() Record {
	r.HolderUID, r.HolderPod, r.HolderVolume, r.Shutdown = "", "", "", nil
	return r
}
