// Package lease knows the Lease of a primary: what it records, when it has
// expired, which changes of it are allowed, and until when its holder may write.
// All of it is computed from arguments; no client, clock or file is used.
package lease

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Position is a place in the WAL. The zero value is unknown.
type Position struct {
	// Timeline is the timeline's number, from 1.
	Timeline int64
	// LSN is the position in bytes.
	LSN uint64
}

// Newer reports whether p is later than q, by timeline and then by position.
func (p Position) Newer(q Position) bool {
	if p.Timeline != q.Timeline {
		return p.Timeline > q.Timeline
	}
	return p.LSN > q.LSN
}

// Record is what the Lease says.
type Record struct {
	// HolderUID is the UID of the pod that may write, empty for none.
	HolderUID string
	// HolderPod is the name of that pod.
	HolderPod string
	// HolderVolume is the ID of its volume; of a Lease that was given up, that of the
	// last holder.
	HolderVolume string
	// Term counts the changes of the holder, from 1.
	Term int64
	// Timeline is reserved for the promotion of this term.
	Timeline int64
	// HighestTimeline is the highest timeline that any term reserved.
	HighestTimeline int64
	// ReachedTimeline is the newest timeline that a second member received. A
	// member without it does not lead.
	ReachedTimeline int64
	// ForcedTimeline is the newest timeline that began by a person's request, whatever
	// other members held; 0 for none.
	ForcedTimeline int64
	// SystemIdentifier is that of the database.
	SystemIdentifier string
	// Duration is how long the holder's last write asks to be waited for without
	// another one; 0 for DefaultDuration. It is in whole seconds.
	Duration time.Duration
	// Revision counts the changes of Volumes and Quorum.
	Revision int64
	// Volumes are the IDs of the volumes that may lead.
	Volumes []string
	// Quorum is set in synchronous mode only. It is never changed in place.
	Quorum *Quorum
	// Acknowledged is a position up to which every commit was acknowledged at the
	// last renewal: what the holder, or in synchronous mode the quorum, has flushed.
	Acknowledged Position
	// Shutdown is the end of the shutdown checkpoint of a holder that gave the
	// Lease up, nil if it did not. It is never changed in place.
	Shutdown *Position
	// Successor is the only volume that may take a released Lease at once; empty
	// for any of them.
	Successor string
}

// ErrInvalid says that a record was not written by an agent, or was edited.
var ErrInvalid = errors.New("the Lease's record is invalid")

// Validate reports what contradicts itself in a record.
func (r Record) Validate() error {
	switch {
	case r.Term < 1:
		return fmt.Errorf("%w: term %d is below 1", ErrInvalid, r.Term)
	case r.Timeline < 1 || r.HighestTimeline < r.Timeline:
		return fmt.Errorf("%w: timeline %d is not within 1 and the highest reserved one, %d", ErrInvalid, r.Timeline, r.HighestTimeline)
	case r.ReachedTimeline < 1 || r.ReachedTimeline > r.HighestTimeline:
		return fmt.Errorf("%w: the reached timeline %d is not within 1 and the highest reserved one, %d", ErrInvalid, r.ReachedTimeline, r.HighestTimeline)
	case !r.isDurationValid():
		return fmt.Errorf("%w: the duration %s is not of whole seconds within %s and %s", ErrInvalid, r.Duration, MinDuration, MaxDuration)
	case r.SystemIdentifier == "":
		return fmt.Errorf("%w: the system identifier is missing", ErrInvalid)
	case len(r.Volumes) == 0 || slices.Contains(r.Volumes, ""):
		return fmt.Errorf("%w: the volumes that may lead are missing", ErrInvalid)
	}
	return errors.Join(r.validateHolder(), r.validateQuorum())
}

func (r Record) validateHolder() error {
	switch {
	case r.HolderUID != "" && r.HolderVolume == "":
		return fmt.Errorf("%w: the holder's volume is missing", ErrInvalid)
	case r.HolderUID != "" && r.Shutdown != nil:
		return fmt.Errorf("%w: a Lease with a holder has a shutdown position", ErrInvalid)
	case r.Successor != "" && r.Shutdown == nil:
		return fmt.Errorf("%w: a Lease that was not released names a successor", ErrInvalid)
	}
	return nil
}

// isDurationValid reports whether the duration is one that can be declared, or missing.
func (r Record) isDurationValid() bool {
	return r.Duration == 0 || r.Duration >= MinDuration && r.Duration <= MaxDuration && r.Duration%time.Second == 0
}

func (r Record) validateQuorum() error {
	if r.Quorum == nil {
		return nil
	}
	if err := r.Quorum.Validate(); err != nil {
		return err
	}
	for _, volume := range r.Quorum.Volumes {
		if !r.MayLead(volume) { // a candidate asks those that may lead
			return fmt.Errorf("%w: volume %s of the quorum is not one that may lead", ErrInvalid, volume)
		}
	}
	return nil
}

// IsReleased reports whether the last holder shut down in order and gave the
// Lease up. An empty holder without a shutdown position is an edited Lease.
func (r Record) IsReleased() bool { return r.HolderUID == "" && r.Shutdown != nil }

// Age orders the states of a Lease as far as its members and its holder go.
type Age struct{ Term, Revision int64 }

// IsOlder reports whether a is of an earlier term, or of earlier members in the
// same term.
func (a Age) IsOlder(b Age) bool {
	if a.Term != b.Term {
		return a.Term < b.Term
	}
	return a.Revision < b.Revision
}

// Age is that of the record.
func (r Record) Age() Age { return Age{r.Term, r.Revision} }

// Contradicts says what a record cannot be if another one was written before it:
// the Lease was edited, or the API server was restored to an earlier state. It is
// empty for a record that may follow the known one.
func (r Record) Contradicts(known Record) string {
	isOther := known.HolderUID != "" && r.HolderUID != "" && known.HolderUID != r.HolderUID
	switch {
	case r.Age().IsOlder(known.Age()):
		return "the Lease is older than what this member has read before"
	case r.Term == known.Term && (isOther || r.Timeline != known.Timeline):
		return "the Lease's term has another holder or timeline than this member has read before"
	case r.Term > known.Term && r.Timeline <= known.HighestTimeline:
		return "the Lease's term uses a timeline that was reserved before it"
	case known.SystemIdentifier != "" && r.SystemIdentifier != known.SystemIdentifier:
		return "the Lease is of another database than this member has read before"
	case r.Age() == known.Age() && !r.hasSameMembers(known):
		return "the Lease has other volumes than this member has read before, without a later revision"
	}
	return ""
}

// hasSameMembers reports whether the same volumes may lead and acknowledge.
func (r Record) hasSameMembers(other Record) bool {
	return slices.Equal(slices.Sorted(slices.Values(r.Volumes)), slices.Sorted(slices.Values(other.Volumes))) && r.Quorum.IsSame(other.Quorum)
}

// CountLag is how many bytes a position is behind what was acknowledged.
func (r Record) CountLag(p Position) uint64 {
	if p.LSN >= r.Acknowledged.LSN {
		return 0
	}
	return r.Acknowledged.LSN - p.LSN
}

// MayLead reports whether the volume is one of those that may lead.
func (r Record) MayLead(volume string) bool { return slices.Contains(r.Volumes, volume) }
