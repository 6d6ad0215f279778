package election

import (
	"slices"
	"testing"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// isReuseExcused: a member that never heard of a timeline, and reaches no member that
// did, cannot know of it when the Lease has forgotten it: the API server was set back,
// or a person named the member after the Lease was deleted or emptied. Members that know
// of it do not follow that member.
func (w *world) isReuseExcused(n *node, e Promote) bool {
	isForgotten := w.restored || w.edited && w.forced > 0 && w.forced <= e.Term
	if !isForgotten || n.endOnTimeline(e.Timeline) > 0 {
		return false
	}
	for _, m := range w.nodes {
		if m != n && w.answers(n, m) && slices.Contains(m.disk.Timelines, e.Timeline) {
			return false
		}
	}
	return true
}

// isSplitExcused reports whether two members may both commit. The older one is the only
// one that may lead by the Lease that it wrote, so that it needs no other member while it
// does not reach the API server. That was set back meanwhile to a time at which others
// could lead, too.
func (w *world) isSplitExcused(n, m *node) bool {
	older := n
	if m.term < n.term {
		older = m
	}
	return w.restored && len(older.state.lease.record.Volumes) == 1 && older.reachedAPI <= w.restoredAt
}

// isStandingBack reports whether a member, not a broken one alone, has failed to serve
// so often that it leaves the Lease to the others for a while.
func (n *node) isStandingBack() bool { return n.disk.Failed >= failedLimit }

// newQuietWorld has three members in synchronous mode, no faults and no events. Its
// members hold timeline 1 up to 100.
func newQuietWorld(t *testing.T) *world {
	t.Helper()
	for seed := range uint64(100) {
		if w := newWorld(seed, flawNone); w.sync && len(w.nodes) == 3 {
			w.queue, w.noFailover, w.maxLag, w.broken, w.lossy, w.calm = nil, -1, 0, -1, true, true
			return w
		}
	}
	t.Fatal("no seed makes such a world")
	return nil
}

// claim has a member win a term, and with it the timeline of that number.
func (n *node) claim(term int64, forced bool) {
	r := n.w.api.record
	r.HolderUID, r.HolderVolume, r.Shutdown = n.uid, n.volume, nil
	r.Term, r.Timeline, r.HighestTimeline = term, term, term
	if forced {
		r.ForcedTimeline = term
	}
	n.disk.Promised, n.disk.Wrote, n.disk.Known = term, term, r
	n.w.store(n, r)
}

// What a person gave up is given up once the claim is on the Lease, whether or not its
// server comes to lead.
func TestSimulatorForcedClaimGivesUpWhatItsMemberLacks(t *testing.T) {
	for _, reset := range []bool{false, true} {
		for _, forced := range []bool{false, true} {
			w := newQuietWorld(t)
			w.reset, w.acked[0], w.floor = reset, 120, lease.Position{Timeline: 1, LSN: 120}
			w.nodes[0].claim(5, forced)
			w.nodes[1].claim(6, false)
			if w.checkElection(w.nodes[1], Promote{Term: 6, Timeline: 6}); (w.violation == "") != forced {
				t.Errorf("reset %t, forced %t: %q", reset, forced, w.violation)
			}
		}
	}
}

// A claim that takes a term again which was lost with the Lease is judged like any other.
func TestSimulatorJudgesAClaimOfATermThatWasLost(t *testing.T) {
	w := newQuietWorld(t)
	w.nodes[0].claim(5, false)
	w.noFailover = 1
	if w.nodes[0].claim(5, false); w.violation != "" {
		t.Errorf("the holder writes its term again: %s", w.violation)
	}
	if w.nodes[1].claim(5, false); w.violation == "" {
		t.Error("a member that may not lead takes the term of another one")
	}
}

func TestSimulatorExcusesATimelineThatNoMemberCanKnow(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(w *world)
		excused bool
	}{
		"the Lease was emptied, and a person named the member": {func(w *world) { w.edited, w.forced = true, 5 }, true},
		"a term after that":                    {func(w *world) { w.edited, w.forced = true, 4 }, true},
		"the API server was set back":          {func(w *world) { w.restored = true }, true},
		"no person named one":                  {func(w *world) { w.edited = true }, false},
		"a person named one later":             {func(w *world) { w.edited, w.forced = true, 6 }, false},
		"the Lease was not touched":            {func(w *world) { w.forced = 5 }, false},
		"the member itself has that timeline":  {func(w *world) { w.edited, w.forced, w.nodes[0].wal[0].timeline = true, 5, 5 }, false},
		"a member that answers knows of it":    {func(w *world) { w.edited, w.forced, w.lossy, w.nodes[1].disk.Timelines = true, 5, false, []int64{1, 5} }, false},
		"a member that does not answer has it": {func(w *world) { w.edited, w.forced, w.nodes[1].disk.Timelines = true, 5, []int64{1, 5} }, true},
	} {
		w := newQuietWorld(t)
		w.now, w.claimedAt = 60*second, 60*second
		c.prepare(w)
		if w.isReuseExcused(w.nodes[0], Promote{Term: 5, Timeline: 5}) != c.excused {
			t.Errorf("%s: excused %t", name, !c.excused)
		}
	}
}

// A member that alone may lead asks no other one while the API server is away.
func TestSimulatorExcusesAPrimaryAloneWhenTheAPIServerWasSetBack(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(w *world, alone *node)
		excused bool
	}{
		"it was set back":               {func(*world, *node) {}, true},
		"it was not":                    {func(w *world, _ *node) { w.restored = false }, false},
		"the primary has read it since": {func(_ *world, n *node) { n.reachedAPI = 41 * second }, false},
		"others may lead":               {func(_ *world, n *node) { n.state.lease.record.Volumes = []string{"v0", "v1"} }, false},
	} {
		w := newQuietWorld(t)
		alone, other := w.nodes[0], w.nodes[1]
		w.restored, w.restoredAt = true, 40*second
		alone.primary, alone.term, alone.reachedAPI, alone.state.lease.record.Volumes = true, 5, 39*second, []string{"v0"}
		other.primary, other.term, other.reachedAPI = true, 9, 50*second
		c.prepare(w, alone)
		for _, n := range []*node{alone, other} {
			w.violation = ""
			if n.commit(); (w.violation == "") != c.excused {
				t.Errorf("%s: %q", name, w.violation)
			}
		}
	}
}

// A receiver does not keep what it wrote from the volume for longer than an election waits.
func TestSimulatorReceiverFlushesWhatItWrote(t *testing.T) {
	w := newQuietWorld(t)
	primary, standby := w.nodes[0], w.nodes[1]
	primary.primary, primary.term, primary.timeline, primary.end = true, 1, 1, 110
	standby.receiving, standby.followed, standby.followTerm, standby.lazy = true, primary.volume, 1, true
	if primary.stream(standby) || standby.flushed != 100 {
		t.Fatalf("flushed to %d at once", standby.flushed)
	}
	w.run()
	if standby.flushed != 110 {
		t.Errorf("flushed to %d", standby.flushed)
	}
}

// A member that stands back may have what the quorum acknowledged.
func TestSimulatorExcusesAClusterWhoseMemberStandsBack(t *testing.T) {
	for failed, excused := range map[int]bool{failedLimit - 1: false, failedLimit: true} {
		w := newQuietWorld(t)
		if w.nodes[2].disk.Failed = failed; w.mayStall() != excused {
			t.Errorf("after %d terms: %t", failed, !excused)
		}
	}
}
