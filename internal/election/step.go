package election

import (
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// Step is what a member becomes by an input, and what it has to do. Now is a
// monotonic clock that also counts while the machine sleeps.
func Step(s State, now time.Duration, in Input) (State, []Effect) {
	var effects []Effect
	switch in := in.(type) {
	case Tick:
		effects = s.tick(now)
	case LeaseRead:
		effects = s.readLease(now, in.Reading)
	case LeaseWritten:
		effects = s.wroteLease(now, in)
	case ReceiverStopped:
		effects = s.stoppedReceiver(now, in.WAL)
	case VoteRequest:
		effects = s.answerVote(now, in)
	case VoteReply:
		effects = s.countVote(now, in)
	case Promoted:
		s.finishPromotion(in)
	case PromotionFailed:
		effects = s.failPromotion(in)
	case Received:
		effects = s.recordReceived(in.Timeline)
	case Streamed:
		s.recordStreamed(in)
	case ConfirmRequest:
		effects = s.answerConfirm(now, in)
	case ConfirmReply:
		effects = s.countConfirm(in)
	case SwitchoverRequest:
		effects = s.beginSwitchover(now)
	case ServerStopped:
		effects = s.releaseLease(now, in.End)
	}
	return s, effects
}

// finishPromotion makes the winner of a term its primary.
func (s *State) finishPromotion(in Promoted) {
	if s.Phase == Promoting && in.Term == s.term && in.Timeline == s.timeline {
		s.Phase = Leading
	}
}

// failPromotion ends a term whose winner could not be promoted.
func (s *State) failPromotion(in PromotionFailed) []Effect {
	if s.Phase != Promoting || in.Term != s.term {
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

func (s *State) tick(now time.Duration) []Effect {
	timeout := s.Config.Timing.RequestTimeout()
	if s.reading && now-s.readSent >= timeout {
		s.reading, s.outage = false, true
		s.expiry = s.expiry.RecordReading(lease.Reading{Answer: lease.Unanswered}, s.Config.Timing)
	}
	if s.IsPrimary() || s.Phase == Releasing {
		return s.tickPrimary(now)
	}
	var effects []Effect
	switch {
	case s.Phase == Claiming && now-s.writeSent >= timeout:
		s.Phase, s.writing, s.outage = Unsure, false, true
	case s.Phase == Asking:
		effects = s.decide(now)
	case s.Phase == Standby && s.mayBeCandidate(now):
		effects = s.beginCandidacy()
	case s.Phase == Standby && s.missing && s.expiry.IsLost(s.Config.Timing):
		effects = s.stall("the Lease is missing, and its holder does not write it again")
	}
	return append(effects, s.readWhenDue(now)...)
}

// readWhenDue reads the Lease once per renewal time, and at once to learn the
// outcome of a claim.
func (s *State) readWhenDue(now time.Duration) []Effect {
	due := now-s.readSent >= s.Config.Timing.Renewal() || s.readSent == 0 || s.Phase == Unsure
	if s.reading || !due || now == s.readSent {
		return nil
	}
	s.reading, s.readSent = true, now
	return []Effect{ReadLease{now}}
}

func (s *State) readLease(now time.Duration, r lease.Reading) []Effect {
	if r.Sent < s.ignore || !s.reading || r.Sent != s.readSent {
		return nil
	}
	s.reading = false
	s.outage = !r.Answer.IsReached()
	s.expiry = s.expiry.RecordReading(r, s.Config.Timing)
	if s.IsPrimary() {
		return s.readAsPrimary(now, r)
	}
	s.missing = r.Answer == lease.Missing
	if r.Answer != lease.Done {
		s.readable = s.readable && r.Answer == lease.Unanswered
		return nil
	}
	s.version, s.record, s.readable = r.Version, r.Record, false
	if err := r.Record.Validate(); err != nil {
		return s.stall(err.Error())
	}
	if r.Record.Term < s.Disk.Known.Term && s.flaw != flawOldLease {
		return s.stall("the Lease is older than what this member has read before")
	}
	s.readable = true
	effects := append(s.stall(""), s.recordKnown(r.Record)...)
	if s.Phase == Unsure {
		return append(effects, s.resolveClaim(now)...)
	}
	return append(effects, s.followHolder()...)
}

// followHolder streams from the holder, unless the member voted at this state of
// the Lease: a candidate relies on the position that it reported.
func (s *State) followHolder() []Effect {
	voted := s.version == s.Disk.PromisedAt
	if s.Phase != Standby || s.record.HolderUID == "" || s.record.HolderVolume == s.Disk.VolumeID ||
		s.following == s.record.Term || voted {
		return nil
	}
	s.following = s.record.Term
	return []Effect{Follow{s.record.HolderVolume, s.record.Term}}
}

func (s *State) wroteLease(now time.Duration, w LeaseWritten) []Effect {
	if !s.writing || w.Sent != s.writeSent {
		return nil
	}
	s.writing = false
	s.outage = !w.Answer.IsReached()
	s.ignore = now
	switch {
	case s.Phase == Claiming:
		return s.claimed(now, w)
	case s.IsPrimary():
		return s.wroteRenewal(now, w)
	case s.Phase == Releasing:
		s.Phase, s.following = Standby, 0
	}
	return nil
}
