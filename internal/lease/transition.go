package lease

import (
	"errors"
	"fmt"
	"slices"
	"time"
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
	// Flushed is what the claimant holds.
	Flushed Position
	// Duration of the Lease from then on.
	Duration time.Duration
	// Free says that the claimant has observed the Lease expired or released.
	Free bool
	// Forced says that a person named the claimant: its volume joins the quorum if it
	// is not one of it.
	Forced bool
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
	case r.Quorum != nil && !slices.Contains(r.Quorum.Volumes, c.Volume) && !c.Forced:
		// A primary counts among those that acknowledge its writes.
		return r, fmt.Errorf("%w: %s is not in the quorum", ErrNotEligible, c.Volume)
	}
	if r.Quorum != nil && !slices.Contains(r.Quorum.Volumes, c.Volume) {
		joined := Quorum{Volumes: append(slices.Clone(r.Quorum.Volumes), c.Volume), Write: r.Quorum.Write}
		r.Quorum, r.Revision = &joined, r.Revision+1
	}
	r.HolderUID, r.HolderPod, r.HolderVolume = c.UID, c.Pod, c.Volume
	r.Term, r.Timeline, r.HighestTimeline = c.Term, c.Timeline, c.Timeline
	r.Shutdown, r.Successor, r.Duration = nil, "", c.Duration
	if c.Forced {
		r.ForcedTimeline = c.Timeline
	}
	if r.Quorum == nil || c.Forced {
		// In synchronous mode the position stays: a quorum has flushed it, and the
		// winner may hold more than that.
		r.Acknowledged = c.Flushed
	}
	return r, nil
}

// Progress is what a holder knows at a renewal.
type Progress struct {
	// Reached is the timeline of this term as soon as a second member received it,
	// else 0.
	Reached int64
	// Acknowledged is that of the Record; the zero value leaves it.
	Acknowledged Position
	// Duration of the Lease from then on; 0 leaves it.
	Duration time.Duration
}

// Renew is the record after a renewal by the holder.
func (r Record) Renew(uid string, term int64, p Progress) (Record, error) {
	if uid == "" || r.HolderUID != uid || r.Term != term {
		return r, ErrNotHolder
	}
	r.ReachedTimeline = max(r.ReachedTimeline, p.Reached)
	if p.Acknowledged.Newer(r.Acknowledged) {
		r.Acknowledged = p.Acknowledged
	}
	if p.Duration > 0 {
		r.Duration = p.Duration
	}
	return r, nil
}

// ChangeMembers is the record after its holder changed the volumes that may lead
// and the quorum. The holder itself stays one of both.
func (r Record) ChangeMembers(uid string, term int64, volumes []string, quorum *Quorum) (Record, error) {
	if uid == "" || r.HolderUID != uid || r.Term != term {
		return r, ErrNotHolder
	}
	changed := r
	changed.Volumes, changed.Quorum, changed.Revision = slices.Clone(volumes), quorum, r.Revision+1
	if !changed.MayLead(r.HolderVolume) || quorum != nil && !slices.Contains(quorum.Volumes, r.HolderVolume) {
		return r, fmt.Errorf("%w: the holder's volume %s is left out", ErrInvalid, r.HolderVolume)
	}
	if err := changed.Validate(); err != nil {
		return r, err
	}
	return changed, nil
}

// Release is the record after its holder shut down in order. The position is the
// end of the shutdown checkpoint. A successor, if one is named, is the only volume
// that may take the Lease at once.
func (r Record) Release(uid string, term int64, end Position, successor string) (Record, error) {
	if uid == "" || r.HolderUID != uid || r.Term != term {
		return r, ErrNotHolder
	}
	if end.Timeline != r.Timeline {
		return r, fmt.Errorf("%w: the shutdown position is on timeline %d, not on %d", ErrInvalid, end.Timeline, r.Timeline)
	}
	r.HolderUID, r.HolderPod = "", ""
	r.Shutdown, r.Successor = &end, successor
	if end.Newer(r.Acknowledged) {
		r.Acknowledged = end
	}
	return r, nil
}
