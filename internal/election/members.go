package election

import (
	"slices"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// acceptMembers takes a wish that leaves the primary in the quorum.
func (s *State) acceptMembers(in MembersWanted) {
	if q := in.Quorum; q != nil && (q.Validate() != nil || !slices.Contains(q.Volumes, s.Disk.VolumeID)) {
		return
	}
	s.wanted = &in
}

// isChangeDue reports whether the members on the Lease are to be changed now.
func (s State) isChangeDue() bool {
	_, _, changed := s.nextMembers()
	return changed
}

// nextMembers are the volumes and the quorum that the Lease names next. While the
// server is told another quorum, nothing is changed: which one it uses is unknown.
func (s State) nextMembers() (volumes []string, quorum *lease.Quorum, changed bool) {
	if s.wanted == nil || s.setting || s.Phase != Leading {
		return s.record.Volumes, s.record.Quorum, false
	}
	quorum = s.record.Quorum
	step := lease.PlanQuorum(s.record.Quorum, s.effective, s.wanted.Quorum)
	if step.WriteLease {
		quorum = step.Record
	}
	volumes = append([]string{s.Disk.VolumeID}, s.wanted.Volumes...)
	for _, q := range []*lease.Quorum{quorum, s.effective} { // who acknowledges is asked for a vote
		if q != nil {
			volumes = append(volumes, q.Volumes...)
		}
	}
	slices.Sort(volumes)
	volumes = slices.Compact(volumes)
	same := slices.Equal(volumes, slices.Sorted(slices.Values(s.record.Volumes)))
	return volumes, quorum, step.WriteLease || !same
}

// setQuorumWhenDue tells the server its next quorum, once the Lease is written.
func (s *State) setQuorumWhenDue() []Effect {
	if s.wanted == nil || s.setting || s.Phase != Leading {
		return nil
	}
	step := lease.PlanQuorum(s.record.Quorum, s.effective, s.wanted.Quorum)
	if !step.SetServer {
		return nil
	}
	s.setting, s.effective = true, step.Effective
	return []Effect{SetQuorum{step.Effective}}
}

// recordQuorum ends a change of the server's quorum.
func (s *State) recordQuorum(in QuorumSet) {
	if s.setting && s.effective.IsSame(in.Quorum) {
		s.setting = false
	}
}
