package lease

import (
	"errors"
	"slices"
	"testing"
	"time"
)

var valid = Record{
	HolderUID: "p1", HolderPod: "db-0", HolderVolume: "v1", Term: 3, Timeline: 4, HighestTimeline: 5, ReachedTimeline: 3,
	SystemIdentifier: "s", Volumes: []string{"v1", "v2", "v3"}, Quorum: &Quorum{Volumes: []string{"v1", "v2", "v3"}, Write: 2},
}

func timing(t *testing.T, d time.Duration) Timing {
	t.Helper()
	timing, err := NewTiming(d)
	if err != nil {
		t.Fatal(err)
	}
	return timing
}

func TestRule4RecordIsValidated(t *testing.T) {
	if err := valid.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(*Record){
		"emptied":                     func(r *Record) { *r = Record{} },
		"no term":                     func(r *Record) { r.Term = 0 },
		"timeline above the highest":  func(r *Record) { r.Timeline = 6 },
		"reached above the highest":   func(r *Record) { r.ReachedTimeline = 6 },
		"no system identifier":        func(r *Record) { r.SystemIdentifier = "" },
		"no volumes":                  func(r *Record) { r.Volumes = nil },
		"an empty volume":             func(r *Record) { r.Volumes = []string{""} },
		"a holder without its volume": func(r *Record) { r.HolderVolume = "" },
		"held and released":           func(r *Record) { r.Shutdown = &Position{4, 100} },
		"more writers than members":   func(r *Record) { r.Quorum = &Quorum{Volumes: []string{"v1"}, Write: 2} },
		"a volume twice":              func(r *Record) { r.Quorum = &Quorum{Volumes: []string{"v1", "v1"}, Write: 1} },
		"a voter that is never asked": func(r *Record) { r.Quorum = &Quorum{Volumes: []string{"v1", "v9"}, Write: 2} },
		"a successor of a held Lease": func(r *Record) { r.Successor = "v2" },
	} {
		t.Run(name, func(t *testing.T) {
			r := valid
			edit(&r)
			if err := r.Validate(); !errors.Is(err, ErrInvalid) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRule5ContradictionsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		edit        func(*Record)
		contradicts bool
	}{
		"the same":                   {func(*Record) {}, false},
		"a renewal":                  {func(r *Record) { r.Acknowledged, r.ReachedTimeline = Position{4, 9}, 4 }, false},
		"other members":              {func(r *Record) { r.Revision++ }, false},
		"a release":                  {func(r *Record) { r.HolderUID, r.Shutdown = "", &Position{4, 9} }, false},
		"the next term":              {func(r *Record) { r.Term, r.Timeline, r.HolderUID = 4, 6, "p2" }, false},
		"an earlier term":            {func(r *Record) { r.Term = 2 }, true},
		"earlier members":            {func(r *Record) { r.Revision-- }, true},
		"the term has another pod":   {func(r *Record) { r.HolderUID = "p2" }, true},
		"the term has another line":  {func(r *Record) { r.Timeline = 5 }, true},
		"a term with a used line":    {func(r *Record) { r.Term, r.Timeline, r.HolderUID = 4, 5, "p2" }, true},
		"an edited term, no winner":  {func(r *Record) { r.Term = 9 }, true},
		"another database":           {func(r *Record) { r.SystemIdentifier = "other" }, true},
		"a later term of another":    {func(r *Record) { r.Term, r.Timeline, r.SystemIdentifier = 4, 6, "other" }, true},
		"a volume less, no revision": {func(r *Record) { r.Volumes = r.Volumes[:1] }, true},
		"a volume less":              {func(r *Record) { r.Volumes, r.Revision = r.Volumes[:1], 2 }, false},
		"a voter less, no revision":  {func(r *Record) { r.Quorum = &Quorum{Volumes: r.Volumes[:1], Write: 1} }, true},
		"volumes in another order":   {func(r *Record) { r.Volumes = slices.Clone(r.Volumes); slices.Reverse(r.Volumes) }, false},
		"a term with an unused line": {func(r *Record) { r.Term, r.Timeline, r.HighestTimeline = 9, 8, 8 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			known := valid
			known.Revision = 1
			r := known
			c.edit(&r)
			if got := r.Contradicts(known); (got != "") != c.contradicts {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestRule2Expiry(t *testing.T) {
	times := timing(t, 10*time.Second)
	one, two := Version{"u", "1"}, Version{"u", "2"}
	at := func(second int, answer Answer, v Version) Reading {
		sent := time.Duration(second) * time.Second
		return Reading{Answer: answer, Version: v, Sent: sent, Received: sent + time.Second/10}
	}
	read := func(from, to int, v Version) (readings []Reading) {
		for s := from; s <= to; s += 2 {
			readings = append(readings, at(s, Done, v))
		}
		return readings
	}
	for name, c := range map[string]struct {
		readings []Reading
		expired  bool
	}{
		"no reading":                       {nil, false},
		"less than the duration":           {read(0, 8, one), false},
		"the time of a request is no time": {read(0, 10, one), false},
		"the duration":                     {read(0, 12, one), true},
		"a renewal starts again":           {append(read(0, 6, two), read(8, 18, one)...), false},
		"an error starts again":            {append(append(read(0, 8, one), at(9, Unanswered, one)), read(10, 18, one)...), false},
		"a pause starts again":             {append(read(0, 4, one), read(9, 17, one)...), false},
		"403 starts again":                 {append(append(read(0, 8, one), at(9, Forbidden, one)), read(10, 18, one)...), false},
		"another Lease starts again":       {append(read(0, 8, Version{"w", "1"}), read(10, 18, one)...), false},
		"missing starts again":             {append(append(read(0, 8, one), at(9, Missing, one)), read(10, 18, one)...), false},
	} {
		t.Run(name, func(t *testing.T) {
			var e Expiry
			for _, r := range c.readings {
				e = e.RecordReading(r, times)
			}
			if got := e.HasExpired(one, times); got != c.expired {
				t.Errorf("expired: %v", got)
			}
			if e.IsLost(times) {
				t.Error("lost")
			}
		})
	}
}

func TestRule5LostLeaseIsCounted(t *testing.T) {
	times := timing(t, 20*time.Second)
	var e Expiry
	for s := range 13 {
		sent := time.Duration(2*s) * time.Second
		e = e.RecordReading(Reading{Answer: Missing, Sent: sent, Received: sent}, times)
		if got := e.IsLost(times); got != (s >= 10) {
			t.Errorf("after %s: lost %v", sent, got)
		}
	}
}

func TestRule2AnswersAreNoOutage(t *testing.T) {
	for _, a := range []Answer{Done, Missing, Conflict, Forbidden} {
		if !a.IsReached() {
			t.Errorf("answer %d is an outage", a)
		}
	}
	if Unanswered.IsReached() {
		t.Error("no answer is an answer")
	}
}

func TestRule11AcquireReservesItsTimeline(t *testing.T) {
	outside := valid
	outside.Volumes = append([]string{"v4"}, valid.Volumes...)
	claim := Claim{UID: "p2", Pod: "db-1", Volume: "v2", SystemIdentifier: "s", Term: 4, Timeline: 6, Free: true}
	got, err := valid.Acquire(claim)
	if err != nil || got.Term != 4 || got.Timeline != 6 || got.HighestTimeline != 6 || got.ReachedTimeline != 3 || got.HolderVolume != "v2" {
		t.Errorf("got %+v, %v", got, err)
	}
	for want, edit := range map[error]func(*Claim){
		ErrHeld:         func(c *Claim) { c.Free = false },
		ErrOldTerm:      func(c *Claim) { c.Term = 3 },
		ErrUsedTimeline: func(c *Claim) { c.Timeline = 5 },
		ErrNotEligible:  func(c *Claim) { c.Volume = "v4" },
	} {
		refused := claim
		edit(&refused)
		if got, err := valid.Acquire(refused); !errors.Is(err, want) || got.Term != valid.Term {
			t.Errorf("got %+v, %v instead of %v", got, err, want)
		}
	}
	claim.Volume = "v4"
	if _, err := outside.Acquire(claim); !errors.Is(err, ErrNotEligible) {
		t.Errorf("a volume outside of the quorum: %v", err)
	}
	claim.Forced = true
	forced, err := outside.Acquire(claim)
	if err != nil || len(forced.Quorum.Volumes) != 4 || forced.Revision != 1 || forced.Validate() != nil || len(outside.Quorum.Volumes) != 3 {
		t.Errorf("forced: %+v, %v", forced, err)
	}
	if _, err := valid.Acquire(claim); !errors.Is(err, ErrNotEligible) {
		t.Errorf("a volume that may not lead is forced: %v", err)
	}
}

func TestRule17ReleaseRecordsTheShutdown(t *testing.T) {
	end := Position{Timeline: 4, LSN: 900}
	got, err := valid.Release("p1", 3, end, "v2")
	if err != nil || !got.IsReleased() || *got.Shutdown != end || got.Successor != "v2" || got.Term != 3 || got.Validate() != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := valid.Release("p1", 3, Position{Timeline: 3, LSN: 900}, ""); !errors.Is(err, ErrInvalid) {
		t.Errorf("a position on another timeline: %v", err)
	}
	if _, err := valid.Release("p2", 3, end, ""); !errors.Is(err, ErrNotHolder) {
		t.Errorf("another holder: %v", err)
	}
}

func TestRule5RenewNeedsTheOwnTerm(t *testing.T) {
	if got, err := valid.Renew("p1", 3, Progress{Reached: 4}); err != nil || got.ReachedTimeline != 4 {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, c := range []struct {
		uid  string
		term int64
	}{{"p2", 3}, {"p1", 2}, {"", 3}} {
		if _, err := valid.Renew(c.uid, c.term, Progress{}); !errors.Is(err, ErrNotHolder) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestRule6DeadlinesScale(t *testing.T) {
	for _, d := range []time.Duration{10 * time.Second, 37 * time.Second, 60 * time.Second} {
		times := timing(t, d)
		got := times.Deadlines(time.Second)
		if got.Fence != time.Second+d*7/10 || got.Soft >= got.Fence || times.Renewal()+times.RequestTimeout() >= times.Soft() {
			t.Errorf("%s: %+v", d, got)
		}
		if times.RequestTimeout() >= times.Renewal() || times.ReadGap() <= times.Renewal()+times.RequestTimeout() {
			t.Errorf("%s: a request takes longer than the time between two", d)
		}
	}
	for _, d := range []time.Duration{time.Second, 61 * time.Second, -1} {
		if _, err := NewTiming(d); err == nil {
			t.Errorf("%s is accepted", d)
		}
	}
	if got := timing(t, 0).Duration(); got != DefaultDuration {
		t.Errorf("the default is %s", got)
	}
}

func TestRule10QuorumsOverlap(t *testing.T) {
	for n := 1; n <= 7; n++ {
		for write := 1; write <= n; write++ {
			if votes := (Quorum{Volumes: make([]string, n), Write: write}).CountVotes(); votes+write <= n {
				t.Errorf("%d votes and %d writers of %d do not overlap", votes, write, n)
			}
		}
	}
}
