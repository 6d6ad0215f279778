package election

import (
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

var baseRecord = lease.Record{
	HolderUID: "p1", HolderPod: "db-0", HolderVolume: "v0", Term: 5, Timeline: 5, HighestTimeline: 5, ReachedTimeline: 5,
	SystemIdentifier: "s", Volumes: []string{"v0", "v1", "v2"},
}

func newMember(t *testing.T, volume, uid string) State {
	t.Helper()
	timing, err := lease.NewTiming(0)
	if err != nil {
		t.Fatal(err)
	}
	return NewState(Config{UID: uid, Timing: timing}, Persistent{VolumeID: volume, SystemIdentifier: "s", Timelines: []int64{5}, Known: baseRecord})
}

// readAt passes a tick and the answer to its reading.
func readAt(s State, now time.Duration, a lease.Answer, version string, r lease.Record) (State, []Effect) {
	s, before := Step(s, now, Tick{})
	s, effects := Step(s, now, LeaseRead{lease.Reading{Answer: a, Version: lease.Version{UID: "u", Resource: version}, Record: r, Sent: now, Received: now}})
	return s, append(before, effects...)
}

func contains[E Effect](effects []Effect) bool {
	for _, e := range effects {
		if _, is := e.(E); is {
			return true
		}
	}
	return false
}

func TestRule5HolderInTheLeaseAloneDoesNotLead(t *testing.T) {
	s := newMember(t, "v0", "p1") // its agent restarted
	for now := 2 * time.Second; now < 10*time.Second; now += 2 * time.Second {
		var effects []Effect
		if s, effects = readAt(s, now, lease.Done, "1", baseRecord); contains[Promote](effects) || contains[WriteLease](effects) {
			t.Fatalf("after %s: %v", now, effects)
		}
	}
}

func TestRule5PrimaryThatReadsAnotherHolderFences(t *testing.T) {
	s := newMember(t, "v0", "p1")
	s.Phase, s.term, s.lease.record, s.requests.outage = Leading, 5, baseRecord, true
	s.leadership.deadlines = s.Config.Timing.Deadlines(10 * time.Second)
	other := baseRecord
	other.HolderUID = "p2"
	if _, effects := readAt(s, 12*time.Second, lease.Done, "2", other); !contains[Fence](effects) {
		t.Errorf("got %v", effects)
	}
}

func TestRule9VoteNeedsAnOwnObservation(t *testing.T) {
	request := VoteRequest{From: "v2", Term: 6, Timeline: 6, Base: lease.Version{UID: "u", Resource: "1"}, BaseAge: baseRecord.Age()}
	s := newMember(t, "v1", "p2")
	for now := 2 * time.Second; now <= 12*time.Second; now += 2 * time.Second {
		s, _ = readAt(s, now, lease.Done, "1", baseRecord)
		s.Phase = Standby // its own candidacy is not the point here
		_, effects := Step(s, now, request)
		free := now >= 12*time.Second
		if contains[StopReceiver](effects) != free {
			t.Errorf("after %s: %v", now, effects)
		}
		if free && !reflect.DeepEqual(reflect.TypeOf(effects[0]), reflect.TypeOf(Persist{})) {
			t.Errorf("the term is not persisted first: %v", effects)
		}
	}
	request.Base.Resource = "0"
	if _, effects := Step(s, 14*time.Second, request); contains[StopReceiver](effects) {
		t.Errorf("voted for another state of the Lease: %v", effects)
	}
}

func TestRule16Confirmation(t *testing.T) {
	request := ConfirmRequest{From: "v0", Term: 5, Sent: 3 * time.Second}
	confirms := func(s State, r ConfirmRequest) (State, bool) {
		s, effects := Step(s, 4*time.Second, r)
		return s, effects[len(effects)-1].(Confirm).Reply.Confirmed
	}
	s := newMember(t, "v1", "p2")
	s, _ = readAt(s, 2*time.Second, lease.Done, "1", baseRecord)
	for _, a := range []lease.Answer{lease.Missing, lease.Forbidden, lease.Conflict} {
		answered, _ := readAt(s, 4*time.Second, a, "1", lease.Record{})
		if _, ok := confirms(answered, request); ok {
			t.Errorf("confirmed after answer %d", a)
		}
	}
	s, _ = readAt(s, 4*time.Second, lease.Unanswered, "", lease.Record{})
	if _, ok := confirms(s, ConfirmRequest{From: "v0", Term: 4}); ok {
		t.Error("confirmed another term")
	}
	unsure := s
	unsure.Phase = Unsure
	if _, ok := confirms(unsure, request); ok {
		t.Error("confirmed with a claim whose outcome is unknown")
	}
	s, ok := confirms(s, request)
	if !ok || s.PromisedUntil() != 14*time.Second {
		t.Errorf("confirmed %v, promised until %s", ok, s.PromisedUntil())
	}
	vote := VoteRequest{From: "v2", Term: 6, Timeline: 6, Base: s.lease.version, BaseAge: baseRecord.Age()}
	if _, effects := Step(s, 13*time.Second, vote); !effects[0].(Vote).Reply.Vetoed {
		t.Errorf("no veto: %v", effects)
	}
}

func TestRule16PrimaryServesThroughAnOutage(t *testing.T) {
	served := 0
	for seed := range uint64(20) {
		w := newWorld(seed, flawNone)
		w.queue, w.lossy, w.calm, w.broken = nil, false, true, -1
		w.after(0, w.writeAll)
		for _, n := range w.nodes {
			n.start(false)
		}
		w.after(6*second, func() { w.apiDown = true })
		w.after(50*second, func() { w.apiDown = false })
		w.after(55*second, func() { w.queue = nil })
		w.run()
		if w.violation != "" {
			t.Errorf("seed %d: %s", seed, w.violation)
		}
		// How many it acknowledged depends on how late the standbys flush.
		if w.elections == 1 && w.commits >= 50 && w.served > 52*second {
			served++
		}
	}
	if served < 20 {
		t.Errorf("%d of 20 primaries served", served)
	}
}

func TestRule17TakeoverNeedsAllWAL(t *testing.T) {
	released, err := baseRecord.Release("p1", 5, lease.Position{Timeline: 5, LSN: 100}, "")
	if err != nil {
		t.Fatal(err)
	}
	for lsn, takes := range map[uint64]bool{99: false, 100: true, 101: true} {
		s, _ := readAt(newMember(t, "v1", "p2"), 2*time.Second, lease.Done, "1", released)
		s, _ = Step(s, 3*time.Second, Tick{})
		_, effects := Step(s, 3*time.Second, ReceiverStopped{WAL{Flushed: lease.Position{Timeline: 5, LSN: lsn}, Timelines: []int64{5}}})
		if contains[AskVote](effects) != takes {
			t.Errorf("with %d: %v", lsn, effects)
		}
	}
}
