package election

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// fork is a timeline with the position at which it begins. Its ID is that of its
// promotion: a list of forks and an end determine the content of the WAL, even if
// two promotions were given the same timeline.
type fork struct {
	timeline int64
	begin    uint64
	id       int
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
	known  int64          // highest term of a record that was ever persisted
	shown  lease.Position // the furthest that a reply of this volume's candidacies showed
	timing lease.Timing   // as it is configured

	rate   float64 // of its clock
	offset time.Duration

	wal          []fork
	end, flushed uint64
	lazy         bool // its receiver flushes late

	primary    bool // the server accepts writes
	timeline   int64
	term       int64
	life       int           // of the server
	names      *lease.Quorum // of which the server waits for acknowledgements
	settling   uint64        // position from which on the new names count as set
	settingTo  *SetQuorum
	setID      int64 // of the last SetQuorum that took effect
	receiving  bool
	followTerm int64
	followed   string
	stops      int           // of the receiver, of which the last one counts
	stopTime   time.Duration // of each, if it is not random
	rewinding  int           // grows with each rewind; odd while one is under way

	guard    time.Duration
	guarded  bool
	reliable time.Duration // latest deadline that an answer allows

	agentStopped bool // SIGSTOP of the agent
	frozen       bool // of everything in the pod
	waiting      []func()
	resumes      int               // how often it went on
	knows        [4]DurationReport // what the others reported
	silent       [4]silence        // of the others

	apiCut, answersLost, forbidden bool
	reachedAPI                     time.Duration // the last answer of the API server
}

// silence is how many questions in turn another member left unanswered.
type silence struct {
	since     time.Duration
	questions int
}

// clock is CLOCK_BOOTTIME of the member's machine.
func (n *node) clock() time.Duration { return n.offset + time.Duration(float64(n.w.now)*n.rate) }

func (n *node) start(newPod bool) {
	n.epoch++
	n.up, n.agentStopped, n.frozen, n.waiting = true, false, false, nil
	n.primary, n.receiving, n.followTerm, n.guarded = false, false, 0, false
	n.settingTo, n.setID, n.rewinding = nil, 0, 0
	n.life++
	if newPod {
		n.w.nextUID++
		n.uid = "p" + strconv.Itoa(n.w.nextUID)
	}
	n.state = NewState(Config{
		UID: n.uid, Pod: "pod" + strconv.Itoa(n.id), Timing: n.timing,
		NoFailover: n.w.noFailover == n.id, MaxLag: n.w.maxLag,
	}, n.disk)
	n.reliable, n.knows, n.silent = 0, [4]DurationReport{}, [4]silence{}
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
	for len(n.wal) > 1 && n.wal[len(n.wal)-1].begin >= end {
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
	n.resumes++
	waiting, epoch := n.waiting, n.epoch
	n.waiting = nil
	n.checkGuard()
	for _, do := range waiting {
		if n.epoch == epoch {
			do()
		}
	}
}

// isAwake reports whether the agent runs.
func (n *node) isAwake() bool { return n.up && !n.agentStopped && !n.frozen }

// hears reports whether a question of the node reaches another one, and its answer comes
// back.
func (n *node) hears(m *node) bool { return m != n && m.isAwake() && n.w.isLinked(n.id, m.id) }

func (n *node) checkGuard() {
	if n.up && n.guarded && !n.frozen && n.clock() >= n.guard && n.w.flaw != flawNoFence {
		n.w.log("member %d: the guard ends it", n.id)
		n.flushed = n.end
		n.w.disturb(n)
		n.start(false)
	}
}

// step passes an input to the state machine and does its effects.
func (n *node) step(in Input) {
	if !n.up || n.w.violation != "" {
		return
	}
	before, term := n.state.Phase, n.state.term
	in = n.w.flaw.mutateInput(n, in)
	next, effects := Step(n.state, n.clock(), in)
	n.state = next
	effects = n.w.flaw.mutateEffects(n, in, effects)
	if n.w.tracing {
		_, isStreamed := in.(Streamed)
		_, isAcknowledged := in.(Acknowledged)
		if !isStreamed && !isAcknowledged && (len(effects) > 0 || before != next.Phase) {
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
	if v, is := in.(VoteReply); is && before == Asking && v.Term == term && v.WAL.Flushed.Newer(n.shown) {
		n.shown = v.WAL.Flushed
	}
}

func (n *node) do(e Effect) {
	switch e := e.(type) {
	case Persist:
		n.disk = e.Disk
		n.known = max(n.known, e.Disk.Known.Term)
	case ReadLease:
		n.w.readLease(n, e.Sent)
	case WriteLease:
		if n.id == n.w.earlier {
			e.Record.Duration = 0
		}
		n.w.writeLease(n, e)
	case AskVote:
		n.w.send(n, e.To, e.Request)
		n.reportSilence(e)
	case Vote:
		n.w.send(n, e.To, e.Reply)
	case AskConfirm:
		n.w.send(n, e.To, e.Request)
	case Confirm:
		if n.id == n.w.earlier {
			e.Reply.Promised = 0
		}
		if asked := n.w.nodeOf(e.To); asked != nil && e.Reply.Confirmed {
			asked.reliable = max(asked.reliable, timingOf(e.Reply.Promised).Deadlines(e.Reply.Sent).Fence)
		}
		n.w.send(n, e.To, e.Reply)
	case Stall:
		n.w.stalls[e.Reason] = true
	default:
		n.doLocally(e)
	}
}

// reportSilence says of a member that is asked for its vote whether it is silent.
func (n *node) reportSilence(e AskVote) {
	to := n.w.nodeOf(e.To)
	if to == nil {
		return
	}
	if s := n.silent[to.id]; s.questions >= 3 && n.clock()-s.since >= n.timing.Silence() {
		n.later(n.w.between(0, time.Millisecond), func() { n.step(VoterSilent{e.To, e.Request.Term}) })
	}
}

// doLocally does what concerns the server and the guard.
func (n *node) doLocally(e Effect) {
	switch e := e.(type) {
	case StopReceiver:
		n.receiving = false
		n.flushed = n.end
		n.stops++
		stop := n.stops
		n.later(cmp.Or(n.stopTime, n.w.stopTime()), func() {
			if n.stops == stop { // the answer to an earlier one counts no more
				n.step(ReceiverStopped{n.reportWAL()})
			}
		})
	case Promote:
		n.promote(e)
	case SetQuorum:
		n.setQuorum(e)
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
	if len(n.state.lease.record.Volumes) == 1 { // no other member may lead: there is none to ask
		n.reliable = n.timing.Deadlines(n.clock()).Fence
	}
	if until > n.reliable {
		n.w.violate("member %d relies on its lease until %s, and the last answer allows it until %s", n.id, until, n.reliable)
	}
	n.guard, n.guarded = until, true
	n.extendGuardEvent()
}

// extendGuardEvent has the guard wake up at its deadline.
func (n *node) extendGuardEvent() {
	until := n.guard
	n.w.after(max(0, time.Duration(float64(until-n.clock())/n.rate)+time.Microsecond), func() {
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

// endOf is where the WAL of the volume ends on a fork, 0 without it.
func (n *node) endOf(is func(fork) bool) uint64 {
	for i, f := range n.wal {
		if is(f) && i+1 < len(n.wal) {
			return n.wal[i+1].begin
		} else if is(f) {
			return n.end
		}
	}
	return 0
}

func (n *node) endOnTimeline(timeline int64) uint64 {
	return n.endOf(func(f fork) bool { return f.timeline == timeline })
}

func (n *node) endOnFork(id int) uint64 { return n.endOf(func(f fork) bool { return f.id == id }) }

// lastFork is the ID of the fork that the WAL ends on.
func (n *node) lastFork() int { return n.wal[len(n.wal)-1].id }

func (n *node) promote(e Promote) {
	n.life++
	life := n.life
	n.later(n.w.between(100*time.Millisecond, second), func() {
		if n.life != life {
			return
		}
		if n.w.broken == n.id || !n.w.calm && n.w.chance(3) {
			n.step(ServerFailed{e.Term})
			return
		}
		reserved := e.Timeline
		if n.w.flaw == flawNextTimeline && len(n.wal) > 0 {
			e.Timeline = n.wal[len(n.wal)-1].timeline + 1
		}
		n.w.checkElection(n, e)
		n.w.forks++
		n.wal = append(slices.Clone(n.wal), fork{e.Timeline, n.end, n.w.forks})
		n.end++
		n.flushed = n.end
		n.primary, n.timeline, n.term = true, e.Timeline, e.Term
		n.names, n.settingTo = e.Quorum, nil
		n.w.log("member %d: primary on timeline %d in term %d from %d", n.id, e.Timeline, e.Term, n.end)
		n.step(Promoted{e.Term, reserved})
	})
}

// setQuorum has the server wait for other members. It counts as set once a commit
// was acknowledged by them, which all earlier ones are before.
func (n *node) setQuorum(e SetQuorum) {
	life := n.life
	n.later(n.w.between(10*time.Millisecond, second), func() {
		if n.life != life || !n.primary || n.setID > e.ID {
			return
		}
		n.setID = e.ID
		n.names, n.settling, n.settingTo = e.Quorum, n.end, &e
		n.w.log("member %d: acknowledged by %+v", n.id, e.Quorum)
		if e.Quorum == nil || n.w.flaw == flawNoCatchUp {
			n.settingTo = nil
			n.step(QuorumSet{e.ID})
		}
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
		if m != n && m.canCommit() && !w.stopped && !w.isSplitExcused(n, m) {
			w.violate("members %d and %d can both commit, in terms %d and %d", n.id, m.id, n.term, m.term)
		}
	}
	if w.flaw != flawNoFence && n.guarded && n.clock() > n.guard+time.Millisecond {
		w.violate("member %d commits after its fence deadline", n.id)
	}
	n.end++
	n.flushed = n.end
	holders := []string{n.volume}
	for _, m := range w.nodes {
		if m != n && n.stream(m) {
			holders = append(holders, m.volume)
		}
	}
	n.acknowledge(holders)
}

// acknowledge answers the client if enough members hold its write.
func (n *node) acknowledge(holders []string) {
	w := n.w
	if n.names != nil {
		count := 0
		for _, volume := range holders {
			if slices.Contains(n.names.Volumes, volume) {
				count++
			}
		}
		if count < n.names.Write {
			return
		}
	}
	if n.names != nil && w.api.record.Quorum != nil && w.forced == w.forcedAfter(n.term) {
		w.acked[n.lastFork()] = n.end
	}
	w.commits++
	w.served = w.now
	if n.agentStopped {
		return
	}
	n.step(Acknowledged{lease.Position{Timeline: n.timeline, LSN: n.end}})
	if n.settingTo != nil && n.end > n.settling {
		set := n.settingTo.ID
		n.settingTo = nil
		n.step(QuorumSet{set})
	}
}

// forcedAfter is the forced term unless it came after the given one: what an old
// primary acknowledges then was given up.
func (w *world) forcedAfter(term int64) int64 {
	if w.forced > term {
		return -1
	}
	return w.forced
}

// stream brings the WAL of a primary to a follower of its term, and reports
// whether it is on the follower's disk.
func (n *node) stream(m *node) bool {
	if m == n || !m.up || m.frozen || m.primary || !m.receiving || m.followTerm != n.term || m.followed != n.volume || !n.w.isLinked(n.id, m.id) {
		return false
	}
	if m.disk.Rewinding || !m.isBehind(n) {
		m.rewind(n)
		return false
	}
	if !slices.Contains(m.disk.Timelines, n.timeline) {
		if !m.agentStopped {
			m.step(Received{n.timeline})
		}
		return false
	}
	m.wal, m.end = n.wal, n.end
	if m.lazy {
		m.flushSoon()
		m.lazy = n.w.chance(60)
		return false
	}
	m.flushed = m.end
	if !n.agentStopped {
		n.step(Streamed{n.timeline})
	}
	m.lazy = n.w.chance(10)
	return true
}

// flushSoon has the receiver flush what it wrote: at the latest when its stream ends, and
// on a slow volume some time after that.
func (n *node) flushSoon() {
	epoch := n.epoch
	n.w.after(2*second, func() {
		if n.epoch == epoch {
			n.flushed = n.end
		}
	})
}

// isBehind reports whether m holds all of what n holds. A volume without data is
// not behind anything: it has to be cloned.
func (n *node) isBehind(m *node) bool {
	for i, f := range n.wal {
		if i < len(m.wal) && m.wal[i].timeline == f.timeline && m.wal[i].id != f.id && !n.w.reused[f.timeline] {
			n.w.violate("members %d and %d hold different content on timeline %d", n.id, m.id, f.timeline)
		}
		if i >= len(m.wal) || m.wal[i] != f {
			return false
		}
	}
	return len(n.wal) > 0 && n.end <= m.endOnFork(n.lastFork())
}

// rewind replaces what the primary does not have, or clones an empty volume. Until
// it ends, what the volume holds is of no use.
func (n *node) rewind(m *node) {
	if n.rewinding%2 == 1 || n.agentStopped {
		return
	}
	n.rewinding++
	epoch, at := n.epoch, n.rewinding
	n.step(RewindBegun{})
	if n.epoch != epoch || !n.disk.Rewinding {
		n.rewinding--
		return
	}
	n.wal, n.end, n.flushed = nil, 0, 0
	n.later(n.w.between(200*time.Millisecond, 4*second), func() {
		if n.rewinding != at {
			return
		}
		n.rewinding++
		if !m.canCommit() || !n.receiving || n.followed != m.volume || n.followTerm != m.term || !n.w.isLinked(n.id, m.id) {
			return // its source is gone: it begins again
		}
		n.wal, n.end, n.flushed = m.wal, m.end, m.end
		n.step(RewindEnded{"s", n.reportWAL().Timelines})
	})
}
