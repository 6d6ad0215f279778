package election

import (
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// Step is what a member becomes by an input, and what it has to do. Now is a
// monotonic clock that also counts while the machine sleeps.
func Step(s State, now time.Duration, in Input) (State, []Effect) {
	var fenced []Effect
	if s.IsPrimary() && now >= s.leadership.deadlines.Fence { // whatever came, it came too late
		fenced = s.leadership.fenceServer(&s.member)
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
		return s.passTime(now), true
	case LeaseChanged:
		if s.Phase == Standby {
			return s.requests.startReading(now), true
		}
		return nil, true
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
		return s.candidacy.countVote(&s.member, now, in), true
	case VoterSilent:
		return s.candidacy.recordSilent(&s.member, now, in), true
	case Received:
		return s.Disk.recordReceived(in.Timeline), true
	case RewindBegun:
		effects := s.Disk.beginRewind()
		s.giveUpForbidden()
		return effects, true
	case RewindEnded:
		return s.Disk.endRewind(in), true
	case ForceRequest:
		return s.candidacy.beginForced(&s.member, now, in), true
	case ConfirmRequest:
		return s.answerConfirm(now, in), true
	case Held:
		s.recordHeld(in)
		return nil, true
	case LimitsWanted:
		s.Config.NoFailover, s.Config.MaxLag = in.NoFailover, in.MaxLag
		if in.Timing != (lease.Timing{}) {
			s.Config.Timing = in.Timing
		}
		return nil, true
	}
	return nil, false
}

// stepPrimary takes what concerns a primary.
func (s *State) stepPrimary(now time.Duration, in Input) []Effect {
	switch in := in.(type) {
	case Promoted:
		return s.leadership.finishPromotion(&s.member, now, in)
	case ServerFailed:
		return s.leadership.endFailedTerm(&s.member, in)
	case Streamed:
		s.leadership.recordStreamed(s.member, in)
	case Acknowledged:
		return s.leadership.recordAcknowledged(&s.member, now, in)
	case ConfirmReply:
		return s.leadership.countConfirm(s.member, in)
	case SwitchoverRequest:
		return s.leadership.beginSwitchover(&s.member, now, in)
	case ServerStopped:
		return s.leadership.beginRelease(&s.member, now, in.End)
	case DurationsKnown:
		s.durations = in.Reports
		return s.leadership.relyOnKnown(s.member)
	case MembersWanted:
		s.leadership.quorum.acceptMembers(s.member, in)
	case QuorumSet:
		s.leadership.quorum.recordQuorum(in)
	}
	return nil
}

// passTime does what is due.
func (s *State) passTime(now time.Duration) []Effect {
	s.watchHindrance(now)
	timing := s.Pace()
	if s.requests.endLateReading(now, timing.RequestTimeout()) {
		s.lease.countReading(lease.Reading{Answer: lease.Unanswered}, s.findExpiry())
	}
	if s.requests.endLateWriting(now, timing.RequestTimeout()) && s.Phase == Claiming {
		s.Phase = Unsure
	}
	if s.IsPrimary() || s.Phase == Releasing {
		return s.leadership.passTime(&s.member, now)
	}
	var effects []Effect
	switch {
	case s.Phase == Asking:
		effects = s.candidacy.decideClaim(&s.member, now)
	case s.Phase == Standby && s.candidacy.mayBegin(s.member, now):
		effects = s.candidacy.beginCandidacy(&s.member, now, "")
	case s.Phase == Standby:
		effects = s.reportStall(s.explainStall())
	}
	// The outcome of a claim is learned at once.
	if s.requests.isReadingDue(now, s.lease.expiry.UntilReading(timing, s.findExpiry())) || s.Phase == Unsure {
		effects = append(effects, s.requests.startReading(now)...)
	}
	return effects
}

// readLease takes the answer to a reading, for the role that the member has.
func (s *State) readLease(now time.Duration, r lease.Reading) []Effect {
	if !s.requests.endReading(r) {
		return nil
	}
	s.lease.countReading(r, s.findExpiry())
	if s.IsPrimary() || s.Phase == Releasing {
		return s.leadership.readLease(&s.member, now, r)
	}
	if r.Answer != lease.Done {
		s.lease.recordAbsence(r.Answer)
		return s.candidacy.resolveMissing(&s.member, now)
	}
	effects := s.readRecord(r)
	if s.Phase == Unsure {
		return append(effects, s.candidacy.resolveClaim(&s.member, now)...)
	}
	return append(effects, s.followHolder()...)
}

// wroteLease takes the answer to a write, for the role that the member has.
func (s *State) wroteLease(now time.Duration, w LeaseWritten) []Effect {
	if !s.requests.endWriting(now, w) {
		return nil
	}
	switch {
	case s.Phase == Claiming:
		effects, won := s.candidacy.endClaim(&s.member, now, w)
		if won {
			return s.leadership.beginTerm(&s.member, w.Sent)
		}
		return effects
	case s.Phase == Releasing:
		return s.leadership.wroteRelease(&s.member, now, w)
	case s.IsPrimary():
		return s.leadership.wroteRenewal(&s.member, now, w)
	}
	return nil
}

// stoppedReceiver continues the vote or the candidacy for which the receiver stopped.
func (s *State) stoppedReceiver(now time.Duration, w WAL) []Effect {
	s.recordWAL(w)
	switch s.Phase {
	case Voting:
		return s.grantVote(w)
	case Stopping:
		effects := []Effect{Persist{s.Disk}}
		return append(effects, s.candidacy.askVotes(&s.member, now)...)
	}
	return nil
}
