package election

import (
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// releasedRecord was given up at 60 of timeline 5 by the member on v0.
func releasedRecord(t *testing.T) lease.Record {
	t.Helper()
	released, err := baseRecord.Release("p1", 5, lease.Position{Timeline: 5, LSN: 60}, "")
	if err != nil {
		t.Fatal(err)
	}
	return released
}

// A member whose data is held neither votes nor begins a candidacy, and says why. It
// does both once the reason is gone.
func TestRule9HeldMemberNeitherVotesNorLeads(t *testing.T) {
	released := releasedRecord(t)
	request := VoteRequest{From: "v2", Term: 9, Timeline: 9, Base: lease.Version{UID: "u", Resource: "1"}, BaseAge: released.Age()}
	s, _ := Step(newMember(t, "v1", "p2"), second, Held{Reason: "the data is diverged"})
	s, _ = readAt(s, 2*second, lease.Done, "1", released)
	if s, effects := Step(s, 3*second, request); s.Phase != Standby || find[Vote](t, effects).Reply.Granted || contains[StopReceiver](effects) {
		t.Errorf("votes: %v", effects)
	}
	if s, effects := Step(s, 3*second, Tick{}); s.Phase != Standby || contains[StopReceiver](effects) {
		t.Errorf("is a candidate: %v", effects)
	}
	if s, effects := Step(s, 3*second, ForceRequest{"once"}); s.Phase != Standby || contains[StopReceiver](effects) {
		t.Errorf("is forced: %v", effects)
	}
	for now := 4 * second; now <= 16*second; now += 2 * second { // and says so once the Lease has expired
		s, _ = readAt(s, now, lease.Done, "1", released)
	}
	if s, _ = Step(s, 17*second, Tick{}); s.stalled != "the data is diverged" {
		t.Errorf("stalled for %q", s.stalled)
	}
	s, _ = Step(s, 17*second, Held{})
	if voted, _ := Step(s, 17*second, request); voted.Phase != Voting {
		t.Error("does not vote afterwards")
	}
	if s, _ = Step(s, 18*second, Tick{}); s.Phase != Stopping {
		t.Errorf("no candidate afterwards: phase %d, %q", s.Phase, s.stalled)
	}
}

// A full volume whose data is whole takes a promise: its member votes with its WAL, and
// does not lead.
func TestRule9MemberWithAFullVolumeVotes(t *testing.T) {
	released := releasedRecord(t)
	held := Held{Reason: "the volume is full", Votes: true}
	request := VoteRequest{From: "v2", Term: 9, Timeline: 9, Base: lease.Version{UID: "u", Resource: "1"}, BaseAge: released.Age(), Flushed: lease.Position{Timeline: 5, LSN: 60}}
	stopped := ReceiverStopped{WAL{Flushed: lease.Position{Timeline: 5, LSN: 60}, Timelines: []int64{5}}}
	s, _ := Step(newMember(t, "v1", "p2"), second, held)
	s, _ = readAt(s, 2*second, lease.Done, "1", released)
	if s, effects := Step(s, 3*second, Tick{}); s.Phase != Standby || contains[StopReceiver](effects) {
		t.Errorf("is a candidate: %v", effects)
	}
	s, _ = Step(s, 3*second, request)
	s, _ = Step(s, 3*second, held) // reported again while the receiver stops
	if _, effects := Step(s, 4*second, stopped); !find[Vote](t, effects).Reply.Granted {
		t.Errorf("does not vote: %v", effects)
	}
}

// What a member was about to do is given up when its data is held.
func TestRule9HeldMemberGivesUpWhatItBegan(t *testing.T) {
	released := releasedRecord(t)
	request := VoteRequest{From: "v2", Term: 9, Timeline: 9, Base: lease.Version{UID: "u", Resource: "1"}, BaseAge: released.Age()}
	stopped := ReceiverStopped{WAL{Flushed: lease.Position{Timeline: 5, LSN: 60}, Timelines: []int64{5}}}
	for phase, begin := range map[Phase]Input{Voting: request, Stopping: Tick{}} {
		for _, reason := range []Input{Held{Reason: "the WAL is missing"}, RewindBegun{}} {
			s, _ := readAt(newMember(t, "v1", "p2"), 2*second, lease.Done, "1", released)
			if s, _ = Step(s, 3*second, begin); s.Phase != phase {
				t.Fatalf("phase %d, want %d", s.Phase, phase)
			}
			s, _ = Step(s, 3*second, reason)
			s, effects := Step(s, 4*second, stopped)
			if s.Phase != Standby || contains[Vote](effects) || contains[AskVote](effects) || contains[WriteLease](effects) {
				t.Errorf("from phase %d by %T: phase %d, %v", phase, reason, s.Phase, effects)
			}
		}
	}
	s, _ := Step(newPrimary(t, nil), 11*second, Held{Reason: "the data is diverged"})
	if s.Phase != Leading {
		t.Errorf("a primary ends its term: phase %d", s.Phase)
	}
}

// The limits are those that the cluster declared last.
func TestRule10LimitsAreReplaced(t *testing.T) {
	released := releasedRecord(t)
	s, _ := readAt(newMember(t, "v1", "p2"), 2*second, lease.Done, "1", released)
	kept, _ := Step(s, 3*second, LimitsWanted{NoFailover: true})
	if kept, effects := Step(kept, 3*second, Tick{}); kept.Phase != Standby || contains[StopReceiver](effects) {
		t.Errorf("noFailover is not heeded: phase %d", kept.Phase)
	}
	request := VoteRequest{From: "v2", Term: 9, Timeline: 9, Base: lease.Version{UID: "u", Resource: "1"}, BaseAge: released.Age()}
	voting, _ := Step(kept, 3*second, request)
	_, effects := Step(voting, 3*second, ReceiverStopped{WAL{Flushed: lease.Position{Timeline: 5, LSN: 60}, Timelines: []int64{5}}})
	if reply := find[Vote](t, effects).Reply; !reply.Granted || !reply.NoFailover {
		t.Errorf("its vote is %+v", reply)
	}
	free, _ := Step(kept, 4*second, LimitsWanted{})
	if free, _ = Step(free, 4*second, Tick{}); free.Phase != Stopping {
		t.Errorf("the limit is not lifted: phase %d", free.Phase)
	}

	for lag, campaigns := range map[uint64]bool{40: true, 39: false} {
		s, effects := newCandidate(t, func(r *lease.Record, s *State) {
			r.Acknowledged = lease.Position{Timeline: 5, LSN: 100}
			*s, _ = Step(*s, second, LimitsWanted{MaxLag: lag})
		})
		if contains[AskVote](effects) != campaigns {
			t.Errorf("maxLag %d: %v, %q", lag, effects, s.stalled)
		}
	}
}

// A standby reads the Lease at once when another member says that it may be free. One
// that waits for an answer, or has another role, does not.
func TestRule17LeaseThatMayBeFreeIsReadAtOnce(t *testing.T) {
	s, _ := readAt(newMember(t, "v1", "p2"), 2*second, lease.Done, "1", baseRecord)
	s, effects := Step(s, 2*second+1, LeaseChanged{})
	find[ReadLease](t, effects)
	if _, effects := Step(s, 2*second+2, LeaseChanged{}); contains[ReadLease](effects) {
		t.Errorf("reads twice at a time: %v", effects)
	}
	s, _ = Step(s, 3*second, LeaseRead{lease.Reading{
		Answer: lease.Done, Version: lease.Version{UID: "u", Resource: "2"}, Record: releasedRecord(t), Sent: 2*second + 1, Received: 3 * second,
	}})
	if s, _ = Step(s, 3*second, Tick{}); s.Phase != Stopping {
		t.Errorf("the free Lease is not taken: phase %d", s.Phase)
	}
	if _, effects := Step(newPrimary(t, nil), 11*second, LeaseChanged{}); len(effects) > 0 {
		t.Errorf("a primary: %v", effects)
	}
}

// A member that gave its vote leaves the Lease to the candidate for a while. Once that
// has led and released it, nothing is waited for any more.
func TestRule17VoteOfAnEarlierTermDelaysNoTakeover(t *testing.T) {
	s := newMember(t, "v1", "p2")
	for now := 2 * second; now <= 12*second; now += 2 * second {
		s, _ = readAt(s, now, lease.Done, "1", baseRecord)
	}
	s.Phase = Standby // its own candidacy is not the point here
	s, _ = Step(s, 12*second, VoteRequest{From: "v2", Term: 6, Timeline: 6, Base: s.lease.version, BaseAge: baseRecord.Age(), Flushed: lease.Position{Timeline: 5, LSN: 100}})
	s, _ = Step(s, 12*second, ReceiverStopped{WAL{Flushed: lease.Position{Timeline: 5, LSN: 100}, Timelines: []int64{5}}})
	s, _ = Step(s, 12*second+1, Tick{})
	if s.Phase != Standby || s.Disk.Promised != 6 {
		t.Fatalf("competes with the candidate that it voted for: phase %d, promised %d", s.Phase, s.Disk.Promised)
	}
	won := baseRecord
	won.HolderUID, won.HolderVolume, won.Term, won.Timeline, won.HighestTimeline, won.ReachedTimeline = "p3", "v2", 6, 6, 6, 6
	released, err := won.Release("p3", 6, lease.Position{Timeline: 6, LSN: 200}, "v1")
	if err != nil {
		t.Fatal(err)
	}
	s, _ = readAt(s, 13*second, lease.Done, "2", won)
	s.Disk.Timelines = []int64{5, 6} // it follows the candidate
	s, _ = readAt(s, 15*second, lease.Done, "3", released)
	s, _ = Step(s, 15*second, Tick{})
	if s.Phase != Stopping || s.term != 7 {
		t.Errorf("the Lease released to it is not taken: phase %d, term %d", s.Phase, s.term)
	}
}

// The last holder does not lead with less than the Lease recorded of its volume, also
// in asynchronous mode. A record that it has only a part of counts as held: its server
// may have called that flushed.
func TestRule12OlderVolumeOfTheLastHolderDoesNotLead(t *testing.T) {
	for name, c := range map[string]struct {
		volume string
		wal    WAL
		older  bool
	}{
		"all that was recorded":                 {"v1", WAL{Flushed: lease.Position{Timeline: 5, LSN: 100}}, false},
		"less than was recorded":                {"v1", WAL{Flushed: lease.Position{Timeline: 5, LSN: 99}}, true},
		"a part of the last record":             {"v1", WAL{Flushed: lease.Position{Timeline: 5, LSN: 90}, Reach: 100}, false},
		"too small a part of it":                {"v1", WAL{Flushed: lease.Position{Timeline: 5, LSN: 90}, Reach: 99}, true},
		"another member may have received less": {"v0", WAL{Flushed: lease.Position{Timeline: 5, LSN: 99}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newMember(t, "v1", "p2")
			record := baseRecord
			record.HolderVolume, record.Acknowledged = c.volume, lease.Position{Timeline: 5, LSN: 100}
			s.Disk.Known = record
			var effects []Effect
			for now := 2 * second; now <= 20*second; now += 2 * second {
				if s, effects = readAt(s, now, lease.Done, "1", record); contains[StopReceiver](effects) {
					break
				}
			}
			c.wal.Timelines = []int64{5}
			s, effects = Step(s, 20*second, ReceiverStopped{c.wal})
			if contains[AskVote](effects) == c.older || strings.HasPrefix(s.stalled, OlderVolume) != c.older {
				t.Errorf("%v, %q", effects, s.stalled)
			}
		})
	}
}

// A member that may not lead shows what it received from the last holder's volume: a server
// streams nothing that it has not flushed. Of what another member wrote it shows nothing.
func TestRule12OlderVolumeThatStreamedMoreDoesNotLead(t *testing.T) {
	for name, c := range map[string]struct {
		holder string
		vote   func(*VoteReply)
		older  bool
	}{
		"it received more":                     {"v1", func(*VoteReply) {}, true},
		"it refuses":                           {"v1", func(v *VoteReply) { v.Granted = false }, true},
		"it received as much":                  {"v1", func(v *VoteReply) { v.WAL.Flushed.LSN = 60 }, false},
		"it received a part that this one has": {"v1", func(v *VoteReply) { v.WAL.Flushed.LSN = 65 }, false},
		"it has more of an earlier timeline":   {"v1", func(v *VoteReply) { v.WAL.Flushed.Timeline = 4 }, false},
		"it has a timeline of no term":         {"v1", func(v *VoteReply) { v.WAL.Flushed.Timeline = 6 }, false},
		"it is of another database":            {"v1", func(v *VoteReply) { v.SystemIdentifier = "other" }, false},
		"another member led":                   {"v0", func(*VoteReply) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newCandidate(t, func(r *lease.Record, _ *State) {
				r.HolderVolume, r.Acknowledged = c.holder, lease.Position{Timeline: 5, LSN: 50}
			})
			s.wal.Reach = 65
			ahead := vote(s, "v2", 70, true)
			ahead.NoFailover = true
			c.vote(&ahead)
			s, _ = Step(s, 13*second, ahead)
			s, effects := Step(s, 13*second, vote(s, "v0", 60, true))
			if contains[WriteLease](effects) == c.older || strings.HasPrefix(s.stalled, OlderVolume) != c.older {
				t.Errorf("%v, %q", effects, s.stalled)
			}
		})
	}
}

// What a reply showed is kept on the volume: the member that gave it may not answer the
// next time. It is for that term's timeline only, and for a volume that lacks it.
func TestRule12WhatWasStreamedIsRemembered(t *testing.T) {
	led := func(r *lease.Record, _ *State) {
		r.HolderVolume, r.Acknowledged = "v1", lease.Position{Timeline: 5, LSN: 50}
	}
	s, _ := newCandidate(t, led)
	ahead := vote(s, "v2", 70, true)
	ahead.NoFailover = true
	_, effects := Step(s, 13*second, ahead)
	if disk := find[Persist](t, effects).Disk; disk.Streamed != ahead.WAL.Flushed {
		t.Fatalf("keeps %v", disk.Streamed)
	}
	for name, c := range map[string]struct {
		streamed lease.Position
		timeline int64
		older    bool
	}{
		"the same data":             {lease.Position{Timeline: 5, LSN: 70}, 5, true},
		"the newer volume is back":  {lease.Position{Timeline: 5, LSN: 60}, 5, false},
		"it led in a later term":    {lease.Position{Timeline: 5, LSN: 70}, 6, false},
		"of which it lacks the end": {lease.Position{Timeline: 6, LSN: 70}, 6, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, effects := newCandidate(t, func(r *lease.Record, s *State) {
				led(r, s)
				r.Timeline, r.HighestTimeline = c.timeline, c.timeline
				s.Disk.Streamed = c.streamed
			})
			if contains[AskVote](effects) == c.older || strings.HasPrefix(s.stalled, OlderVolume) != c.older {
				t.Errorf("%v, %q", effects, s.stalled)
			}
		})
	}
	less := vote(s, "v2", 65, true)
	s.Disk.Streamed = ahead.WAL.Flushed
	if s.recordStreamed(less); s.Disk.Streamed != ahead.WAL.Flushed {
		t.Errorf("after a vote with less: keeps %v", s.Disk.Streamed)
	}
	if s.Disk.endRewind(RewindEnded{SystemIdentifier: "s"}); s.Disk.Streamed != (lease.Position{}) {
		t.Errorf("after the data was replaced: keeps %v", s.Disk.Streamed)
	}
	disk := Persistent{Streamed: ahead.WAL.Flushed, Known: baseRecord}
	later := baseRecord
	later.Term, later.Timeline, later.HighestTimeline = 9, 9, 9
	if disk.recordKnown(later); disk.Streamed != (lease.Position{}) {
		t.Errorf("after a later term: keeps %v", disk.Streamed)
	}
}

// The floor holds for a Lease that was given up in order, too: it keeps its last
// holder's volume. A person decides otherwise, and that timeline is known as forced.
func TestRule12OlderVolumeLeadsByRequestOnly(t *testing.T) {
	released := releasedRecord(t)
	if released.HolderVolume != "v0" {
		t.Fatalf("the Lease forgets its last holder's volume: %+v", released)
	}
	s := newMember(t, "v0", "p9")
	s.Disk.Known = released
	older := ReceiverStopped{WAL{Flushed: lease.Position{Timeline: 5, LSN: 50}, Timelines: []int64{5}}}
	s, _ = readAt(s, 2*second, lease.Done, "1", released)
	for now := 3 * second; now <= 30*second && !strings.HasPrefix(s.stalled, OlderVolume); now += second {
		if s.Phase == Stopping {
			var effects []Effect
			if s, effects = Step(s, now, older); contains[WriteLease](effects) || contains[AskVote](effects) {
				t.Fatalf("campaigns: %v", effects)
			}
		}
		s, _ = readAt(s, now, lease.Done, "1", released)
	}
	if !strings.HasPrefix(s.stalled, OlderVolume) {
		t.Fatalf("stalled for %q, phase %d", s.stalled, s.Phase)
	}
	s, effects := Step(s, 31*second, ForceRequest{"once"})
	find[StopReceiver](t, effects)
	s, effects = Step(s, 31*second, older)
	if !contains[WriteLease](effects) { // the others have not answered
		_, effects = Step(s, 36*second, Tick{})
	}
	if w := find[WriteLease](t, effects); w.Record.ForcedTimeline != w.Record.Timeline || w.Record.HolderVolume != "v0" || w.Record.Acknowledged.LSN != 50 {
		t.Errorf("claims %+v", w.Record)
	}
}

// A member without data may read a Lease first that names another database. It goes by
// what the Lease says later; one that has data does not.
func TestRule5IdentifierThatAMemberWithoutDataRead(t *testing.T) {
	for identifier, believes := range map[string]bool{"": true, "s": false} {
		s := newMember(t, "v1", "p2")
		s.Disk.SystemIdentifier, s.Disk.Known = identifier, baseRecord
		s.Disk.Known.SystemIdentifier = "of another database"
		later := baseRecord
		later.Term, later.Timeline, later.HighestTimeline = 6, 6, 6
		if s, _ = readAt(s, 2*second, lease.Done, "2", later); s.lease.readable != believes {
			t.Errorf("with the identifier %q: believed %t", identifier, s.lease.readable)
		}
	}
}

// The pause for a candidate that this member has voted for is not cut short when it looks
// at the expired Lease for the first time.
func TestRule9VoterLeavesTheLeaseToItsCandidate(t *testing.T) {
	s := newMember(t, "v1", "p2")
	for now := 2 * second; now <= 12*second; now += 2 * second {
		s, _ = readAt(s, now, lease.Done, "1", baseRecord)
	}
	s.candidacy.expiredAt = lease.Version{} // it has not looked yet
	s, _ = Step(s, 12*second, VoteRequest{From: "v2", Term: 6, Timeline: 6, Base: s.lease.version, BaseAge: baseRecord.Age(), Flushed: lease.Position{Timeline: 5, LSN: 100}})
	s, _ = Step(s, 12*second, ReceiverStopped{WAL{Flushed: lease.Position{Timeline: 5, LSN: 100}, Timelines: []int64{5}}})
	s, _ = Step(s, 12*second+1, Tick{})
	for now := 13 * second; now < 17*second; now += second {
		if s, _ = readAt(s, now, lease.Done, "1", baseRecord); s.Phase != Standby {
			t.Fatalf("after %s: competes with the candidate that it voted for", now)
		}
	}
}
