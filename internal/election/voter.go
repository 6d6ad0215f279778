package election

import (
	"slices"
	"time"
)

// answerVote grants a vote only for a Lease that this member itself observed as
// free, in the very state that the candidate observed. The term is persisted
// first, then the receiver stops, then the position is reported.
func (s *State) answerVote(now time.Duration, r VoteRequest) []Effect {
	refuse := func(veto bool) []Effect {
		return []Effect{Vote{r.From, s.reply(r.Term, r.WAL, false, veto)}}
	}
	switch {
	case s.IsPrimary(), now < s.promise, r.BaseTerm < s.Disk.Known.Term && s.flaw != flawOldLease:
		return refuse(true)
	case s.Phase != Standby && s.Phase != Asking:
		return refuse(false)
	case s.Phase == Asking && r.Term <= s.term, r.Term <= s.Disk.Promised:
		return refuse(false)
	case !s.isFree(), s.version != r.Base:
		return refuse(false)
	}
	s.Disk.Promised, s.Disk.PromisedAt = r.Term, r.Base
	s.request = r
	s.Phase, s.following = Voting, 0
	return []Effect{Persist{s.Disk}, StopReceiver{}}
}

// reply reports the highest timeline that was known before the request, and
// remembers that of the request.
func (s *State) reply(term int64, w WAL, granted, vetoed bool) VoteReply {
	merged := max(s.Disk.PromisedTimeline, s.Disk.Known.HighestTimeline, slices.Max(append([]int64{0}, s.Disk.Timelines...)))
	if granted {
		s.Disk.PromisedTimeline = max(merged, s.request.Timeline)
	}
	return VoteReply{
		From: s.Disk.VolumeID, Term: term, Granted: granted, Vetoed: vetoed,
		Promised: s.Disk.Promised, Timeline: merged, WAL: w,
		NoFailover: s.Config.NoFailover, SystemIdentifier: s.Disk.SystemIdentifier,
	}
}

// answerConfirm promises not to be elected, only while this member does not reach
// the API server either and has no claim whose outcome is unknown.
func (s *State) answerConfirm(now time.Duration, r ConfirmRequest) []Effect {
	known := s.Disk.Known
	confirmed := s.Phase == Standby && s.outage && known.Term == r.Term &&
		known.HolderVolume == r.From && s.following == r.Term
	if confirmed {
		s.promise = now + s.Config.Timing.Duration()
	}
	return []Effect{Confirm{r.From, ConfirmReply{From: s.Disk.VolumeID, Term: r.Term, Sent: r.Sent, Confirmed: confirmed}}}
}
