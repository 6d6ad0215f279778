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

// planQuorum is the next step to the wanted quorum.
func (s State) planQuorum() lease.QuorumStep {
	switch {
	case s.wanted == nil || s.Phase != Leading:
		return lease.QuorumStep{}
	case !s.setting:
		return lease.PlanQuorum(s.record.Quorum, s.effective, s.wanted.Quorum)
	case s.effective.IsSame(s.wanted.Quorum):
		return lease.QuorumStep{} // the server is on its way there
	}
	return lease.RedirectQuorum(s.record.Quorum, s.wanted.Quorum)
}

// nextMembers are the volumes and the quorum that the Lease names next.
func (s State) nextMembers() (volumes []string, quorum *lease.Quorum, changed bool) {
	if s.wanted == nil || s.Phase != Leading {
		return s.record.Volumes, s.record.Quorum, false
	}
	quorum = s.record.Quorum
	step := s.planQuorum()
	if s.setting && !step.WriteLease { // members leave once the server does without them
		return s.record.Volumes, quorum, false
	}
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
	step := s.planQuorum()
	if !step.SetServer {
		return nil
	}
	s.setting, s.settingID, s.effective = true, s.settingID+1, step.Effective
	return []Effect{SetQuorum{s.settingID, step.Effective}}
}

// recordQuorum ends a change of the server's quorum.
func (s *State) recordQuorum(in QuorumSet) {
	if in.ID == s.settingID {
		s.setting = false
	}
}
