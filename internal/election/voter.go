package election

import (
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
	case s.IsPrimary(), now < s.promise:
		return refuse(true)
	case r.BaseAge.IsOlder(s.Disk.Known.Age()), s.Disk.Rewinding:
		return refuse(false)
	case s.Phase != Standby && s.Phase != Asking:
		return refuse(false)
	case s.Phase == Asking && r.Term <= s.term, r.Term <= s.Disk.Promised:
		return refuse(false)
	case !s.isFree(), s.version != r.Base:
		return refuse(false)
	case r.WAL.Flushed.Newer(r.Flushed) && s.explainIneligible(r.WAL) == "":
		return refuse(false) // this member's own candidacy comes first
	}
	s.Disk.Promised, s.Disk.PromisedAt = r.Term, r.Base
	s.request = r
	// The candidate needs time for its claim: two that compete at once take each
	// other's votes for ever.
	s.after = now + s.Config.Timing.Duration()*time.Duration(5+s.Config.Rank)/10
	s.Phase, s.following, s.forcing = Voting, 0, ""
	return []Effect{Persist{s.Disk}, StopReceiver{}}
}

// reply reports the highest term and timeline that were known before the request,
// and remembers those of the request.
func (s *State) reply(term int64, w WAL, granted, vetoed bool) VoteReply {
	highest := s.highestTimeline()
	if granted {
		s.Disk.PromisedTimeline = max(highest, s.request.Timeline)
	}
	return VoteReply{
		From: s.Disk.VolumeID, Term: term, Granted: granted, Vetoed: vetoed,
		Known: s.Disk.Known.Age(), Promised: max(s.Disk.Promised, s.Disk.Known.Term), Timeline: highest, WAL: w,
		NoFailover: s.Config.NoFailover || s.Disk.Rewinding, SystemIdentifier: s.Disk.SystemIdentifier,
	}
}

// answerConfirm promises not to be elected, only while this member does not reach
// the API server either and has no claim whose outcome is unknown. A member that is
// asked before it noticed an outage reads the Lease at once.
func (s *State) answerConfirm(now time.Duration, r ConfirmRequest) []Effect {
	known := s.Disk.Known
	follows := s.Phase == Standby && known.Term == r.Term && known.HolderVolume == r.From
	confirmed := follows && s.outage
	var effects []Effect
	if confirmed {
		s.promise = now + s.Config.Timing.Duration()
	} else if follows {
		effects = s.startReading(now)
	}
	return append(effects, Confirm{r.From, ConfirmReply{From: s.Disk.VolumeID, Term: r.Term, Sent: r.Sent, Confirmed: confirmed}})
}
