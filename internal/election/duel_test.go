package election

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// newFailover is a world in which nothing fails but one thing: soon after the start, the
// primary is cut off from all for good. Two equal members are left, whose receivers take
// long to stop: they stand for election at about the same time.
func newFailover(seed uint64, sync bool) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 8)), noFailover: -1, broken: -1, earlier: -1, sync: sync, calm: true, slow: true, longest: lease.DefaultDuration,
		promoted: map[int64]int{1: -1}, reused: map[int64]bool{}, acked: map[int]uint64{}, stalls: map[string]bool{},
	}
	w.now = time.Duration(w.rng.IntN(1000)) * time.Millisecond
	w.start(3)
	w.after(0, w.writeAll)
	w.after(w.between(0, second), w.askMembers)
	w.after(w.between(4*second, 8*second), w.wantMembers)
	return w
}

// runUntil goes on until then, or until a condition holds.
func (w *world) runUntil(end time.Duration, holds func() bool) bool {
	for len(w.queue) > 0 && w.now < end && w.violation == "" {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
		if holds() {
			return true
		}
	}
	return false
}

// failOver cuts the primary off for good, and returns how long it takes until another
// member leads, and how many terms; at most five minutes.
func (w *world) failOver(t *testing.T, prepare func(others []*node)) (took time.Duration, terms int64) {
	t.Helper()
	var first *node
	leads := func() bool {
		i := slices.IndexFunc(w.nodes, func(n *node) bool { return n != first && n.canCommit() })
		if i >= 0 {
			first = w.nodes[i]
		}
		return i >= 0
	}
	w.runUntil(9*second, leads)
	w.runUntil(12*second+w.between(0, 2*second), func() bool { return false })
	if first == nil || !first.canCommit() {
		t.Fatal("no member leads at first")
	}
	var others []*node
	for _, n := range w.nodes {
		if n != first {
			others = append(others, n)
		}
	}
	prepare(others)
	before, cut := w.api.record.Term, w.now
	w.cutPeers(first, time.Hour, true, true)
	w.cutAPI(first, time.Hour)
	w.runUntil(cut+5*time.Minute, leads)
	if w.violation != "" {
		t.Fatal(w.violation)
	}
	return w.now - cut, w.api.record.Term - before
}

// Two members that stand for election at once do not take each other's votes for ever,
// and one that cannot win does not keep the other one from it.
func TestCandidatesYieldToEachOther(t *testing.T) {
	for name, c := range map[string]struct {
		runs    uint64
		sync    bool
		prepare func([]*node)
		most    time.Duration
	}{
		"asynchronous": {runs: 2000, prepare: func([]*node) {}, most: 17 * second},
		"synchronous":  {runs: 2000, sync: true, prepare: func([]*node) {}, most: 17 * second},
		// The earlier turn's vote is mandatory, and comes when its receiver has stopped.
		"a receiver that stops slowly, synchronous": {runs: 300, sync: true, prepare: func(others []*node) { others[0].stopTime = 8 * second }, most: 60 * second},
		"a receiver that does not stop":             {runs: 300, prepare: func(others []*node) { others[0].stopTime = time.Hour }, most: 30 * second},
		"one that does not stop and is forced": {runs: 300, prepare: func(others []*node) {
			others[0].stopTime = time.Hour
			others[0].forceSoon()
		}, most: 40 * second},
	} {
		t.Run(name, func(t *testing.T) {
			var took []time.Duration
			var terms []int64
			for seed := range c.runs {
				w := newFailover(seed, c.sync)
				d, n := w.failOver(t, c.prepare)
				if took, terms = append(took, d), append(terms, n); d > c.most {
					t.Fatalf("seed %d: another member led only after %s and %d terms", seed, d, n)
				}
			}
			slices.Sort(took)
			slices.Sort(terms)
			t.Logf("another member led after %s, at most %s; %d terms, at most %d", took[len(took)/2], took[len(took)-1], terms[len(terms)/2], terms[len(terms)-1])
		})
	}
}

// forceSoon has a person request until the end that the member leads.
func (n *node) forceSoon() {
	n.step(ForceRequest{"once"})
	n.w.after(second, n.forceSoon)
}

// Of two candidates one yields: the one with less WAL, or of the later turn. It votes
// where it has not promised the term to itself.
func TestCandidateYields(t *testing.T) {
	for name, c := range map[string]struct {
		volume string // of the candidate, in term 6 with WAL to 60
		from   string
		term   int64
		lsn    uint64
		waited time.Duration
		forced bool

		phase    Phase
		competes bool
	}{
		"to an earlier turn, in a later term":      {volume: "v2", from: "v1", term: 7, lsn: 60, phase: Voting},
		"to an earlier turn, in its own term":      {volume: "v2", from: "v1", term: 6, lsn: 60, phase: Standby},
		"to an earlier turn, in an earlier term":   {volume: "v2", from: "v1", term: 5, lsn: 60, phase: Standby},
		"not to a later turn":                      {volume: "v1", from: "v2", term: 7, lsn: 60, phase: Asking, competes: true},
		"to a later turn with more WAL":            {volume: "v1", from: "v2", term: 7, lsn: 61, phase: Voting},
		"to a later turn with more WAL, same term": {volume: "v1", from: "v2", term: 6, lsn: 61, phase: Standby},
		"not to an earlier turn with less WAL":     {volume: "v2", from: "v1", term: 7, lsn: 59, phase: Asking},
		"to any after a long candidacy":            {volume: "v1", from: "v2", term: 7, lsn: 60, waited: 5 * second, phase: Voting},
		"not where a person named it":              {volume: "v2", from: "v1", term: 7, lsn: 60, forced: true, phase: Asking, competes: true},
		"to any after a long one of a person":      {volume: "v1", from: "v2", term: 7, lsn: 60, forced: true, waited: 5 * second, phase: Voting},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newCandidate(t, func(r *lease.Record, s *State) { s.Disk.VolumeID = c.volume })
			if s.Phase != Asking || s.term != 6 {
				t.Fatalf("it is in phase %d, term %d", s.Phase, s.term)
			}
			if c.forced {
				s.candidacy.forcing = "id"
			}
			now := s.candidacy.askSent + c.waited
			own := WAL{Flushed: lease.Position{Timeline: 5, LSN: 60}, Timelines: []int64{5}}
			s, effects := Step(s, now, VoteRequest{
				From: c.from, Term: c.term, Timeline: 8, Base: s.lease.version, BaseAge: baseRecord.Age(), WAL: own, Flushed: lease.Position{Timeline: 5, LSN: c.lsn},
			})
			if s.Phase != c.phase {
				t.Errorf("it is in phase %d", s.Phase)
			}
			if c.phase == Voting {
				return
			}
			if reply := find[Vote](t, effects).Reply; reply.Granted || reply.Competes != c.competes {
				t.Errorf("it replies %+v", reply)
			}
			if again, _ := Step(s, now+second, Tick{}); c.phase == Standby && again.Phase != Standby {
				t.Error("it stands again a second after it has yielded")
			}
		})
	}
}

// A candidate leaves the Lease for a while to one that comes first.
func TestCandidateLeavesTheLeaseToOneThatComesFirst(t *testing.T) {
	s, _ := newCandidate(t, func(*lease.Record, *State) {})
	reply := vote(s, "v2", 60, false)
	reply.Competes = true
	now := s.candidacy.askSent
	s, _ = Step(s, now, reply)
	if again, _ := Step(s, now+second, Tick{}); s.Phase != Standby || again.Phase != Standby {
		t.Errorf("it is in phase %d, and after a second in %d", s.Phase, again.Phase)
	}
	if again, _ := Step(s, now+6*second, Tick{}); again.Phase != Stopping {
		t.Errorf("after six seconds without a leader it is in phase %d", again.Phase)
	}
}

// Terms that replies name are for the next candidacy to be above. They are no promise:
// the member votes for another candidate that has one.
func TestCandidateVotesForATermThatWasAboveItsOwn(t *testing.T) {
	s, _ := newCandidate(t, func(*lease.Record, *State) {})
	reply := vote(s, "v2", 60, false)
	reply.Promised, reply.Timeline = 9, 9
	now := s.candidacy.askSent
	s, _ = Step(s, now, reply)
	voter, _ := Step(s, now, VoteRequest{From: "v2", Term: 9, Timeline: 9, Base: s.lease.version, BaseAge: baseRecord.Age(), WAL: s.ownWAL(), Flushed: lease.Position{Timeline: 5, LSN: 60}})
	if voter.Phase != Voting {
		t.Errorf("it does not vote: phase %d", voter.Phase)
	}
	again, _ := Step(s, now+second, Tick{})
	if again.Phase != Stopping || again.term != 10 || again.timeline != 10 {
		t.Errorf("phase %d, term %d, timeline %d", again.Phase, again.term, again.timeline)
	}
}
