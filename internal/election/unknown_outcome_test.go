package election

import (
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// newDelayedChange leads alone, and has recorded no other volume. Its write
// at 12 s, which lets v1 lead, is not answered, and the reading after it shows the Lease
// as it was. Its next write, at 14 s, lets v0 alone lead again, and is answered so.
func newDelayedChange(t *testing.T, answer lease.Answer) State {
	t.Helper()
	s := newPrimary(t, nil)
	s.lease.record.Volumes = []string{"v0"}
	s.requests.pending = s.lease.record
	record := s.lease.record
	s, _ = Step(s, 12*second, MembersWanted{Volumes: []string{"v0", "v1"}})
	s, effects := Step(s, 12*second, Tick{})
	if !find[WriteLease](t, effects).Record.MayLead("v1") {
		t.Fatal("v1 is not admitted")
	}
	s, effects = Step(s, 14*second, Tick{}) // timed out
	find[ReadLease](t, effects)
	s, _ = Step(s, 14*second, MembersWanted{Volumes: []string{"v0"}})
	s, effects = Step(s, 14*second, LeaseRead{lease.Reading{Answer: lease.Done, Version: s.lease.version, Record: record, Sent: 14 * second, Received: 14 * second}})
	if find[WriteLease](t, effects).Record.MayLead("v1") {
		t.Fatal("v1 is still wanted")
	}
	s, _ = Step(s, 14*second+second/10, LeaseWritten{Answer: answer, Version: lease.Version{UID: "u", Resource: "9"}, Sent: 14 * second})
	return s
}

// A write that timed out can still be done after a reading that shows the Lease without
// it, and before the next write of the same state, which is then refused. Who may lead by
// it is asked until a later write is done.
func TestRule16AsksAllOfAWriteThatMayStillBeDone(t *testing.T) {
	for answer, asks := range map[lease.Answer]bool{lease.Unanswered: true, lease.Done: false} {
		s := newDelayedChange(t, answer)
		before := s.leadership.deadlines
		var effects []Effect
		for now := 15 * second; now < 17*second && !contains[AskConfirm](effects); now += second / 10 {
			var more []Effect
			s, more = Step(s, now, Tick{})
			effects = append(effects, more...)
		}
		if contains[AskConfirm](effects) != asks || asks && s.leadership.deadlines != before {
			t.Errorf("answer %d: %v, relies on the Lease until %s", answer, effects, s.leadership.deadlines.Fence)
		}
	}
}

// Nor is a longer Lease relied on that v1 does not know.
func TestRule2WriteThatMayStillBeDoneLimitsTheDuration(t *testing.T) {
	for answer, want := range map[lease.Answer]time.Duration{lease.Unanswered: lease.DefaultDuration, lease.Done: lease.MaxDuration} {
		if got := newDelayedChange(t, answer).findCovered(); got != want {
			t.Errorf("answer %d: covered for %s", answer, got)
		}
	}
}

// A member that is held meanwhile does not lead by a claim that it has sent.
func TestRule9HeldMemberDoesNotLeadByItsClaim(t *testing.T) {
	for _, held := range []bool{false, true} {
		for _, unanswered := range []bool{false, true} {
			s, claim, now := newClaimant(t)
			if held {
				s, _ = Step(s, now, Held{Reason: "this member's data is copied again"})
			}
			answer := lease.Done
			if unanswered {
				answer = lease.Unanswered
			}
			s, effects := Step(s, now, LeaseWritten{Answer: answer, Version: lease.Version{UID: "u", Resource: "2"}, Sent: claim.Sent})
			if unanswered {
				s.requests.reading = false // one that was sent before the claim
				s, effects = readAt(s, now+second/10, lease.Done, "2", claim.Record)
			}
			if contains[Promote](effects) != (!held && !unanswered) || contains[WriteLease](effects) != (!held && unanswered) || held && s.Phase != Standby {
				t.Errorf("held %t, unanswered %t: phase %d, %v", held, unanswered, s.Phase, effects)
			}
		}
	}
}
