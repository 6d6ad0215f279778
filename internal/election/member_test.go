package election

import (
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// fork is a timeline with the position at which it begins. Timelines are unique,
// so a list of them and an end determine the content of the WAL.
type fork struct {
	timeline int64
	begin    uint64
}

type snapshot struct {
	disk    Persistent
	wal     []fork
	flushed uint64
}

// node is a member: agent, guard, server and volume.
type node struct {
	w      *world
	id     int
	volume string
	uid    string
	epoch  int // grows with each start of the agent
	up     bool
	state  State
	disk   Persistent
	older  []snapshot
	known  int64 // highest term of a record that was ever persisted

	wal          []fork
	end, flushed uint64
	lazy         bool // its receiver flushes late

	primary    bool // the server accepts writes
	timeline   int64
	term       int64
	life       int // of the server
	receiving  bool
	followTerm int64
	followed   string

	guard    time.Duration
	guarded  bool
	reliable time.Duration // newest send that a deadline may be counted from

	agentStopped bool // SIGSTOP of the agent
	frozen       bool // of everything in the pod
	waiting      []func()

	apiCut, answersLost, forbidden bool
}

func (n *node) start(newPod bool) {
	n.epoch++
	n.up, n.agentStopped, n.frozen, n.waiting = true, false, false, nil
	n.primary, n.receiving, n.followTerm, n.guarded = false, false, 0, false
	n.life++
	if newPod {
		n.w.nextUID++
		n.uid = "p" + strconv.Itoa(n.w.nextUID)
	}
	n.state = NewState(Config{UID: n.uid, Pod: "pod" + strconv.Itoa(n.id), Rank: n.id, Timing: n.w.timing}, n.disk)
	n.state.flaw = n.w.flaw
	n.reliable = 0
	if n.w.flaw == flawStartAsPrimary && len(n.wal) > 1 && n.timeline == n.wal[len(n.wal)-1].timeline {
		n.primary = true
	}
	n.tick(n.epoch)
}

func (n *node) tick(epoch int) {
	if n.epoch != epoch || !n.up {
		return
	}
	n.w.after(n.w.between(250*time.Millisecond, 500*time.Millisecond), func() { n.tick(epoch) })
	if !n.agentStopped && !n.frozen {
		n.step(Tick{})
	}
}

// stop ends all of the pod at once. Without power, what was not flushed is lost.
func (n *node) stop(powerLoss bool) {
	n.epoch++
	n.life++
	n.up, n.primary, n.receiving, n.guarded = false, false, false, false
	if powerLoss {
		n.truncate(n.flushed)
	} else {
		n.flushed = n.end
	}
}

func (n *node) truncate(end uint64) {
	n.end, n.flushed = end, min(n.flushed, end)
	for len(n.wal) > 0 && n.wal[len(n.wal)-1].begin >= end && n.wal[len(n.wal)-1].timeline > 1 {
		n.wal = n.wal[:len(n.wal)-1]
	}
}

// whenAwake delivers what comes for a stopped process when it continues.
func (n *node) whenAwake(do func()) {
	if n.agentStopped || n.frozen {
		n.waiting = append(n.waiting, do)
		return
	}
	do()
}

// resume continues stopped processes. The guard is checked first.
func (n *node) resume() {
	n.agentStopped, n.frozen = false, false
	waiting, epoch := n.waiting, n.epoch
	n.waiting = nil
	n.checkGuard()
	for _, do := range waiting {
		if n.epoch == epoch {
			do()
		}
	}
}

func (n *node) checkGuard() {
	if n.up && n.guarded && !n.frozen && n.w.now >= n.guard && n.w.flaw != flawNoFence {
		n.w.log("member %d: the guard ends it", n.id)
		n.flushed = n.end
		n.start(false)
	}
}

// step passes an input to the state machine and does its effects.
func (n *node) step(in Input) {
	if !n.up || n.w.violation != "" {
		return
	}
	before := n.state.Phase
	next, effects := Step(n.state, n.w.now, in)
	n.state = next
	if n.w.tracing {
		if _, streamed := in.(Streamed); !streamed && (len(effects) > 0 || before != next.Phase) {
			n.w.log("member %d: %T%+v → phase %d→%d %T%v", n.id, in, in, before, next.Phase, effects, effects)
		}
	}
	epoch := n.epoch
	for _, e := range effects {
		if n.w.crashing(n) || n.epoch != epoch {
			return
		}
		n.do(e)
	}
}

func (n *node) do(e Effect) {
	switch e := e.(type) {
	case Persist:
		if n.w.flaw != flawSkipPersist {
			n.disk = e.Disk
			n.known = max(n.known, e.Disk.Known.Term)
		}
	case ReadLease:
		n.w.readLease(n, e.Sent)
	case WriteLease:
		n.w.writeLease(n, e)
	case StopReceiver:
		n.receiving = false
		n.flushed = n.end
		n.later(n.w.between(time.Millisecond, 200*time.Millisecond), func() { n.step(ReceiverStopped{n.reportWAL()}) })
	case AskVote:
		n.w.send(n, e.To, e.Request)
	case Vote:
		n.w.send(n, e.To, e.Reply)
	case Promote:
		n.promote(e)
	case Follow:
		n.receiving, n.followed, n.followTerm = true, e.Volume, e.Term
	case StopServer:
		life := n.life
		n.later(n.w.between(100*time.Millisecond, 2*second), func() { n.stopServer(life) })
	case Fence:
		n.life++
		n.primary, n.guarded, n.flushed = false, false, n.end
	case ExtendGuard:
		n.extendGuard(e.Until)
	case AskConfirm:
		n.reliable = max(n.reliable, e.Request.Sent)
		n.w.send(n, e.To, e.Request)
	case Confirm:
		n.w.send(n, e.To, e.Reply)
	}
}

// later runs in the same life of the agent.
func (n *node) later(d time.Duration, do func()) {
	epoch := n.epoch
	n.w.after(d, func() {
		if n.epoch == epoch {
			n.whenAwake(do)
		}
	})
}

func (n *node) extendGuard(until time.Duration) {
	if until-n.w.timing.Fence() > n.reliable {
		n.w.violate("member %d relies on its lease from %s, the last request was sent at %s", n.id, until-n.w.timing.Fence(), n.reliable)
	}
	n.guard, n.guarded = until, true
	n.w.after(until-n.w.now, func() {
		if n.guard == until {
			n.checkGuard()
		}
	})
}

func (n *node) reportWAL() WAL {
	w := WAL{}
	for _, f := range n.wal {
		w.Timelines = append(w.Timelines, f.timeline)
	}
	w.Flushed = n.position()
	return w
}

func (n *node) position() lease.Position {
	if len(n.wal) == 0 {
		return lease.Position{}
	}
	last := len(n.wal) - 1
	for last > 0 && n.wal[last].begin >= n.flushed {
		last--
	}
	return lease.Position{Timeline: n.wal[last].timeline, LSN: n.flushed}
}

// endOn is where the WAL of the volume ends on a timeline, 0 without it.
func (n *node) endOn(timeline int64) uint64 {
	for i, f := range n.wal {
		if f.timeline == timeline && i+1 < len(n.wal) {
			return n.wal[i+1].begin
		} else if f.timeline == timeline {
			return n.end
		}
	}
	return 0
}

func (n *node) promote(e Promote) {
	n.life++
	life := n.life
	n.later(n.w.between(100*time.Millisecond, second), func() {
		if n.life != life {
			return
		}
		if n.w.chance(3) {
			n.step(PromotionFailed{e.Term})
			return
		}
		reserved := e.Timeline
		if n.w.flaw == flawNextTimeline && len(n.wal) > 0 {
			e.Timeline = n.wal[len(n.wal)-1].timeline + 1
		}
		n.w.checkElection(n, e)
		n.wal = append(slices.Clone(n.wal), fork{e.Timeline, n.end})
		n.end++
		n.flushed = n.end
		n.primary, n.timeline, n.term = true, e.Timeline, e.Term
		n.w.log("member %d: primary on timeline %d in term %d from %d", n.id, e.Timeline, e.Term, n.end)
		n.step(Promoted{e.Term, reserved})
	})
}

func (n *node) stopServer(life int) {
	if n.life != life || !n.primary {
		return
	}
	n.commit()
	n.end++ // the shutdown checkpoint
	n.flushed = n.end
	for _, m := range n.w.nodes {
		n.stream(m)
	}
	n.primary, n.guarded = false, false
	n.life++
	n.step(ServerStopped{lease.Position{Timeline: n.timeline, LSN: n.end}})
}

// canCommit reports whether a client inside the pod could write.
func (n *node) canCommit() bool { return n.up && n.primary && !n.frozen }

func (n *node) commit() {
	w := n.w
	if !n.canCommit() {
		return
	}
	for _, m := range w.nodes {
		if m != n && m.canCommit() {
			w.violate("members %d and %d can both commit, in terms %d and %d", n.id, m.id, n.term, m.term)
		}
	}
	if w.flaw != flawNoFence && n.guarded && w.now > n.guard {
		w.violate("member %d commits after its fence deadline", n.id)
	}
	n.end++
	n.flushed = n.end
	holding := 1
	for _, m := range w.nodes {
		if m != n && n.stream(m) {
			holding++
		}
	}
	if !w.sync || holding >= 2 {
		w.acked[n.timeline] = n.end
		w.commits++
	}
}

// stream brings the WAL of a primary to a follower of its term, and reports
// whether it is on the follower's disk.
func (n *node) stream(m *node) bool {
	if m == n || !m.up || m.frozen || m.primary || !m.receiving || m.followTerm != n.term || m.followed != n.volume || !n.w.isLinked(n.id, m.id) {
		return false
	}
	if !slices.Contains(m.disk.Timelines, n.timeline) {
		if !m.agentStopped {
			m.step(Received{n.timeline})
		}
		return false
	}
	if !m.isBehind(n) {
		m.rewind(n)
	}
	m.wal, m.end = n.wal, n.end
	if m.lazy {
		m.lazy = n.w.chance(60)
		return false
	}
	m.flushed = m.end
	if !n.agentStopped {
		n.step(Streamed{n.timeline})
	}
	m.lazy = n.w.chance(10)
	return n.w.isWritable(m)
}

// isWritable reports whether the member counts for the quorum.
func (w *world) isWritable(m *node) bool {
	q := w.nodes[0].disk.Known.Quorum
	return q == nil || slices.Contains(q.Volumes, m.volume)
}

// isBehind reports whether m holds all of what n holds.
func (n *node) isBehind(m *node) bool {
	for i, f := range n.wal {
		if i >= len(m.wal) || m.wal[i] != f {
			return false
		}
	}
	return len(n.wal) == 0 || n.end <= m.endOn(n.wal[len(n.wal)-1].timeline)
}

// rewind drops what the primary does not have.
func (n *node) rewind(m *node) {
	common := uint64(0)
	kept := 0
	for i, f := range n.wal {
		if i >= len(m.wal) || m.wal[i] != f {
			break
		}
		common, kept = min(n.endOn(f.timeline), m.endOn(f.timeline)), i+1
	}
	n.wal, n.end = slices.Clone(n.wal[:kept]), common
	n.flushed = min(n.flushed, n.end)
}
