package election

import (
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// tellAll has all other members have read what the holder wrote.
func tellAll(s State, now time.Duration) State {
	var reports []DurationReport
	for _, volume := range s.lease.record.Volumes {
		reports = append(reports, DurationReport{volume, s.term, s.lease.record.Duration, now})
	}
	s, _ = Step(s, now, DurationsKnown{reports})
	return s
}

// lead lets a primary lead for a while, every renewal of which is answered at once. It
// returns the durations that it wrote, each once.
func lead(t *testing.T, s State, from, to time.Duration) (State, []time.Duration) {
	t.Helper()
	var wrote []time.Duration
	for now := from; now < to; now += second / 2 {
		var effects []Effect
		s, effects = Step(tellAll(s, now), now, Tick{})
		for len(effects) > 0 {
			e := effects[0]
			effects = effects[1:]
			if contains[Fence]([]Effect{e}) || contains[StopServer]([]Effect{e}) {
				t.Fatalf("%T after %s", e, now)
			}
			write, is := e.(WriteLease)
			if !is {
				continue
			}
			// A member that waits for what is recorded waits for the deadline, too.
			if recorded := timingOf(write.Record.Duration); s.leadership.deadlines.Fence > recorded.Deadlines(write.Sent).Fence {
				t.Errorf("at %s it records %s, and relies on the Lease until %s", now, recorded.Duration(), s.leadership.deadlines.Fence)
			}
			if len(wrote) == 0 || wrote[len(wrote)-1] != write.Record.Duration {
				wrote = append(wrote, write.Record.Duration)
			}
			var more []Effect
			s, more = Step(s, now, LeaseWritten{Answer: lease.Done, Version: lease.Version{UID: "u", Resource: now.String()}, Sent: write.Sent})
			effects = append(effects, more...)
		}
	}
	return s, wrote
}

func want(s State, duration time.Duration, now time.Duration) State {
	s, _ = Step(s, now, LimitsWanted{Timing: timingOf(duration)})
	return s
}

// A longer duration is written with the next renewal, which comes in the time of the
// shorter one. A shorter one is written when the deadline fits it; no deadline moves
// back, and the primary goes on.
func TestRule2DurationChangesWhileAMemberLeads(t *testing.T) {
	s := newPrimary(t, nil)
	s = want(s, 60*second, 11*second)
	s, wrote := lead(t, s, 11*second, 40*second)
	if len(wrote) != 1 || wrote[0] != 60*second || s.leadership.deadlines.Fence < 60*second {
		t.Errorf("wrote %s, and relies on the Lease until %s", wrote, s.leadership.deadlines.Fence)
	}
	before := s.leadership.deadlines.Fence
	s = want(s, 10*second, 40*second)
	s, wrote = lead(t, s, 40*second, 100*second)
	if len(wrote) != 2 || wrote[0] != 60*second || wrote[1] != 10*second {
		t.Errorf("wrote %s", wrote)
	}
	if fence := s.leadership.deadlines.Fence; fence < before || fence > 107*second {
		t.Errorf("it relies on the Lease until %s", fence)
	}
}

// An observer waits for the longest duration that it knows of: its own, that of the
// Lease, or that of what it read before.
func TestRule2ObserverWaitsForTheLongestDuration(t *testing.T) {
	for name, c := range map[string]struct{ own, recorded, known, waits time.Duration }{
		"all alike":                 {10 * second, 10 * second, 10 * second, 10 * second},
		"of an earlier agent":       {10 * second, 0, 0, 10 * second},
		"its own is longer":         {30 * second, 10 * second, 10 * second, 30 * second},
		"the Lease's is":            {10 * second, 30 * second, 10 * second, 30 * second},
		"a shorter one is recorded": {10 * second, 10 * second, 30 * second, 30 * second},
	} {
		t.Run(name, func(t *testing.T) {
			s, record := newMember(t, "v1", "p2"), baseRecord
			s.Config.Timing, s.Disk.Known.Duration, record.Duration = timingOf(c.own), c.known, c.recorded
			for now := 2 * second; now < 80*second; now += second {
				var effects []Effect
				if s, effects = readAt(s, now, lease.Done, "1", record); contains[StopReceiver](effects) {
					if waited := now - 2*second; waited < c.waits || waited > c.waits+5*second {
						t.Errorf("it waited for %s", waited)
					}
					return
				}
			}
			t.Error("it is no candidate")
		})
	}
}

// A Lease that was lost or edited is waited for as long as the one before.
func TestRule2LostLeaseKeepsItsDuration(t *testing.T) {
	s := newMember(t, "v1", "p2")
	s.Disk.Known.Duration = 30 * second
	for now := 2 * second; now < 30*second; now += second {
		s, _ = readAt(s, now, lease.Missing, "", lease.Record{})
		if forced, effects := Step(s, now, ForceRequest{"id"}); contains[StopReceiver](effects) || forced.Phase != Standby {
			t.Fatalf("it follows a person's request after %s", now)
		}
	}
}

// A primary relies on a confirmation for no longer than it was promised, and a member
// promises the longest duration that it knows of.
func TestRule16ConfirmationIsOfTheShorterDuration(t *testing.T) {
	for name, c := range map[string]struct {
		promised [2]time.Duration
		until    time.Duration
	}{
		"by earlier agents":    {[2]time.Duration{0, 0}, 52 * second}, // as before
		"by one of another":    {[2]time.Duration{60 * second, 15 * second}, 52 * second},
		"by both for the same": {[2]time.Duration{60 * second, 60 * second}, 40*second + 42*second},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPrimary(t, nil)
			s.Config.Timing, s.lease.record.Duration = timingOf(60*second), 60*second
			s.leadership.deadlines, s.requests.outage = s.Config.Timing.Deadlines(10*second), true
			s, effects := Step(tellAll(s, 40*second), 40*second, Tick{})
			if !contains[AskConfirm](effects) {
				t.Fatalf("it asks no member: %v", effects)
			}
			for i, volume := range []string{"v1", "v2"} {
				s, _ = Step(s, 40*second+second/10, ConfirmReply{From: volume, Term: 5, Sent: 40 * second, Confirmed: true, Promised: c.promised[i]})
			}
			if s.leadership.deadlines.Fence != c.until {
				t.Errorf("it relies on them until %s, not %s", s.leadership.deadlines.Fence, c.until)
			}
		})
	}
	// Members that forget their promise wait for what the Lease records.
	s := newPrimary(t, nil)
	s.Config.Timing, s.lease.record.Duration = timingOf(60*second), 10*second
	s.leadership.deadlines, s.requests.outage = timingOf(10*second).Deadlines(10*second), true
	s, _ = Step(s, 15*second, Tick{})
	for _, volume := range []string{"v1", "v2"} {
		s, _ = Step(s, 15*second+second/10, ConfirmReply{From: volume, Term: 5, Sent: 15 * second, Confirmed: true, Promised: 60 * second})
	}
	if got := s.leadership.deadlines.Fence; got != 22*second {
		t.Errorf("it relies on a longer duration than the Lease records: until %s", got)
	}
	m := newMember(t, "v1", "p2")
	record := baseRecord
	record.Duration = 30 * second
	m, _ = readAt(m, 2*second, lease.Done, "1", record)
	m, _ = readAt(m, 8*second, lease.Unanswered, "", lease.Record{})
	m, effects := Step(m, 9*second, ConfirmRequest{From: "v0", Term: 5, Sent: 3 * second})
	if reply := effects[len(effects)-1].(Confirm).Reply; !reply.Confirmed || reply.Promised != 30*second || m.PromisedUntil() != 39*second {
		t.Errorf("%+v, promised until %s", reply, m.PromisedUntil())
	}
}

// A holder relies on a longer duration once every other member that may lead has reported
// that it knows it. An agent that knows of no duration waits for the default one.
func TestRule2LongerDurationNeedsAllToKnowIt(t *testing.T) {
	const asked = 12 * second
	at := func(volume string, term int64, duration, asked time.Duration) DurationReport {
		return DurationReport{volume, term, duration, asked}
	}
	for name, c := range map[string]struct {
		reports []DurationReport
		relies  time.Duration
	}{
		"none has reported":                           {nil, 10 * second},
		"one has not":                                 {[]DurationReport{at("v1", 5, 60*second, asked)}, 10 * second},
		"one knows of no duration":                    {[]DurationReport{at("v1", 5, 60*second, asked), at("v2", 5, 0, asked)}, 10 * second},
		"one knows another one":                       {[]DurationReport{at("v1", 5, 60*second, asked), at("v2", 5, 20*second, asked)}, 20 * second},
		"one has read an earlier term":                {[]DurationReport{at("v1", 5, 60*second, asked), at("v2", 4, 60*second, asked)}, 10 * second},
		"one was asked before the write":              {[]DurationReport{at("v1", 5, 60*second, asked), at("v2", 5, 60*second, 10*second)}, 10 * second},
		"one is away that knew it in the term before": {[]DurationReport{at("v1", 5, 60*second, asked), at("v2", 3, 60*second, second)}, 60 * second},
		"one is away that knew another one":           {[]DurationReport{at("v1", 5, 60*second, asked), at("v2", 3, 10*second, second)}, 10 * second},
		"all know it":                                 {[]DurationReport{at("v1", 5, 60*second, asked), at("v2", 5, 60*second, asked)}, 60 * second},
	} {
		t.Run(name, func(t *testing.T) {
			s := want(newPrimary(t, nil), 60*second, 11*second)
			s.replaced = lease.Record{Term: 3, Duration: 60 * second}
			renew := func(now time.Duration) {
				var effects []Effect
				for limit := now + 20*second; !contains[WriteLease](effects) && now < limit; {
					now += second / 2
					s, effects = Step(s, now, Tick{})
				}
				write := find[WriteLease](t, effects)
				if write.Record.Duration != 60*second {
					t.Fatalf("it records %s", write.Record.Duration)
				}
				s, _ = Step(s, now, LeaseWritten{Answer: lease.Done, Version: lease.Version{UID: "u", Resource: now.String()}, Sent: write.Sent})
				s, _ = Step(s, now, DurationsKnown{c.reports})
			}
			renew(11 * second)
			renew(12 * second)
			if got, want := s.leadership.deadlines.Fence, timingOf(c.relies).Deadlines(s.leadership.renewed).Fence; got != want {
				t.Errorf("it relies on the Lease until %s, want %s", got, want)
			}
			if got := s.Pace().Duration(); got != c.relies {
				t.Errorf("its pace is that of %s", got)
			}
		})
	}
	claimed := want(newPrimary(t, nil), 60*second, 11*second)
	if claimed.Phase = Claiming; claimed.findReliance(lease.Record{Duration: 60 * second}).Duration() != 10*second {
		t.Error("a winner relies on what no member has read")
	}
}

// A Lease that is set back to a time before its duration became longer is waited for as
// long as its holder may rely on it. A holder that shortens the duration renews it.
func TestRule2LeaseThatIsSetBackKeepsTheLongerDuration(t *testing.T) {
	for _, renewed := range []bool{false, true} {
		s, record := newMember(t, "v1", "p2"), baseRecord
		record.Duration = 60 * second
		s, _ = readAt(s, 2*second, lease.Done, "8", record)
		record.Duration = 10 * second
		s, _ = readAt(s, 4*second, lease.Done, "3", record)
		version := "3"
		if renewed {
			version = "4"
		}
		s, _ = readAt(s, 6*second, lease.Done, version, record)
		begins := time.Duration(0)
		for now := 8 * second; now < 80*second && begins == 0; now += second {
			var effects []Effect
			if s, effects = readAt(s, now, lease.Done, version, record); contains[StopReceiver](effects) {
				begins = now
			}
		}
		if early := begins < 60*second; begins == 0 || early != renewed {
			t.Errorf("renewed %t: it is a candidate at %s", renewed, begins)
		}
	}
}

// A claim has the time of the declared and recorded duration for its answer, although
// no member has reported yet to know that one. How long it may be relied on is another
// matter.
func TestRule2ClaimHasTheTimeOfALongerLease(t *testing.T) {
	s := newMember(t, "v1", "p2")
	s.Config.Timing = timingOf(60 * second)
	s.lease.record = baseRecord
	s.lease.record.Duration = 60 * second
	for _, phase := range []Phase{Claiming, Unsure} {
		s.Phase = phase
		if got := s.Pace().Duration(); got != 60*second {
			t.Errorf("phase %d: the pace is that of %s", phase, got)
		}
		if got := s.findReliance(s.lease.record).Duration(); got != lease.DefaultDuration {
			t.Errorf("phase %d: it relies on %s, which nobody reported", phase, got)
		}
	}
}
