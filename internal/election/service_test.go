package election

import (
	"testing"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// promoting has won term 6 at 20 s, after that many terms in which its server failed.
func promoting(t *testing.T, failed int) State {
	t.Helper()
	s, _ := newCandidate(t, func(_ *lease.Record, s *State) { s.Disk.Failed = failed })
	now := s.candidacy.askSent
	s, _ = Step(s, now, vote(s, "v0", 50, true))
	s, effects := Step(s, now, vote(s, "v2", 50, true))
	sent := find[WriteLease](t, effects)
	s, effects = Step(s, now, LeaseWritten{Answer: lease.Done, Version: lease.Version{UID: "u", Resource: "2"}, Sent: sent.Sent})
	if got := find[Persist](t, effects).Disk.Failed; s.Phase != Promoting || got != failed {
		// The first Persist has the record; the one before the promotion counts the term.
		t.Fatalf("phase %d, failed %d", s.Phase, got)
	}
	if s.Disk.Failed != failed+1 {
		t.Fatalf("the term is not counted before its promotion: %d", s.Disk.Failed)
	}
	return s
}

// A server that serves for a while has not failed. One that ends before has, also if it
// was promoted.
func TestRule10FailedTermsAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		in   []Input
		want int
	}{
		"the promotion failed":                  {[]Input{ServerFailed{}}, 2},
		"it crashed soon after the promotion":   {[]Input{Promoted{}, Acknowledged{}, ServerFailed{}}, 2},
		"another member holds the Lease":        {[]Input{LeaseRead{}}, 1},
		"it served for a while":                 {[]Input{Promoted{}, Tick{}, Acknowledged{}}, 0},
		"it served for a while and then failed": {[]Input{Promoted{}, Tick{}, Acknowledged{}, ServerFailed{}}, 1},
		"its data was replaced":                 {[]Input{ServerFailed{}, RewindEnded{SystemIdentifier: "s"}}, 0},
		"it follows a later leader":             {[]Input{ServerFailed{}, Received{Timeline: 99}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := promoting(t, 1)
			now := s.candidacy.askSent + second
			persisted := s.Disk.Failed
			for _, in := range c.in {
				switch in.(type) {
				case ServerFailed:
					in = ServerFailed{s.term}
				case Promoted:
					in = Promoted{s.term, s.timeline}
				case Acknowledged:
					in = Acknowledged{lease.Position{Timeline: s.timeline, LSN: 70}}
				case LeaseRead:
					s.requests.reading, s.requests.readSent, s.requests.ignore = true, now, 0
					in = LeaseRead{lease.Reading{Answer: lease.Done, Sent: now, Received: now, Record: baseRecord}}
				case Tick: // time passes
					now += s.standBackTime()
					s.leadership.deadlines = s.Config.Timing.Deadlines(now)
					continue
				}
				var effects []Effect
				s, effects = Step(s, now, in)
				for _, e := range effects {
					if p, is := e.(Persist); is {
						persisted = p.Disk.Failed
					}
				}
			}
			if s.Disk.Failed != c.want || persisted != c.want {
				t.Errorf("failed %d, on the volume %d, want %d", s.Disk.Failed, persisted, c.want)
			}
		})
	}
}

// A member whose server did not come to serve again and again leaves the Lease to the
// others for a while, and then tries again.
func TestRule10MemberThatFailsStandsBack(t *testing.T) {
	s := newMember(t, "v1", "p2")
	s.Disk.Failed = failedLimit
	began := 0 * second
	for now := 2 * second; began == 0 && now < 200*second; now += 2 * second {
		s, _ = readAt(s, now, lease.Done, "1", baseRecord)
		if s, _ = Step(s, now, Tick{}); s.Phase == Stopping {
			began = now
		}
	}
	if began < 12*second+s.standBackTime() || began > 20*second+s.standBackTime() {
		t.Errorf("began after %s", began)
	}
	if s.stalled == "" {
		t.Error("the reason is not reported")
	}
}

// It votes for less WAL than its own, says that it does not lead, and blocks no other
// member. A mandatory vote counts all the same.
func TestRule10MemberThatStandsBackVotes(t *testing.T) {
	for name, c := range map[string]struct {
		quorum *lease.Quorum
		failed int
		wins   bool
	}{
		"it may still lead": {nil, failedLimit - 1, false},
		"asynchronous":      {nil, failedLimit, true},
		"its vote stands for an acknowledged write": {everyone, failedLimit, false},
	} {
		t.Run(name, func(t *testing.T) {
			record := baseRecord
			record.Quorum = c.quorum
			voter := newMember(t, "v2", "p3")
			voter.Disk.Failed, voter.Disk.Known = c.failed, record
			for now := 2 * second; now <= 14*second; now += 2 * second {
				voter, _ = readAt(voter, now, lease.Done, "1", record)
			}
			s, effects := newCandidate(t, func(r *lease.Record, _ *State) { *r = record })
			request := find[AskVote](t, effects).Request
			more := WAL{Flushed: lease.Position{Timeline: 5, LSN: 90}, Timelines: []int64{5}}
			request.WAL = more
			voter, effects = Step(voter, 15*second, request)
			if voter.Phase == Voting {
				_, effects = Step(voter, 15*second, ReceiverStopped{more})
			}
			reply := find[Vote](t, effects).Reply
			s, _ = Step(s, s.candidacy.askSent, vote(s, "v0", 50, true))
			_, effects = Step(s, s.candidacy.askSent, reply)
			if contains[WriteLease](effects) != c.wins {
				t.Errorf("reply %+v, then %v", reply, effects)
			}
		})
	}
}
