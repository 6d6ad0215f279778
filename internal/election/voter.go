package election

import (
	"time"
)

// answerVote grants a vote only for a Lease that this member itself observed as
// free, in the very state that the candidate observed. The term is persisted
// first, then the receiver stops, then the position is reported.
func (s *State) answerVote(now time.Duration, r VoteRequest) []Effect {
	s.watchHindrance(now)
	refuse := func(veto bool) []Effect {
		reply := s.replyTo(r, r.WAL)
		reply.Vetoed, reply.NoFailover = veto, reply.NoFailover || s.isHinderedLong(now)
		return []Effect{Vote{r.From, reply}}
	}
	switch {
	case s.IsPrimary(), now < s.promise:
		return refuse(true)
	case r.BaseAge.IsOlder(s.Disk.Known.Age()), s.mayNotVote():
		return refuse(false)
	case s.Phase != Standby && !s.isCandidate():
		return refuse(false)
	case !s.lease.isFree(s.findExpiry()), s.lease.version != r.Base:
		return refuse(false)
	case r.WAL.Flushed.Newer(r.Flushed) && s.explainIneligible(r.WAL) == "" && s.explainStandingBack() == "":
		return refuse(false) // this member's own candidacy comes first
	case s.isCandidate() && !s.isOutranked(now, r):
		reply := s.replyTo(r, r.WAL)
		reply.Competes = true
		return []Effect{Vote{r.From, reply}}
	case r.Term <= s.Disk.Promised:
		effects := refuse(false)
		if s.isCandidate() {
			s.candidacy.yieldCandidacy(s.member, now)
			s.Phase = Standby
		}
		return effects
	}
	isStopping := s.Phase == Stopping
	s.Disk.recordPromise(r.Term, r.Base)
	s.candidacy.yieldCandidacy(s.member, now)
	s.Phase, s.following, s.votingFor = Voting, 0, r
	if isStopping { // for its own candidacy: to begin anew would take longer
		return []Effect{Persist{s.Disk}}
	}
	return []Effect{Persist{s.Disk}, StopReceiver{}}
}

// isOutranked reports whether this member's candidacy yields to another one: to one with
// more WAL, and among equals to that of an earlier turn. Of two that compete both know
// which it is. If neither yielded, or both, each would take the other's vote, again and
// again. One whose receiver does not stop yields to any, also if a person asked for it: the
// request is repeated.
func (s *State) isOutranked(now time.Duration, r VoteRequest) bool {
	switch {
	case now-s.candidacy.begun > 2*s.Config.Timing.VoteWait():
		return true
	case s.candidacy.forcing != "":
		return false
	case r.Flushed.Newer(r.WAL.Flushed):
		return true
	}
	return s.findTurnOf(r.From) < s.findTurnOf(s.Disk.VolumeID)
}

// grantVote reports what the member holds now that its receiver has stopped, and
// persists the timeline that the candidate wants.
func (s *State) grantVote(w WAL) []Effect {
	reply := s.replyTo(s.votingFor, w)
	reply.Granted = true
	s.Phase = Standby
	s.Disk.raisePromise(0, max(reply.Timeline, s.votingFor.Timeline))
	return []Effect{Persist{s.Disk}, Vote{s.votingFor.From, reply}}
}

// replyTo is a refusal. It reports the highest term and timeline that were known
// before the request.
func (m member) replyTo(r VoteRequest, w WAL) VoteReply {
	return VoteReply{
		From: m.Disk.VolumeID, Term: r.Term, Known: m.Disk.Known.Age(),
		Promised: max(m.Disk.Promised, m.Disk.Known.Term), Timeline: m.highestTimeline(), WAL: w,
		NoFailover: m.Config.NoFailover || m.Disk.Rewinding || m.explainStandingBack() != "", SystemIdentifier: m.Disk.SystemIdentifier,
	}
}
