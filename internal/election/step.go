package election

import (
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// Step is what a member becomes by an input, and what it has to do. Now is a
// monotonic clock that also counts while the machine sleeps.
func Step(s State, now time.Duration, in Input) (State, []Effect) {
	var fenced []Effect
	if s.IsPrimary() && now >= s.deadlines.Fence { // whatever came, it came too late
		fenced = s.fence()
	}
	effects, known := s.stepLease(now, in)
	if !known {
		effects, known = s.stepElection(now, in)
	}
	if !known {
		effects = s.stepPrimary(now, in)
	}
	return s, append(fenced, effects...)
}

// stepLease takes the clock and the answers of the API server.
func (s *State) stepLease(now time.Duration, in Input) (effects []Effect, known bool) {
	switch in := in.(type) {
	case Tick:
		return s.tick(now), true
	case LeaseRead:
		return s.readLease(now, in.Reading), true
	case LeaseWritten:
		return s.wroteLease(now, in), true
	}
	return nil, false
}

// stepElection takes what concerns votes, promises and the data that is voted for.
func (s *State) stepElection(now time.Duration, in Input) (effects []Effect, known bool) {
	switch in := in.(type) {
	case ReceiverStopped:
		return s.stoppedReceiver(now, in.WAL), true
	case VoteRequest:
		return s.answerVote(now, in), true
	case VoteReply:
		return s.countVote(now, in), true
	case Received:
		return s.recordReceived(in.Timeline), true
	case RewindBegun:
		return s.beginRewind(), true
	case RewindEnded:
		return s.endRewind(in), true
	case ForceRequest:
		return s.beginForced(now, in), true
	case ConfirmRequest:
		return s.answerConfirm(now, in), true
	}
	return nil, false
}

// stepPrimary takes what concerns a primary.
func (s *State) stepPrimary(now time.Duration, in Input) []Effect {
	switch in := in.(type) {
	case Promoted:
		return s.finishPromotion(in)
	case ServerFailed:
		return s.endFailedTerm(in)
	case Streamed:
		s.recordStreamed(in)
	case Acknowledged:
		s.recordAcknowledged(in)
	case ConfirmReply:
		return s.countConfirm(in)
	case SwitchoverRequest:
		return s.beginSwitchover(now, in)
	case ServerStopped:
		return s.beginRelease(now, in.End)
	case MembersWanted:
		s.acceptMembers(in)
	case QuorumSet:
		s.recordQuorum(in)
	}
	return nil
}

func (s *State) tick(now time.Duration) []Effect {
	timeout := s.Config.Timing.RequestTimeout()
	if s.reading && now-s.readSent >= timeout {
		s.reading, s.outage = false, true
		s.expiry = s.expiry.RecordReading(lease.Reading{Answer: lease.Unanswered}, s.Config.Timing)
	}
	if s.writing && now-s.writeSent >= timeout {
		s.writing, s.outage = false, true
		if s.Phase == Claiming {
			s.Phase = Unsure
		}
	}
	if s.IsPrimary() || s.Phase == Releasing {
		return s.tickPrimary(now)
	}
	var effects []Effect
	switch {
	case s.Phase == Asking:
		effects = s.decide(now)
	case s.Phase == Standby && s.mayBeCandidate(now):
		effects = s.beginCandidacy("")
	case s.Phase == Standby:
		effects = s.stall(s.explainStall())
	}
	return append(effects, s.readWhenDue(now)...)
}

// explainStall says why this member does not lead although no other one does.
// Once a reason is given it stays until the Lease is held or a candidacy begins.
func (s State) explainStall() string {
	switch {
	case s.missing && s.expiry.IsLost(s.Config.Timing):
		return "the Lease is missing, and its holder does not write it again"
	case s.readable && s.expiry.HasExpired(s.version, s.Config.Timing):
		if reason := s.explainIneligible(s.ownWAL()); reason != "" {
			return reason
		}
	}
	return s.stalled
}

// readWhenDue reads the Lease once per renewal time, and at once to learn the
// outcome of a claim.
func (s *State) readWhenDue(now time.Duration) []Effect {
	due := now-s.readSent >= s.Config.Timing.Renewal() || s.readSent == 0 || s.Phase == Unsure
	if !due {
		return nil
	}
	return s.startReading(now)
}

func (s *State) startReading(now time.Duration) []Effect {
	if s.reading || now == s.readSent {
		return nil
	}
	s.reading, s.readSent = true, now
	return []Effect{ReadLease{now}}
}

func (s *State) readLease(now time.Duration, r lease.Reading) []Effect {
	if !s.reading || r.Sent != s.readSent {
		return nil
	}
	s.reading = false
	s.outage = !r.Answer.IsReached()
	if r.Sent < s.ignore {
		return nil // this member has written since
	}
	s.expiry = s.expiry.RecordReading(r, s.Config.Timing)
	if s.IsPrimary() || s.Phase == Releasing {
		return s.readAsPrimary(now, r)
	}
	s.missing = r.Answer == lease.Missing
	if r.Answer != lease.Done {
		s.readable = s.readable && r.Answer == lease.Unanswered
		return s.resolveMissing(now)
	}
	effects := s.readRecord(r)
	if s.Phase == Unsure {
		return append(effects, s.resolveClaim(now)...)
	}
	return append(effects, s.followHolder()...)
}

// readRecord judges what the Lease says.
func (s *State) readRecord(r lease.Reading) []Effect {
	s.version, s.record, s.readable = r.Version, r.Record, false
	if err := r.Record.Validate(); err != nil {
		return s.stall(err.Error())
	}
	if contradiction := r.Record.Contradicts(s.Disk.Known); contradiction != "" {
		return s.stall(contradiction + ": it was edited, or the API server was restored to an earlier state")
	}
	s.readable = true
	effects := s.recordKnown(r.Record)
	if !s.expiry.HasExpired(s.version, s.Config.Timing) {
		effects = append(effects, s.stall("")...)
	}
	return effects
}

// followHolder streams from the holder, unless the member voted at this state of
// the Lease: a candidate relies on the position that it reported.
func (s *State) followHolder() []Effect {
	voted := s.version == s.Disk.PromisedAt
	if s.Phase != Standby || !s.readable || s.record.HolderUID == "" || s.record.HolderVolume == s.Disk.VolumeID ||
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
	case s.Phase == Releasing:
		return s.wroteRelease(now, w)
	case s.IsPrimary():
		return s.wroteRenewal(now, w)
	}
	return nil
}
