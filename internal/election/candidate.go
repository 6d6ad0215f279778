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

// isFreeForForce is isFree for a member that a person named. The Lease may then be
// lost, edited or older than it was.
func (s State) isFreeForForce() bool {
	return s.isFree() || s.expiry.IsLost(s.Config.Timing) || s.expiry.HasExpired(s.version, s.Config.Timing)
}

// mayBeCandidate reports whether a candidacy is due.
func (s *State) mayBeCandidate(now time.Duration) bool {
	if !s.isFree() || s.missing || now < s.promise || s.explainIneligible(s.ownWAL()) != "" {
		return false
	}
	isNamed := s.record.Successor == "" || s.record.Successor == s.Disk.VolumeID
	if s.record.IsReleased() && isNamed && s.tried != s.version {
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

// maxTerm bounds what is taken over from an edited Lease.
const maxTerm = 1 << 40

// beginForced begins the candidacy that a person asked for. What a person cannot
// decide still holds: the Lease was observed without a renewal for its duration,
// and no member leads or has promised not to be elected.
func (s *State) beginForced(now time.Duration, in ForceRequest) []Effect {
	if in.ID == "" || in.ID == s.Disk.Forced || s.Phase != Standby || now < s.promise ||
		s.Disk.Rewinding || !s.isFreeForForce() {
		return nil
	}
	if s.missing {
		s.version = lease.Version{}
	}
	if !s.readable {
		// Members that have read an edited term take no lower one for a new Lease.
		s.Disk.Promised = max(s.Disk.Promised, min(s.record.Term, maxTerm))
		s.record = s.Disk.Known
	}
	if s.record.Validate() != nil || s.record.SystemIdentifier != s.Disk.SystemIdentifier {
		return s.stall("this member cannot be forced to lead: it has no record of this database")
	}
	if !s.record.MayLead(s.Disk.VolumeID) { // a primary without the API server does not ask it
		return s.stall("this member cannot be forced to lead: its volume is not one that the Lease lets lead")
	}
	return s.beginCandidacy(in.ID)
}

// beginCandidacy persists the term before anything of it is sent. An ID is that of
// a person's request, empty for a failover.
func (s *State) beginCandidacy(forced string) []Effect {
	s.forcing = forced
	s.term = max(s.Disk.Promised, s.Disk.Known.Term, s.record.Term) + 1
	s.timeline = s.highestTimeline() + 1
	s.base, s.baseOf, s.baseAge, s.replies = s.version, s.record, s.record.Age(), nil
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

// askVotes judges by the measured WAL: what is persisted may name a timeline of
// which nothing arrived.
func (s *State) askVotes(now time.Duration) []Effect {
	if s.version != s.base || s.forcing == "" && !s.readable {
		return s.giveUp(now, "")
	}
	if s.forcing == "" {
		if reason := s.explainIneligible(s.wal) + s.explainLost(); reason != "" {
			return s.giveUp(now, reason)
		}
	}
	s.takeover = s.baseOf.IsReleased() && s.hasAll(*s.baseOf.Shutdown)
	if s.forcing == "" && s.baseOf.IsReleased() && !s.takeover && !s.expiry.HasExpired(s.version, s.Config.Timing) {
		s.tried, s.Phase = s.version, Standby
		return nil
	}
	s.Phase, s.askSent = Asking, now
	var effects []Effect
	for _, volume := range s.baseOf.Volumes {
		if volume != s.Disk.VolumeID {
			effects = append(effects, AskVote{volume, VoteRequest{From: s.Disk.VolumeID, Term: s.term, Timeline: s.timeline, Base: s.base, BaseAge: s.baseAge, Flushed: s.wal.Flushed}})
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
	if !s.isClaimFree() || s.version != s.base {
		return s.giveUp(now, "")
	}
	for _, r := range s.replies {
		if refused, reason := s.isRefusedBy(r); refused {
			return s.giveUp(now, reason)
		}
	}
	if slices.ContainsFunc(s.replies, s.isAbove) {
		return s.retry(now)
	}
	wait := s.Config.Timing.VoteWait()
	if s.takeover && s.hasQuorum() {
		wait /= 4 // a member that knows of a newer term may still veto
	}
	waited := now-s.askSent >= wait
	if len(s.replies) < len(s.baseOf.Volumes)-1 && !waited {
		return nil
	}
	if !s.hasQuorum() {
		if !waited {
			return nil
		}
		return s.giveUp(now, "too few members of the synchronous quorum answer")
	}
	return s.claim(now)
}

// isClaimFree is isFree, for the kind of candidacy that is under way.
func (s State) isClaimFree() bool {
	if s.forcing != "" {
		return s.isFreeForForce()
	}
	return s.isFree()
}

// isRefusedBy reports whether a reply ends the candidacy, and why no member may
// lead if it is not only this one: a veto, a newer state of the Lease, or a member
// that has more WAL.
func (s State) isRefusedBy(r VoteReply) (refused bool, reason string) {
	switch {
	case r.Vetoed:
		return true, ""
	case s.forcing != "":
		return false, ""
	case s.baseAge.IsOlder(r.Known):
		return true, "another member has read a newer Lease: the API server was restored to an earlier state"
	case !r.WAL.Flushed.Newer(s.wal.Flushed):
		return false, ""
	}
	// A vote of the quorum may stand for an acknowledged write that no other voter
	// has, whether or not its member may lead.
	if s.isEligible(r.From, r.SystemIdentifier, r.WAL) && !r.NoFailover || r.Granted && s.isInQuorum(r.From) {
		return true, "volume " + r.From + " has more WAL than this member"
	}
	return false, ""
}

// isAbove reports whether the voter knows of a term or timeline that this candidacy
// is not above.
func (s State) isAbove(r VoteReply) bool { return r.Timeline >= s.timeline || r.Promised > s.term }

// retry begins again soon, above all terms and timelines that were answered. It is
// no reason to let others go first: a member that may not lead may have raised them.
func (s *State) retry(now time.Duration) []Effect {
	for _, r := range s.replies {
		s.Disk.PromisedTimeline = max(s.Disk.PromisedTimeline, r.Timeline)
		s.Disk.Promised = max(s.Disk.Promised, r.Promised)
	}
	s.after = now + s.Config.Timing.Duration()*time.Duration(1+s.Config.Rank)/100
	s.Phase, s.forcing = Standby, ""
	return nil
}

// hasQuorum reports whether the votes overlap with each acknowledged write.
func (s State) hasQuorum() bool {
	if s.record.Quorum == nil || s.forcing != "" {
		return true
	}
	votes := 0
	if s.isInQuorum(s.Disk.VolumeID) {
		votes++
	}
	for _, r := range s.replies {
		if r.Granted && s.isInQuorum(r.From) {
			votes++
		}
	}
	return votes >= s.record.Quorum.CountVotes()
}

// giveUp lets others try first, except if a person named this member. A reason is
// reported.
func (s *State) giveUp(now time.Duration, reason string) []Effect {
	if s.forcing == "" {
		s.after = now + s.Config.Timing.Duration()*time.Duration(3+s.Config.Rank)/10
	}
	s.Phase, s.forcing = Standby, ""
	if reason == "" {
		return nil
	}
	return s.stall(reason)
}

func (s *State) claim(now time.Duration) []Effect {
	record, err := s.baseOf.Acquire(lease.Claim{
		UID: s.Config.UID, Pod: s.Config.Pod, Volume: s.Disk.VolumeID, SystemIdentifier: s.Disk.SystemIdentifier,
		Term: s.term, Timeline: s.timeline, Flushed: s.wal.Flushed, Free: s.isClaimFree(), Forced: s.forcing != "",
	})
	if err != nil {
		return s.giveUp(now, err.Error())
	}
	s.Disk.Wrote = s.term
	if s.forcing != "" {
		s.Disk.Forced = s.forcing
	}
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
		return s.giveUp(now, "")
	}
	s.deadlines = s.Config.Timing.Deadlines(w.Sent)
	if now >= s.deadlines.Soft || now < s.promise {
		return s.giveUp(now, "") // too late to rely on: the Lease expires
	}
	s.version, s.record, s.renewed = w.Version, s.pending, w.Sent
	s.readable, s.missing, s.forcing = true, false, ""
	s.reached, s.acknowledged = 0, lease.Position{}
	s.wanted, s.effective, s.setting = nil, s.record.Quorum, false
	effects := append(s.recordKnown(s.record), s.recordReceived(s.timeline)...)
	s.Phase, s.confirmed = Promoting, nil
	return append(effects, ExtendGuard{s.deadlines.Fence}, Promote{s.term, s.timeline, s.effective})
}

// resolveClaim learns the outcome of a claim. One that was done is written once
// more: nothing is known of how long ago it was.
func (s *State) resolveClaim(now time.Duration) []Effect {
	own := s.record.HolderUID == s.Config.UID && s.record.Term == s.term && s.Disk.Wrote == s.term
	if !own || !s.readable || now < s.promise {
		return s.giveUp(now, "")
	}
	s.base, s.pending = s.version, s.record
	s.Phase, s.writing, s.writeSent = Claiming, true, now
	return []Effect{WriteLease{Base: s.version, Record: s.record, Sent: now}}
}

// resolveMissing ends a claim whose Lease is gone: a claim that still arrives makes
// this member the holder of a Lease that it does not lead by.
func (s *State) resolveMissing(now time.Duration) []Effect {
	if s.Phase != Unsure || !s.missing {
		return nil
	}
	return s.giveUp(now, "")
}
