// Package lease knows the Lease of a primary: what it records, when it has
// expired, which changes of it are allowed, and until when its holder may write.
// All of it is computed from arguments; no client, clock or file is used.
package lease

import (
	"errors"
	"fmt"
	"slices"
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

// Quorum is the set of volumes that acknowledge a commit in synchronous mode.
type Quorum struct {
	// Volumes are the IDs of the volumes in the set, that of the primary included.
	Volumes []string
	// Write is how many of them hold a write before it is acknowledged, the
	// primary included.
	Write int
}

// CountVotes is how many of the set have to vote in an election: at least one of
// them holds each acknowledged write.
func (q Quorum) CountVotes() int { return len(q.Volumes) - q.Write + 1 }

// Record is what the Lease says.
type Record struct {
	// HolderUID is the UID of the pod that may write, empty for none.
	HolderUID string
	// HolderPod is the name of that pod.
	HolderPod string
	// HolderVolume is the ID of its volume.
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
	// SystemIdentifier is that of the database.
	SystemIdentifier string
	// Volumes are the IDs of the volumes that may lead.
	Volumes []string
	// Quorum is set in synchronous mode only. It is never changed in place.
	Quorum *Quorum
	// Shutdown is the end of the shutdown checkpoint of a holder that gave the
	// Lease up, nil if it did not. It is never changed in place.
	Shutdown *Position
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
	case r.SystemIdentifier == "":
		return fmt.Errorf("%w: the system identifier is missing", ErrInvalid)
	case len(r.Volumes) == 0 || slices.Contains(r.Volumes, ""):
		return fmt.Errorf("%w: the volumes that may lead are missing", ErrInvalid)
	case r.HolderUID != "" && r.HolderVolume == "":
		return fmt.Errorf("%w: the holder's volume is missing", ErrInvalid)
	case r.HolderUID != "" && r.Shutdown != nil:
		return fmt.Errorf("%w: a Lease with a holder has a shutdown position", ErrInvalid)
	}
	return r.validateQuorum()
}

func (r Record) validateQuorum() error {
	if r.Quorum == nil {
		return nil
	}
	if r.Quorum.Write < 1 || r.Quorum.Write > len(r.Quorum.Volumes) {
		return fmt.Errorf("%w: %d of %d members cannot acknowledge a write", ErrInvalid, r.Quorum.Write, len(r.Quorum.Volumes))
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(r.Quorum.Volumes)))
	if len(distinct) != len(r.Quorum.Volumes) {
		return fmt.Errorf("%w: a volume is in the quorum set twice", ErrInvalid)
	}
	return nil
}

// IsReleased reports whether the last holder shut down in order and gave the
// Lease up. An empty holder without a shutdown position is an edited Lease.
func (r Record) IsReleased() bool { return r.HolderUID == "" && r.Shutdown != nil }

// MayLead reports whether the volume is one of those that may lead.
func (r Record) MayLead(volume string) bool { return slices.Contains(r.Volumes, volume) }
