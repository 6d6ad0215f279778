package lease

import (
	"fmt"
	"slices"
)

// Quorum is the set of volumes that acknowledge a commit in synchronous mode.
type Quorum struct {
	// Volumes are the IDs of the volumes in the set, that of the primary included.
	Volumes []string
	// Write is how many of them hold a write before it is acknowledged, the
	// primary included.
	Write int
}

// Validate reports a set that cannot acknowledge a write, with ErrInvalid.
func (q Quorum) Validate() error {
	if q.Write < 1 || q.Write > len(q.Volumes) {
		return fmt.Errorf("%w: %d of %d members cannot acknowledge a write", ErrInvalid, q.Write, len(q.Volumes))
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(q.Volumes))); len(distinct) != len(q.Volumes) {
		return fmt.Errorf("%w: a volume is in the quorum set twice", ErrInvalid)
	}
	return nil
}

// CountVotes is how many of the set have to vote in an election: at least one of
// them holds each acknowledged write.
func (q Quorum) CountVotes() int { return len(q.Volumes) - q.Write + 1 }

// IsSame reports whether both are the same set and number, or both are nil.
func (q *Quorum) IsSame(other *Quorum) bool {
	if q == nil || other == nil {
		return q == other
	}
	return q.Write == other.Write && slices.Equal(slices.Sorted(slices.Values(q.Volumes)), slices.Sorted(slices.Values(other.Volumes)))
}

// Covers reports whether the votes of a recorded quorum overlap with each write
// that the effective one acknowledges. Without a recorded quorum no vote is
// mandatory, so it covers only an effective one that guarantees nothing either.
func (q *Quorum) Covers(effective *Quorum) bool {
	if q == nil || effective == nil {
		return q == nil && effective == nil
	}
	outside := 0
	for _, volume := range effective.Volumes {
		if !slices.Contains(q.Volumes, volume) {
			outside++
		}
	}
	return effective.Write-outside >= q.Write
}

// QuorumStep is the next change on the way to another quorum: of the Lease, of the
// server, or neither when nothing is left to do.
type QuorumStep struct {
	// Record is to be written to the Lease, nil for none at all.
	Record *Quorum
	// Effective is to be set on the server, nil for none at all.
	Effective *Quorum
	// WriteLease and SetServer say which of the two is due.
	WriteLease, SetServer bool
}

// PlanQuorum is the next step from the recorded and the effective quorum to the
// wanted one. Until the last step the recorded one covers the effective one, except
// where a cluster leaves or enters synchronous mode: its guarantee ends with the
// update that removes the quorum from the Lease, and begins with the one that
// records it.
func PlanQuorum(recorded, effective, wanted *Quorum) QuorumStep {
	switch {
	case recorded.IsSame(wanted) && effective.IsSame(wanted):
		return QuorumStep{}
	case recorded == nil && wanted != nil && !effective.IsSame(wanted), recorded == nil && wanted == nil:
		return QuorumStep{Effective: wanted, SetServer: true}
	case wanted == nil, wanted.Covers(effective):
		return recordFirst(recorded, wanted)
	case recorded.Covers(wanted):
		return QuorumStep{Effective: wanted, SetServer: true}
	}
	return QuorumStep{Record: joinQuorums(recorded, effective, wanted), WriteLease: true}
}

// RedirectQuorum is the next step towards a wanted quorum while the server is on its
// way to another one, which may never have what was acknowledged before: one of its
// members can be gone. The recorded quorum covers whatever the server does meanwhile,
// so each step keeps all that it covers.
func RedirectQuorum(recorded, wanted *Quorum) QuorumStep {
	switch {
	case recorded != nil && wanted == nil:
		return QuorumStep{WriteLease: true}
	case recorded == nil || recorded.Covers(wanted):
		return QuorumStep{Effective: wanted, SetServer: true}
	}
	return QuorumStep{Record: joinQuorums(recorded, recorded, wanted), WriteLease: true}
}

// recordFirst records the wanted quorum, and then sets it.
func recordFirst(recorded, wanted *Quorum) QuorumStep {
	if !recorded.IsSame(wanted) {
		return QuorumStep{Record: wanted, WriteLease: true}
	}
	return QuorumStep{Effective: wanted, SetServer: true}
}

// joinQuorums covers both the effective and the wanted quorum.
func joinQuorums(recorded, effective, wanted *Quorum) *Quorum {
	if effective == nil {
		effective = recorded
	}
	volumes := slices.Concat(effective.Volumes, wanted.Volumes)
	slices.Sort(volumes)
	return &Quorum{Volumes: slices.Compact(volumes), Write: min(effective.Write, wanted.Write)}
}
