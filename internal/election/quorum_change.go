package election

import (
	"slices"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// quorumChange is a primary's way to the wanted quorum, and to the wanted volumes
// that may lead.
type quorumChange struct {
	wanted    *MembersWanted
	effective *lease.Quorum // on the server
	setting   bool          // the server is being given another quorum
	settingID int64         // of the last SetQuorum
}

// beginWith forgets what was wanted. The IDs go on: answers to earlier changes may
// still come.
func (c *quorumChange) beginWith(effective *lease.Quorum) {
	c.wanted, c.effective, c.setting = nil, effective, false
}

// acceptMembers takes a wish that leaves the primary in the quorum.
func (c *quorumChange) acceptMembers(m member, in MembersWanted) {
	if q := in.Quorum; q != nil && (q.Validate() != nil || !slices.Contains(q.Volumes, m.Disk.VolumeID)) {
		return
	}
	c.wanted = &in
}

// rejectMembers forgets a wish that the Lease cannot record.
func (c *quorumChange) rejectMembers() { c.wanted = nil }

// isDue reports whether the members on the Lease are to be changed now.
func (c quorumChange) isDue(m member) bool {
	_, _, changed := c.nextMembers(m)
	return changed
}

// planStep is the next step to the wanted quorum.
func (c quorumChange) planStep(m member) lease.QuorumStep {
	recorded := m.lease.record.Quorum
	switch {
	case c.wanted == nil || m.Phase != Leading:
		return lease.QuorumStep{}
	case !c.setting:
		return lease.PlanQuorum(recorded, c.effective, c.wanted.Quorum)
	case c.effective.IsSame(c.wanted.Quorum):
		return lease.QuorumStep{} // the server is on its way there
	}
	return lease.RedirectQuorum(recorded, c.wanted.Quorum)
}

// nextMembers are the volumes and the quorum that the Lease names next.
func (c quorumChange) nextMembers(m member) (volumes []string, quorum *lease.Quorum, changed bool) {
	record := m.lease.record
	if c.wanted == nil || m.Phase != Leading {
		return record.Volumes, record.Quorum, false
	}
	quorum = record.Quorum
	step := c.planStep(m)
	if c.setting && !step.WriteLease { // members leave once the server does without them
		return record.Volumes, quorum, false
	}
	if step.WriteLease {
		quorum = step.Record
	}
	volumes = append([]string{m.Disk.VolumeID}, c.wanted.Volumes...)
	for _, q := range []*lease.Quorum{quorum, c.effective} { // who acknowledges is asked for a vote
		if q != nil {
			volumes = append(volumes, q.Volumes...)
		}
	}
	slices.Sort(volumes)
	volumes = slices.Compact(volumes)
	same := slices.Equal(volumes, slices.Sorted(slices.Values(record.Volumes)))
	return volumes, quorum, step.WriteLease || !same
}

// setServerWhenDue gives the server its next quorum, once the Lease is written.
func (c *quorumChange) setServerWhenDue(m member) []Effect {
	step := c.planStep(m)
	if !step.SetServer {
		return nil
	}
	c.setting, c.settingID, c.effective = true, c.settingID+1, step.Effective
	return []Effect{SetQuorum{c.settingID, step.Effective}}
}

// recordQuorum ends a change of the server's quorum.
func (c *quorumChange) recordQuorum(in QuorumSet) {
	if in.ID == c.settingID {
		c.setting = false
	}
}
