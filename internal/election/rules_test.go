package election

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// find is the first effect of a type.
func find[E Effect](t *testing.T, effects []Effect) E {
	t.Helper()
	for _, e := range effects {
		if found, is := e.(E); is {
			return found
		}
	}
	var none E
	t.Fatalf("no %T in %v", none, effects)
	return none
}

// newPrimary leads in term 5. Its last renewal was sent at 10 s.
func newPrimary(t *testing.T, quorum *lease.Quorum) State {
	t.Helper()
	s := newMember(t, "v0", "p1")
	s.Phase, s.term, s.timeline, s.lease.record, s.lease.readable = Leading, 5, 5, baseRecord, true
	s.lease.record.Quorum, s.leadership.quorum.effective = quorum, quorum
	s.requests.pending, s.Disk.Known = s.lease.record, s.lease.record
	s.lease.version, s.leadership.renewed, s.requests.writeSent = lease.Version{UID: "u", Resource: "1"}, 10*second, 10*second
	s.leadership.deadlines = s.Config.Timing.Deadlines(10 * second)
	return s
}

// newCandidate has stopped its receiver at 60 of timeline 5, and asks at 20 s.
func newCandidate(t *testing.T, edit func(*lease.Record, *State)) (State, []Effect) {
	t.Helper()
	s, record := newMember(t, "v1", "p2"), baseRecord
	edit(&record, &s)
	s.Disk.Known = record
	for now := 2 * second; now <= 20*second; now += 2 * second {
		var effects []Effect
		s, effects = readAt(s, now, lease.Done, "1", record)
		if contains[StopReceiver](effects) {
			return Step(s, now, ReceiverStopped{WAL{Flushed: lease.Position{Timeline: 5, LSN: 60}, Timelines: []int64{5}}})
		}
	}
	return s, nil
}

// newClaimant is a candidate that has sent its claim, before then.
func newClaimant(t *testing.T) (s State, claim WriteLease, then time.Duration) {
	t.Helper()
	s, effects := newCandidate(t, func(*lease.Record, *State) {})
	then = 21 * second
	for s.Phase == Asking {
		s, effects = Step(s, then, Tick{})
		then += second / 2
	}
	return s, find[WriteLease](t, effects), then
}

func vote(s State, from string, lsn uint64, granted bool) VoteReply {
	return VoteReply{
		From: from, Term: s.term, Granted: granted, Known: s.candidacy.baseAge, Promised: s.term, SystemIdentifier: "s",
		WAL: WAL{Flushed: lease.Position{Timeline: 5, LSN: lsn}, Timelines: []int64{5}},
	}
}

var everyone = &lease.Quorum{Volumes: []string{"v0", "v1", "v2"}, Write: 2}

// A reading that was overtaken by a write of this member says nothing, and is no
// outage either.
func TestRule3OvertakenReadingIsNoOutage(t *testing.T) {
	s := newPrimary(t, nil)
	s.requests.reading, s.requests.readSent, s.requests.ignore = true, 11*second, 11*second+second/2
	s, _ = Step(s, 12*second, LeaseRead{lease.Reading{Answer: lease.Done, Sent: 11 * second}})
	if s, _ = Step(s, 13*second, Tick{}); s.requests.reading || s.requests.outage || s.Phase != Leading {
		t.Errorf("reading %v, outage %v, phase %d", s.requests.reading, s.requests.outage, s.Phase)
	}
}

func TestRule5HolderWritesALostOrEmptiedLeaseAgain(t *testing.T) {
	for name, answer := range map[string]lease.Answer{"deleted": lease.Missing, "emptied": lease.Done} {
		t.Run(name, func(t *testing.T) {
			s := newPrimary(t, nil)
			s.requests.outage = true
			s, effects := readAt(s, 12*second, answer, "2", lease.Record{})
			if w := find[WriteLease](t, effects); w.Record.Term != 5 || (w.Base == lease.Version{}) != (answer == lease.Missing) {
				t.Errorf("got %+v", w)
			}
			late := newPrimary(t, nil)
			late.requests.reading, late.requests.readSent = true, 16*second
			late, effects = Step(late, 17*second, LeaseRead{lease.Reading{Answer: answer, Sent: 16 * second, Received: 17 * second}})
			if !contains[Fence](effects) || contains[WriteLease](effects) || late.Phase != Standby {
				t.Errorf("after its deadline: %v", effects)
			}
			if s.Phase != Leading {
				t.Errorf("phase %d", s.Phase)
			}
		})
	}
}

func TestRule6ServerThatHangsIsFenced(t *testing.T) {
	s, effects := Step(newPrimary(t, nil), 11*second, ServerFailed{5})
	if find[Fence](t, effects); s.Phase != Standby {
		t.Errorf("phase %d", s.Phase)
	}
	if _, effects := Step(newPrimary(t, nil), 11*second, ServerFailed{4}); len(effects) != 0 {
		t.Errorf("for another term: %v", effects)
	}
}

// WAL that was only announced is not WAL: its timeline is recorded before the first
// of it arrives.
func TestRule8EligibilityIsOfMeasuredWAL(t *testing.T) {
	s, _ := newCandidate(t, func(r *lease.Record, s *State) {
		r.Timeline, r.HighestTimeline, r.ReachedTimeline = 6, 6, 6
		s.Disk.Timelines = []int64{5, 6}
	})
	if s.Phase != Standby || s.stalled == "" {
		t.Errorf("phase %d, %q", s.Phase, s.stalled)
	}
}

func TestRule10QuorumVoterCountsEvenIfItMayNotLead(t *testing.T) {
	s, effects := newCandidate(t, func(r *lease.Record, _ *State) { r.Quorum = everyone })
	find[AskVote](t, effects)
	ahead := vote(s, "v2", 61, true)
	ahead.NoFailover = true
	if s, effects := Step(s, 13*second, ahead); contains[WriteLease](effects) || s.Phase != Standby || s.stalled == "" {
		t.Errorf("claimed over more WAL: %v", effects)
	}
	ahead.Granted = false // no vote, and it may not lead: it decides nothing
	s, _ = Step(s, 13*second, ahead)
	if _, effects := Step(s, 13*second, vote(s, "v0", 60, true)); !contains[WriteLease](effects) {
		t.Errorf("did not claim: %v", effects)
	}
}

// A member that has the newest WAL, and can neither vote nor lead, has the others wait for
// one duration of a free Lease, and no longer. Until then, and once it can, it comes first.
func TestRule10MemberThatCannotLeadIsNotWaitedFor(t *testing.T) {
	for name, prepare := range map[string]func(*State){
		"held":              func(s *State) { s.held = Held{Reason: "this member is held"} },
		"receiver goes on":  func(s *State) { s.Phase = Stopping },
		"volume is silent":  func(s *State) { s.Phase = Voting },
		"only a full one":   func(s *State) { s.held = Held{Reason: "the volume is full", Votes: true} },
		"held a while back": func(s *State) { s.held = Held{} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newMember(t, "v2", "p3")
			if name == "held a while back" {
				s.held = Held{Reason: "this member is held"}
			} else {
				prepare(&s)
			}
			reads := func(from, to time.Duration) {
				for now := from; now <= to; now += second {
					s, _ = Step(s, now, Tick{})
					s, _ = readAt(s, now, lease.Done, "1", baseRecord)
				}
			}
			asked := func(now time.Duration) VoteReply {
				r := VoteRequest{From: "v1", Term: 6, Timeline: 6, Base: lease.Version{UID: "u", Resource: "1"}, BaseAge: baseRecord.Age(),
					Flushed: lease.Position{Timeline: 5, LSN: 100}, WAL: WAL{Flushed: lease.Position{Timeline: 5, LSN: 200}, Timelines: []int64{5}}}
				_, effects := Step(s, now, r)
				for _, e := range effects {
					if vote, is := e.(Vote); is {
						return vote.Reply
					}
				}
				return VoteReply{} // it votes
			}
			reads(2*second, 14*second) // free at 12
			prepare(&s)
			if asked(15 * second).NoFailover {
				t.Error("not waited for at all")
			}
			reads(15*second, 23*second)
			want := name == "held" || name == "receiver goes on" || name == "volume is silent"
			if got := asked(24 * second).NoFailover; got != want {
				t.Errorf("left out: %t, want %t", got, want)
			}
		})
	}
}

// A member that was silent for long before it is asked is not waited for as long as
// another one. In synchronous mode it is, unless the others are the quorum.
func TestRule10SilentMemberIsWaitedForLess(t *testing.T) {
	const soon, late = 500 * time.Millisecond, 2 * second
	for name, c := range map[string]struct {
		quorum *lease.Quorum
		silent []VoterSilent
		voted  string
		claims time.Duration
	}{
		"it is silent":                      {nil, []VoterSilent{{"v0", 6}}, "v2", soon},
		"it is not":                         {nil, nil, "v2", late},
		"another one is, and has voted":     {nil, []VoterSilent{{"v2", 6}}, "v2", late},
		"it was in another candidacy":       {nil, []VoterSilent{{"v0", 5}}, "v2", late},
		"both are":                          {nil, []VoterSilent{{"v0", 6}, {"v2", 6}}, "", soon},
		"the other one may still answer":    {nil, []VoterSilent{{"v0", 6}}, "", late},
		"the others are the quorum":         {everyone, []VoterSilent{{"v0", 6}}, "v2", soon},
		"both are, and the quorum is not":   {everyone, []VoterSilent{{"v0", 6}, {"v2", 6}}, "", 0},
		"it is silent and the quorum waits": {everyone, []VoterSilent{{"v0", 6}}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, effects := newCandidate(t, func(r *lease.Record, _ *State) { r.Quorum = c.quorum })
			find[AskVote](t, effects)
			asked := s.candidacy.askSent
			for _, in := range c.silent {
				if s, effects = Step(s, asked, in); contains[WriteLease](effects) {
					t.Fatal("claimed at once")
				}
			}
			if c.voted != "" {
				s, _ = Step(s, asked, vote(s, c.voted, 60, true))
			}
			var claims time.Duration
			for waited := time.Duration(0); claims == 0 && waited <= late+second; waited += 100 * time.Millisecond {
				if s, effects = Step(s, asked+waited, Tick{}); contains[WriteLease](effects) {
					claims = waited
				}
				if s.Phase == Standby && waited < late {
					t.Errorf("it gives up after %s", waited)
				}
			}
			if claims != c.claims {
				t.Errorf("claims after %s, want %s", claims, c.claims)
			}
		})
	}
}

// A volume without data is a witness of nothing: its vote does not stand for the quorum's.
func TestRule10VoteOfAnEmptyVolumeIsNone(t *testing.T) {
	for _, empty := range []bool{false, true} {
		s, effects := newCandidate(t, func(r *lease.Record, _ *State) { r.Quorum = everyone })
		find[AskVote](t, effects)
		reply := vote(s, "v2", 60, true)
		if empty {
			reply.WAL = WAL{}
		}
		if s, effects = Step(s, 13*second, reply); contains[WriteLease](effects) {
			t.Fatal("claimed before the others could answer")
		}
		if _, effects = Step(s, 60*second, Tick{}); contains[WriteLease](effects) == empty {
			t.Errorf("empty %t: %v", empty, effects)
		}
	}
}

func TestRule10AcknowledgedWALDecidesWhoMayLead(t *testing.T) {
	for name, c := range map[string]struct {
		quorum   *lease.Quorum
		maxLag   uint64
		known    uint64
		campaign bool
	}{
		"no limit":                             {nil, 0, 100, true},
		"within maxLag":                        {nil, 40, 100, true},
		"beyond maxLag":                        {nil, 39, 100, false},
		"all that the quorum acknowledged":     {everyone, 0, 60, true},
		"less than the quorum acknowledged":    {everyone, 0, 61, false},
		"maxLag is no matter of a synchronous": {everyone, 1, 60, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, effects := newCandidate(t, func(r *lease.Record, s *State) {
				r.Quorum, r.Acknowledged, s.Config.MaxLag = c.quorum, lease.Position{Timeline: 5, LSN: c.known}, c.maxLag
			})
			if contains[AskVote](effects) != c.campaign || (s.stalled == "") != c.campaign {
				t.Errorf("%v, %q", effects, s.stalled)
			}
		})
	}
}

// A member with less WAL that asks again and again does not keep the better one
// from winning.
func TestRule10BetterMemberDoesNotWait(t *testing.T) {
	s, _ := newCandidate(t, func(*lease.Record, *State) {})
	raised := vote(s, "v2", 50, false)
	raised.Promised, raised.Timeline = s.term+3, s.timeline+2
	s, _ = Step(s, 13*second, raised)
	s, _ = Step(s, 13*second, vote(s, "v0", 50, false))
	if s.Phase != Standby || s.candidacy.after > 14*second {
		t.Fatalf("phase %d, not before %s", s.Phase, s.candidacy.after)
	}
	s, _ = Step(s, 14*second, Tick{})
	if s.Phase != Stopping || s.term <= raised.Promised || s.timeline <= raised.Timeline {
		t.Errorf("phase %d, term %d, timeline %d", s.Phase, s.term, s.timeline)
	}
	weak := VoteRequest{From: "v2", Term: 90, Timeline: 90, Base: s.lease.version, BaseAge: s.lease.record.Age(), Flushed: lease.Position{Timeline: 5, LSN: 50}}
	weak.WAL = WAL{Flushed: lease.Position{Timeline: 5, LSN: 60}, Timelines: []int64{5}}
	s.Phase = Standby
	if s, effects := Step(s, 14*second, weak); s.Phase != Standby || find[Vote](t, effects).Reply.Granted {
		t.Errorf("voted for less WAL: %v", effects)
	}
}

func TestRule10ForcedMemberLeadsWithoutVotes(t *testing.T) {
	s := newMember(t, "v1", "p2")
	s.Disk.Known.Quorum = everyone
	var effects []Effect
	for now := 2 * second; now <= 14*second; now += 2 * second {
		s, _ = readAt(s, now, lease.Missing, "", lease.Record{})
		if s, effects = Step(s, now, ForceRequest{"once"}); (len(effects) > 0) != (now >= 12*second) {
			t.Fatalf("after %s: %v", now, effects)
		}
		if len(effects) > 0 {
			break
		}
	}
	s, _ = Step(s, 12*second, ReceiverStopped{WAL{Flushed: lease.Position{Timeline: 5, LSN: 60}, Timelines: []int64{5}}})
	s, effects = Step(s, 15*second, Tick{})
	w := find[WriteLease](t, effects)
	if w.Base != (lease.Version{}) || w.Record.HolderVolume != "v1" || w.Record.Term != 6 || w.Record.Timeline != 6 || w.Record.Quorum != everyone {
		t.Errorf("got %+v", w)
	}
	if s.Disk.Forced != "once" {
		t.Error("the request is not on the volume")
	}
	s, effects = Step(s, 15*second, LeaseWritten{Answer: lease.Done, Version: lease.Version{UID: "u", Resource: "1"}, Sent: 15 * second})
	find[Promote](t, effects)
	s, _ = Step(s, 16*second, ServerFailed{6})
	for now := 17 * second; now <= 40*second; now += 2 * second {
		s, _ = readAt(s, now, lease.Done, "1", w.Record)
		if _, effects = Step(s, now, ForceRequest{"once"}); len(effects) > 0 {
			t.Fatalf("forced twice, after %s: %v", now, effects)
		}
	}
	if s, _ = Step(s, 40*second, ForceRequest{"again"}); s.Phase != Stopping {
		t.Errorf("the next request begins nothing: phase %d", s.Phase)
	}
}

// A request is not used up by a claim that is not on the Lease, and it is by one that is,
// whatever became of it.
func TestRule10ForceIsKeptWhenItsClaimIsNotDone(t *testing.T) {
	version := func(v string) lease.Version { return lease.Version{UID: "u", Resource: v} }
	const sent = 18 * second
	unanswered := func(s State) State {
		s, _ = Step(s, sent+second, LeaseWritten{Answer: lease.Unanswered, Sent: sent})
		return s
	}
	read := func(s State, at string, r lease.Record) (State, []Effect) {
		return readAt(s, sent+2*second, lease.Done, at, r)
	}
	// foundThenRefused has the claim found on the Lease, and the write that repeats it
	// fail.
	foundThenRefused := func(s State, claim lease.Record) (State, []Effect) {
		s, effects := read(unanswered(s), "2", claim)
		w := find[WriteLease](t, effects)
		return Step(s, sent+2*second, LeaseWritten{Answer: lease.Conflict, Sent: w.Sent})
	}
	for name, c := range map[string]struct {
		answer func(s State, claim lease.Record) (State, []Effect)
		kept   bool
	}{
		"another client was first": {func(s State, _ lease.Record) (State, []Effect) {
			return Step(s, sent, LeaseWritten{Answer: lease.Conflict, Sent: sent})
		}, true},
		"it is not allowed": {func(s State, _ lease.Record) (State, []Effect) {
			return Step(s, sent, LeaseWritten{Answer: lease.Forbidden, Sent: sent})
		}, true},
		"no answer, and the Lease is as before": {func(s State, _ lease.Record) (State, []Effect) { return read(unanswered(s), "1", baseRecord) }, true},
		"no answer, and the Lease is gone": {func(s State, _ lease.Record) (State, []Effect) {
			return readAt(unanswered(s), sent+2*second, lease.Missing, "", lease.Record{})
		}, true},
		"no answer, and a later term": {func(s State, claim lease.Record) (State, []Effect) {
			claim.HolderUID, claim.HolderVolume, claim.Term, claim.Timeline, claim.HighestTimeline = "p9", "v2", claim.Term+1, claim.Timeline+1, claim.Timeline+1
			return read(unanswered(s), "3", claim)
		}, false},
		"it was found, and then another client was first": {foundThenRefused, false},
		"it is done too late to lead": {func(s State, claim lease.Record) (State, []Effect) {
			s, effects := read(unanswered(s), "2", claim)
			w := find[WriteLease](t, effects)
			return Step(s, sent+9*second, LeaseWritten{Answer: lease.Done, Version: version("3"), Sent: w.Sent})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newMember(t, "v1", "p2")
			s.Disk.Known, s.Disk.Forced = baseRecord, "earlier"
			for now := 2 * second; now <= 14*second; now += 2 * second {
				s, _ = readAt(s, now, lease.Done, "1", baseRecord)
			}
			s.Phase = Standby // its own candidacy had begun
			s, _ = Step(s, 14*second, ForceRequest{"once"})
			s, _ = Step(s, 14*second, ReceiverStopped{WAL{Flushed: lease.Position{Timeline: 5, LSN: 60}, Timelines: []int64{5}}})
			s, effects := Step(s, sent, Tick{})
			claim := find[WriteLease](t, effects).Record
			if s.Phase != Claiming || s.Disk.Forced != "once" || claim.ForcedTimeline != claim.Timeline {
				t.Fatalf("phase %d, forced by %q: %+v", s.Phase, s.Disk.Forced, claim)
			}
			s, effects = c.answer(s, claim)
			want := map[bool]string{true: "earlier", false: "once"}[c.kept]
			if s.Phase != Standby || s.Disk.Forced != want {
				t.Errorf("phase %d, forced by %q, want %q", s.Phase, s.Disk.Forced, want)
			}
			if c.kept && find[Persist](t, effects).Disk.Forced != want {
				t.Errorf("%q is on the volume", find[Persist](t, effects).Disk.Forced)
			}
		})
	}
}

// A primary that is cut off from the API server asks the volumes on record only.
func TestRule10VolumeThatIsNotOnRecordIsNotForced(t *testing.T) {
	s := newMember(t, "v9", "p2")
	for now := 2 * second; now <= 14*second; now += 2 * second {
		s, _ = readAt(s, now, lease.Done, "1", baseRecord)
	}
	if s, effects := Step(s, 14*second, ForceRequest{"once"}); contains[StopReceiver](effects) || s.stalled == "" {
		t.Errorf("got %v", effects)
	}
}

// A quorum is left by the Lease first, and entered by the server first.
func TestRule15QuorumChangesInSafeSteps(t *testing.T) {
	s := newPrimary(t, everyone)
	s, _ = Step(s, 11*second, MembersWanted{Volumes: []string{"v0", "v1"}, Quorum: &lease.Quorum{Volumes: []string{"v0", "v1"}, Write: 1}})
	s, effects := Step(s, 11*second, Tick{})
	w := find[WriteLease](t, effects)
	if w.Record.Revision != 1 || w.Record.Quorum.Write != 1 || slices.Contains(w.Record.Quorum.Volumes, "v2") || !w.Record.MayLead("v2") {
		t.Fatalf("first %+v: v2 still acknowledges", w.Record)
	}
	if contains[SetQuorum](effects) {
		t.Fatal("the server learns of it before the Lease")
	}
	unsure, _ := Step(s, 13*second, Tick{}) // no answer
	if _, effects := Step(unsure, 13*second, MembersWanted{}); contains[SetQuorum](effects) {
		t.Error("the server learns of it while the outcome is unknown")
	}
	s, effects = Step(s, 11*second, LeaseWritten{Answer: lease.Done, Version: lease.Version{UID: "u", Resource: "2"}, Sent: 11 * second})
	set := find[SetQuorum](t, effects)
	if s, effects = Step(s, 12*second, Tick{}); contains[WriteLease](effects) {
		t.Errorf("the Lease changes while the server does: %v", effects)
	}
	s, _ = Step(s, 12*second, QuorumSet{set.ID - 1})
	if s, _ := Step(s, 12*second, Tick{}); !s.leadership.quorum.setting {
		t.Error("the answer to an earlier change counts")
	}
	s, _ = Step(s, 12*second, QuorumSet{set.ID})
	_, effects = Step(s, 12*second, Tick{})
	if w := find[WriteLease](t, effects); w.Record.MayLead("v2") || w.Record.Revision != 2 {
		t.Errorf("at the end %+v", w.Record)
	}
}

// A server that waits for a member that is gone gets another quorum.
func TestRule15StuckChangeIsRedirected(t *testing.T) {
	s := newPrimary(t, everyone)
	s.leadership.quorum.setting, s.leadership.quorum.settingID, s.leadership.quorum.effective = true, 7, &lease.Quorum{Volumes: []string{"v0", "v2"}, Write: 2}
	s, _ = Step(s, 11*second, MembersWanted{Volumes: []string{"v0", "v1"}, Quorum: &lease.Quorum{Volumes: []string{"v0", "v1"}, Write: 2}})
	s, _ = Step(s, 12*second, Tick{}) // covered by the Lease already
	_, effects := Step(s, 12*second, LeaseWritten{Answer: lease.Done, Version: lease.Version{UID: "u", Resource: "2"}, Sent: 12 * second})
	if set := find[SetQuorum](t, effects); set.ID != 8 || set.Quorum.Volumes[1] != "v1" {
		t.Errorf("got %+v", set)
	}
}

// A change whose answer was lost is not taken back by the next write: members that
// have read it would take that for an older Lease.
func TestRule15LostAnswerTakesNoChangeBack(t *testing.T) {
	wish := MembersWanted{Volumes: []string{"v0", "v1", "v2"}, Quorum: &lease.Quorum{Volumes: []string{"v0", "v1", "v2"}, Write: 1}}
	for name, c := range map[string]struct {
		answer   lease.Answer
		done     bool
		revision int64
		write    int
	}{
		"it was done":       {lease.Done, true, 1, 1},
		"it was not done":   {lease.Done, false, 1, 1}, // and is written again
		"the Lease is lost": {lease.Missing, false, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := Step(newPrimary(t, everyone), 11*second, wish)
			s, effects := Step(s, 11*second, Tick{})
			record := s.lease.record
			if c.done {
				record = find[WriteLease](t, effects).Record
			}
			if c.answer == lease.Missing {
				record = lease.Record{}
			}
			_, effects = readAt(s, 13*second, c.answer, "2", record)
			w := find[WriteLease](t, effects).Record
			if w.Revision != c.revision || w.Quorum.Write != c.write {
				t.Errorf("revision %d, quorum %+v", w.Revision, w.Quorum)
			}
		})
	}
}

func TestRule15WrongWishEndsNothing(t *testing.T) {
	for name, wish := range map[string]MembersWanted{
		"without the primary": {Quorum: &lease.Quorum{Volumes: []string{"v1"}, Write: 1}},
		"no member can write": {Quorum: &lease.Quorum{Volumes: []string{"v0"}, Write: 2}},
		"an unnamed volume":   {Volumes: []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := Step(newPrimary(t, everyone), 11*second, wish)
			s, effects := Step(s, 13*second, Tick{})
			if w := find[WriteLease](t, effects); w.Record.Revision != 0 || s.Phase != Leading {
				t.Errorf("got %+v", w)
			}
		})
	}
}

// A volume that a write of unknown outcome may have admitted could be elected.
func TestRule16AsksAllThatMayHaveBeenAdmitted(t *testing.T) {
	s := newPrimary(t, nil)
	s, _ = Step(s, 11*second, MembersWanted{Volumes: []string{"v0", "v1", "v2", "v3"}})
	s, effects := Step(s, 11*second, Tick{})
	if !find[WriteLease](t, effects).Record.MayLead("v3") {
		t.Fatal("not admitted")
	}
	s, effects = Step(s, 13*second, Tick{})
	var asked []string
	for _, e := range effects {
		if ask, is := e.(AskConfirm); is {
			asked = append(asked, ask.To)
		}
	}
	if !slices.Equal(asked, []string{"v1", "v2", "v3"}) {
		t.Fatalf("asked %v", asked)
	}
	before := s.leadership.deadlines
	for _, v := range asked {
		if s.leadership.deadlines != before {
			t.Errorf("relied on before %s confirmed", v)
		}
		s, _ = Step(s, 13*second, ConfirmReply{From: v, Term: 5, Sent: 13 * second, Confirmed: true})
	}
	if s.leadership.deadlines.Fence != 20*second {
		t.Errorf("the deadline is %s", s.leadership.deadlines.Fence)
	}
}

// The only member that may lead needs no promise.
func TestRule16OnlyMemberServesThroughAnOutage(t *testing.T) {
	s := newPrimary(t, nil)
	s.lease.record.Volumes = []string{"v0"}
	s.requests.pending = s.lease.record
	for now := 10 * second; now < 60*second; now += second / 2 {
		if s, _ = Step(s, now, Tick{}); s.Phase != Leading {
			t.Fatalf("phase %d after %s", s.Phase, now)
		}
	}
}

// Neither side waits for a timeout that the other one waits for, too.
func TestRule16OutageIsFoundTogether(t *testing.T) {
	s := newPrimary(t, nil)
	s, _ = Step(s, 12*second, Tick{})
	if _, effects := Step(s, 12*second+600*time.Millisecond, Tick{}); !contains[AskConfirm](effects) {
		t.Error("the primary waits for its own timeout")
	}
	m, _ := readAt(newMember(t, "v1", "p2"), 12*second, lease.Done, "1", baseRecord)
	m, effects := Step(m, 12*second+600*time.Millisecond, ConfirmRequest{From: "v0", Term: 5})
	if find[Confirm](t, effects).Reply.Confirmed || !contains[ReadLease](effects) {
		t.Errorf("the member does not read: %v", effects)
	}
	m, _ = Step(m, 12*second+600*time.Millisecond+m.Config.Timing.RequestTimeout(), Tick{})
	if _, effects := Step(m, 15*second, ConfirmRequest{From: "v0", Term: 5}); !find[Confirm](t, effects).Reply.Confirmed {
		t.Error("the member does not confirm")
	}
}

func TestRule17SwitchoverIsRefusedOrReleasesForItsTarget(t *testing.T) {
	old := newPrimary(t, everyone)
	old.leadership.renewed = second
	outage := newPrimary(t, everyone)
	outage.requests.outage = true
	for name, c := range map[string]struct {
		state  State
		target string
	}{
		"no fresh renewal": {old, "v1"}, "an outage": {outage, "v1"}, "itself": {newPrimary(t, everyone), "v0"},
		"an unknown volume": {newPrimary(t, everyone), "v9"}, "no primary": {newMember(t, "v1", "p2"), "v0"},
	} {
		t.Run(name, func(t *testing.T) {
			s, effects := Step(c.state, 11*second, SwitchoverRequest{Target: c.target})
			if find[RefuseSwitchover](t, effects); s.Phase == Ending {
				t.Error("it shuts down")
			}
		})
	}
	s, effects := Step(newPrimary(t, everyone), 11*second, SwitchoverRequest{Target: "v1"})
	find[StopServer](t, effects)
	s, effects = Step(s, 12*second, Tick{}) // it renews while it stops
	renewal := find[WriteLease](t, effects)
	s, effects = Step(s, 12*second, ServerStopped{lease.Position{Timeline: 5, LSN: 70}})
	if contains[WriteLease](effects) {
		t.Error("released beside a renewal that is under way")
	}
	_, effects = Step(s, 12*second, LeaseWritten{Answer: lease.Done, Version: lease.Version{UID: "u", Resource: "2"}, Sent: renewal.Sent})
	released := find[WriteLease](t, effects).Record
	if !released.IsReleased() || released.Successor != "v1" {
		t.Fatalf("got %+v", released)
	}
	for volume, takes := range map[string]bool{"v1": true, "v2": false} {
		m := newMember(t, volume, "p2")
		m.Disk.Known = released
		m, _ = readAt(m, 2*second, lease.Done, "2", released)
		if m, _ = Step(m, 3*second, Tick{}); (m.Phase == Stopping) != takes {
			t.Errorf("%s: phase %d", volume, m.Phase)
		}
	}
}

func TestRule18MemberInARewindNeitherVotesNorLeads(t *testing.T) {
	released, err := baseRecord.Release("p1", 5, lease.Position{Timeline: 5, LSN: 60}, "")
	if err != nil {
		t.Fatal(err)
	}
	s, effects := Step(newMember(t, "v1", "p2"), second, RewindBegun{})
	if !find[Persist](t, effects).Disk.Rewinding {
		t.Error("not on the volume")
	}
	request := VoteRequest{From: "v2", Term: 9, Timeline: 9, Base: lease.Version{UID: "u", Resource: "1"}, BaseAge: released.Age()}
	s, _ = readAt(s, 2*second, lease.Done, "1", released)
	if s, effects := Step(s, 3*second, request); s.Phase == Voting || !find[Vote](t, effects).Reply.NoFailover {
		t.Errorf("votes: %v", effects)
	}
	if s, _ := Step(s, 3*second, Tick{}); s.Phase != Standby {
		t.Error("is a candidate")
	}
	s, _ = Step(s, 4*second, RewindEnded{"s", []int64{5}})
	if s, _ := Step(s, 5*second, request); s.Phase != Voting {
		t.Error("does not vote after it")
	}
}

// A claim that is answered after the data began to be replaced wins no term to lead in.
func TestRule18ClaimOfDataThatIsReplacedDoesNotLead(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		s, write, now := newClaimant(t)
		if replaced {
			s, _ = Step(s, now, RewindBegun{})
		}
		s, effects := Step(s, now, LeaseWritten{Answer: lease.Done, Version: lease.Version{UID: "u", Resource: "2"}, Sent: write.Sent})
		if contains[Promote](effects) == replaced || s.IsPrimary() == replaced {
			t.Errorf("replaced %t: phase %d, %v", replaced, s.Phase, effects)
		}
	}
}
