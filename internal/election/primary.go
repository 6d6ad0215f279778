package election

import (
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// fence ends the server and the member's leadership.
func (s *State) fence() []Effect {
	s.follow()
	return []Effect{Fence{}}
}

// follow makes a member whose server is gone a standby.
func (s *State) follow() {
	s.Phase, s.following, s.writing = Standby, 0, false
	s.confirmed, s.asked, s.readable = nil, nil, false
	s.wanted, s.effective, s.setting, s.successor = nil, nil, false, ""
}

// finishPromotion makes the winner of a term its primary.
func (s *State) finishPromotion(in Promoted) []Effect {
	if s.Phase != Promoting || in.Term != s.term || in.Timeline != s.timeline {
		return nil
	}
	s.Phase = Leading
	return s.stall("")
}

// endFailedTerm ends a term whose server does not serve. The Lease expires: nothing
// is known of how far the server came.
func (s *State) endFailedTerm(in ServerFailed) []Effect {
	if !s.IsPrimary() || in.Term != s.term {
		return nil
	}
	return s.fence()
}

// recordStreamed records that a second member follows the primary's timeline.
func (s *State) recordStreamed(in Streamed) {
	if s.Phase == Leading && in.Timeline == s.timeline {
		s.reached = in.Timeline
	}
}

func (s *State) recordAcknowledged(in Acknowledged) {
	if s.Phase == Leading && in.Position.Timeline == s.timeline {
		s.acknowledged = in.Position
	}
}

func (s *State) tickPrimary(now time.Duration) []Effect {
	switch {
	case s.Phase == Releasing && now >= s.stopBy:
		s.follow()
		return nil
	case s.Phase == Releasing:
		return s.renewWhenDue(now)
	case s.Phase == Ending && now >= s.stopBy:
		return s.fence()
	case s.Phase == Leading && now >= s.deadlines.Soft:
		return s.beginStop(now)
	}
	return append(s.renewWhenDue(now), s.askConfirmations(now)...)
}

// renewWhenDue renews, or reads the Lease first if the outcome of the last write is
// unknown. A release is a renewal that is due at once.
func (s *State) renewWhenDue(now time.Duration) []Effect {
	due := now-s.writeSent >= s.Config.Timing.Renewal() || s.Phase == Releasing || s.isChangeDue()
	if s.writing || s.reading || !due && !s.outage {
		return nil
	}
	if s.outage {
		return s.startReading(now)
	}
	return s.renew(now)
}

// renew writes what is due: the release, a change of the members, or the same
// record again.
func (s *State) renew(now time.Duration) []Effect {
	record, err := s.nextRecord()
	if err != nil {
		return s.fence()
	}
	s.writing, s.writeSent, s.pending = true, now, record
	return []Effect{WriteLease{Base: s.version, Record: record, Sent: now}}
}

func (s *State) nextRecord() (lease.Record, error) {
	if s.Phase == Releasing {
		return s.record.Release(s.Config.UID, s.term, s.end, s.successor)
	}
	record, err := s.record.Renew(s.Config.UID, s.term, lease.Progress{Reached: s.reached, Acknowledged: s.acknowledged})
	if err != nil {
		return record, err
	}
	volumes, quorum, changed := s.nextMembers()
	if !changed {
		return record, nil
	}
	next, err := record.ChangeMembers(s.Config.UID, s.term, volumes, quorum)
	if err != nil {
		s.wanted = nil // a wrong wish does not end a renewal
		return record, nil
	}
	return next, nil
}

func (s *State) wroteRenewal(now time.Duration, w LeaseWritten) []Effect {
	switch w.Answer {
	case lease.Done:
		s.version, s.record, s.renewed = w.Version, s.pending, w.Sent
		effects := append(s.recordKnown(s.record), s.setQuorumWhenDue()...)
		return append(s.extend(w.Sent), effects...)
	case lease.Conflict, lease.Missing:
		return s.startReading(now)
	}
	return nil
}

// extend moves the deadlines to those of a request that was sent then, never back.
func (s *State) extend(sent time.Duration) []Effect {
	extended := s.Config.Timing.Deadlines(sent)
	if extended.Fence <= s.deadlines.Fence {
		return nil
	}
	s.deadlines = extended
	return []Effect{ExtendGuard{s.deadlines.Fence}}
}

// wroteRelease ends the term, or reads the Lease to try again.
func (s *State) wroteRelease(now time.Duration, w LeaseWritten) []Effect {
	switch w.Answer {
	case lease.Conflict, lease.Missing:
		return s.startReading(now)
	case lease.Unanswered:
		return nil
	case lease.Done:
		if !s.pending.IsReleased() { // a renewal that was on its way
			s.version, s.record = w.Version, s.pending
			return s.renewWhenDue(now)
		}
	}
	s.follow()
	return nil
}

// readAsPrimary continues only with the Lease that this member wrote. One that was
// deleted or emptied is written again, by its holder alone: no member can have been
// elected by it while this one's deadline has not passed.
func (s *State) readAsPrimary(now time.Duration, r lease.Reading) []Effect {
	own := r.Record.HolderUID == s.Config.UID && r.Record.Term == s.term && r.Record.Validate() == nil
	emptied := r.Answer == lease.Missing || r.Record.Term == 0 && r.Record.HolderUID == ""
	switch {
	case r.Answer != lease.Done && r.Answer != lease.Missing:
		return nil
	case own, emptied && now < s.deadlines.Fence:
		s.version = r.Version
		if r.Answer == lease.Missing {
			s.version = lease.Version{}
		}
		s.adoptRevision(r.Record)
		return s.renew(now)
	case s.Phase == Releasing:
		s.follow()
		return nil
	}
	return s.fence()
}

// adoptRevision learns whether a change of the members whose outcome was unknown is
// on the Lease. Members that have read it take no earlier revision for this Lease.
func (s *State) adoptRevision(r lease.Record) {
	newest := r.Revision
	if r.Term == 0 { // deleted or emptied, perhaps after a change that was done
		newest = s.pending.Revision
	}
	switch {
	case newest <= s.record.Revision:
	case r.Revision == s.pending.Revision && !s.pending.IsReleased():
		s.record = s.pending
	default:
		s.record.Revision = newest + 1
	}
}

// beginSwitchover shuts down in order, if the Lease was renewed just now.
func (s *State) beginSwitchover(now time.Duration, in SwitchoverRequest) []Effect {
	quorum := s.record.Quorum
	switch {
	case s.Phase != Leading:
		return []Effect{RefuseSwitchover{"this member is not the primary"}}
	case in.Target == s.Disk.VolumeID:
		return []Effect{RefuseSwitchover{"the target is the primary"}}
	case in.Target != "" && (!s.record.MayLead(in.Target) || quorum != nil && !slices.Contains(quorum.Volumes, in.Target)):
		return []Effect{RefuseSwitchover{"the target's volume is not one that may lead"}}
	case s.outage || now-s.renewed > 2*s.Config.Timing.Renewal():
		return []Effect{RefuseSwitchover{"the Lease was not renewed just now"}}
	}
	s.successor = in.Target
	return s.beginStop(now)
}

func (s *State) beginStop(now time.Duration) []Effect {
	s.Phase, s.stopBy = Ending, now+s.Config.Timing.Duration()/2
	return []Effect{StopServer{}}
}

// beginRelease gives the Lease up once no process of the server is left. A renewal
// that is on its way is waited for: the release builds on its outcome.
func (s *State) beginRelease(now time.Duration, end lease.Position) []Effect {
	if s.Phase != Ending {
		return nil
	}
	if end.Timeline != s.timeline {
		return s.fence()
	}
	s.Phase, s.following, s.end = Releasing, 0, end
	s.stopBy = now + s.Config.Timing.Duration()
	return s.renewWhenDue(now)
}
