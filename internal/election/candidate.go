package election

import (
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// isFree reports whether the member itself observed that the Lease may be claimed.
func (s State) isFree() bool {
	return s.readable && (s.record.IsReleased() || s.expiry.HasExpired(s.version, s.Config.Timing))
}

// mayBeCandidate reports whether a candidacy is due.
func (s *State) mayBeCandidate(now time.Duration) bool {
	if !s.isFree() || s.Config.NoFailover || s.missing || now < s.promise ||
		!s.isEligible(s.Disk.VolumeID, s.Disk.SystemIdentifier, s.ownWAL()) {
		return false
	}
	if s.record.IsReleased() && s.tried != s.version {
		return now >= s.after
	}
	if !s.expiry.HasExpired(s.version, s.Config.Timing) {
		return false
	}
	if s.expiredAt != s.version {
		s.expiredAt = s.version
		s.after = now + time.Duration(s.Config.Rank)*s.Config.Timing.Duration()/10
	}
	return now >= s.after
}

// beginCandidacy persists the term before anything of it is sent.
func (s *State) beginCandidacy() []Effect {
	known := s.Disk.Known
	s.term = max(s.Disk.Promised, known.Term, s.record.Term) + 1
	s.timeline = max(s.record.HighestTimeline, known.HighestTimeline, s.Disk.PromisedTimeline, slices.Max(append([]int64{0}, s.Disk.Timelines...))) + 1
	s.base, s.baseTerm, s.replies = s.version, s.record.Term, nil
	s.Disk.Promised, s.Disk.PromisedAt, s.Disk.PromisedTimeline = s.term, s.version, s.timeline
	s.Phase, s.following = Stopping, 0
	return []Effect{Persist{s.Disk}, StopReceiver{}}
}

func (s *State) stoppedReceiver(now time.Duration, w WAL) []Effect {
	s.recordTimelines(w)
	switch s.Phase {
	case Voting:
		s.Phase = Standby
		reply := s.reply(s.request.Term, w, true, false)
		return []Effect{Persist{s.Disk}, Vote{s.request.From, reply}}
	case Stopping:
		return append([]Effect{Persist{s.Disk}}, s.askVotes(now)...)
	}
	return nil
}

func (s *State) askVotes(now time.Duration) []Effect {
	if !s.readable || s.version != s.base {
		return s.giveUp(now)
	}
	s.takeover = s.record.IsReleased() && s.hasAll(*s.record.Shutdown)
	if s.record.IsReleased() && !s.takeover && !s.expiry.HasExpired(s.version, s.Config.Timing) {
		s.tried, s.Phase = s.version, Standby
		return nil
	}
	s.Phase, s.askSent = Asking, now
	var effects []Effect
	for _, volume := range s.record.Volumes {
		if volume != s.Disk.VolumeID {
			effects = append(effects, AskVote{volume, VoteRequest{From: s.Disk.VolumeID, Term: s.term, Timeline: s.timeline, Base: s.base, BaseTerm: s.baseTerm}})
		}
	}
	return append(effects, s.decide(now)...)
}

// hasAll reports whether the shutdown checkpoint was received to its end.
func (s State) hasAll(end lease.Position) bool {
	return s.wal.Flushed.Timeline == end.Timeline && s.wal.Flushed.LSN >= end.LSN
}

func (s *State) countVote(now time.Duration, v VoteReply) []Effect {
	if s.Phase != Asking || v.Term != s.term {
		return nil
	}
	if slices.ContainsFunc(s.replies, func(r VoteReply) bool { return r.From == v.From }) {
		return nil
	}
	s.replies = append(slices.Clone(s.replies), v)
	return s.decide(now)
}

// decide claims, waits or gives up. Peers that do not answer are waited for, but
// not for ever; the votes of a quorum are.
func (s *State) decide(now time.Duration) []Effect {
	if !s.isFree() || s.version != s.base {
		return s.giveUp(now)
	}
	if slices.ContainsFunc(s.replies, s.isRefusedBy) {
		return s.giveUp(now)
	}
	wait := s.Config.Timing.VoteWait()
	if s.takeover && s.hasQuorum() {
		wait /= 4 // a member that knows of a newer term may still veto
	}
	waited := now-s.askSent >= wait
	if len(s.replies) < len(s.record.Volumes)-1 && !waited {
		return nil
	}
	if !s.hasQuorum() {
		if !waited {
			return nil
		}
		return s.giveUp(now)
	}
	return s.claim(now)
}

// isRefusedBy reports whether a reply ends the candidacy: a veto, a newer term or
// timeline, which is recorded, or a member that may lead and has more WAL.
func (s *State) isRefusedBy(r VoteReply) bool {
	if r.Vetoed {
		return true
	}
	if r.Timeline >= s.timeline || r.Promised > s.term {
		s.Disk.PromisedTimeline = max(s.Disk.PromisedTimeline, r.Timeline)
		s.Disk.Promised = max(s.Disk.Promised, r.Promised)
		return true
	}
	ahead := r.WAL.Flushed.Newer(s.wal.Flushed) && s.flaw != flawLessWAL
	return ahead && !r.NoFailover && s.isEligible(r.From, r.SystemIdentifier, r.WAL)
}

// hasQuorum reports whether the votes overlap with each acknowledged write.
func (s State) hasQuorum() bool {
	quorum := s.record.Quorum
	if quorum == nil || s.flaw == flawNoQuorum {
		return true
	}
	votes := 0
	if slices.Contains(quorum.Volumes, s.Disk.VolumeID) {
		votes++
	}
	for _, r := range s.replies {
		if r.Granted && slices.Contains(quorum.Volumes, r.From) {
			votes++
		}
	}
	return votes >= quorum.CountVotes()
}

// giveUp lets others try first.
func (s *State) giveUp(now time.Duration) []Effect {
	s.Phase = Standby
	s.after = now + s.Config.Timing.Duration()*time.Duration(3+s.Config.Rank)/10
	return nil
}

func (s *State) claim(now time.Duration) []Effect {
	record, err := s.record.Acquire(lease.Claim{
		UID: s.Config.UID, Pod: s.Config.Pod, Volume: s.Disk.VolumeID, SystemIdentifier: s.Disk.SystemIdentifier,
		Term: s.term, Timeline: s.timeline, Free: s.isFree(),
	})
	if err != nil {
		return s.giveUp(now)
	}
	s.Disk.Wrote = s.term
	s.Phase, s.writing, s.writeSent, s.pending = Claiming, true, now, record
	return []Effect{Persist{s.Disk}, WriteLease{Base: s.base, Record: record, Sent: now}}
}

func (s *State) claimed(now time.Duration, w LeaseWritten) []Effect {
	switch w.Answer {
	case lease.Done:
	case lease.Unanswered:
		s.Phase = Unsure
		return nil
	default:
		s.readable, s.readSent = false, 0 // another member was first
		return s.giveUp(now)
	}
	s.deadlines = s.Config.Timing.Deadlines(w.Sent)
	if now >= s.deadlines.Soft || now < s.promise {
		return s.giveUp(now) // too late to rely on: the Lease expires
	}
	s.version, s.record, s.renewed, s.reached = w.Version, s.pending, w.Sent, 0
	effects := append(s.recordKnown(s.record), s.recordReceived(s.timeline)...)
	s.Phase, s.confirmed = Promoting, nil
	return append(effects, ExtendGuard{s.deadlines.Fence}, Promote{s.term, s.timeline})
}

// resolveClaim learns the outcome of a claim. One that was done is written once
// more: nothing is known of how long ago it was.
func (s *State) resolveClaim(now time.Duration) []Effect {
	own := s.record.HolderUID == s.Config.UID && s.record.Term == s.term && s.Disk.Wrote == s.term
	if !own || now < s.promise {
		return s.giveUp(now)
	}
	s.base, s.pending = s.version, s.record
	s.Phase, s.writing, s.writeSent = Claiming, true, now
	return []Effect{WriteLease{Base: s.version, Record: s.record, Sent: now}}
}
