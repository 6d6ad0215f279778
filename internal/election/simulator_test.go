package election

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// A history is one run of the simulator, made from its seed alone. Faults begin
// until lastFault and end at healing. After that a primary has to serve.

const (
	second    = time.Second
	lastFault = 28 * second
	healing   = 44 * second
	attempts  = 45 * second // how much longer that takes beside a member that fails to lead
	// disturbance is how long faults go on while a person forces a member.
	disturbance = 60 * second
)

// timingOf is that of a Lease of a duration; 0 is the default.
func timingOf(duration time.Duration) lease.Timing {
	timing, err := lease.NewTiming(duration)
	if err != nil {
		panic(err)
	}
	return timing
}

// settled is when no Lease of before the end of the faults is left.
func (w *world) settled() time.Duration { return healing + w.longest*12/10 }

// patience is when a person forces a member.
func (w *world) patience() time.Duration { return healing + 4*w.longest }

// horizon is the end of a history.
func (w *world) horizon() time.Duration { return w.patience() + attempts + disturbance + 6*w.longest }

type event struct {
	at  time.Duration
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// apiState is what the API server holds.
type apiState struct {
	exists  bool
	uid     int
	version int
	record  lease.Record
}

func (a apiState) leaseVersion() lease.Version {
	return lease.Version{UID: strconv.Itoa(a.uid), Resource: strconv.Itoa(a.version)}
}

// world is all of one history.
type world struct {
	rng     *rand.Rand
	flaw    flaw
	now     time.Duration
	queue   events
	seq     int
	longest time.Duration // of the Lease, in this history
	api     apiState
	older   []apiState
	apiDown bool
	apiSick bool // answers with errors
	nextUID int
	nodes   []*node
	cut     [4][4]bool          // from, to
	quiet   [4][4]time.Duration // since when both ways work
	lossy   bool
	calm    bool // no crash between two effects, no failed promotion
	drift   bool // the members' clocks run at different rates
	slow    bool // receivers take long to stop
	stopped bool // a machine was stopped without its clock: two primaries, but not two that acknowledge

	sync, changing bool // the wanted mode; members and mode change while it runs
	leftOut        int  // percent of the members that are not wanted when they change
	write          int
	maxLag         uint64
	noFailover     int // member, -1 for none
	broken         int // member whose server can never be promoted, -1 for none
	earlier        int // member whose agent knows of no duration of the Lease, -1 for none

	forks      int
	promoted   map[int64]int  // timeline → node
	reused     map[int64]bool // timelines of two members, by an older state of the API server
	acked      map[int]uint64
	floor      lease.Position // newest acknowledged position on the Lease
	releasedAt time.Duration
	elections  int
	commits    int
	served     time.Duration // last acknowledged commit
	changes    int           // of members or quorum
	edited     bool          // by hand, or restored to an older state
	editedAt   time.Duration // by hand, last
	claimedAt  time.Duration // the last term that was won
	restored   bool          // the API server
	restoredAt time.Duration
	lost       bool // a volume, or it was reset to an older state
	reset      bool
	healed     bool
	forced     int64 // term that a person forced
	stalls     map[string]bool

	tracing   bool
	trace     []string
	violation string
}

func (w *world) log(format string, args ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%7.2fs ", w.now.Seconds())+fmt.Sprintf(format, args...))
	}
}

func (w *world) violate(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
		w.log("VIOLATION: %s", w.violation)
	}
}

func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, event{w.now + d, w.seq, do})
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rng.Int64N(int64(high-low)))
}

// delay is how long a message takes; negative if it is lost.
func (w *world) delay() time.Duration {
	if w.lossy && w.chance(4) {
		return -1
	}
	if w.lossy && w.chance(6) {
		return w.between(time.Second/2, 4*second)
	}
	return w.between(time.Millisecond, 30*time.Millisecond)
}

// stopTime is how long a receiver takes to stop.
func (w *world) stopTime() time.Duration {
	if w.slow {
		return w.between(300*time.Millisecond, 700*time.Millisecond)
	}
	return w.between(time.Millisecond, 200*time.Millisecond)
}

func newWorld(seed uint64, f flaw) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 7)), flaw: f, noFailover: -1, broken: -1, earlier: -1,
		promoted: map[int64]int{1: -1}, reused: map[int64]bool{}, acked: map[int]uint64{}, stalls: map[string]bool{},
	}
	w.longest = lease.DefaultDuration
	w.sync, w.lossy, w.changing, w.drift, w.slow = w.chance(50), w.chance(25), w.chance(30), w.chance(50), w.chance(20)
	w.leftOut = 10
	if w.chance(20) || f == flawShortenAtOnce || f == flawOwnDuration || f == flawRelyUnknown {
		w.longest = 30 * second
	}
	if f == flawShortenAtOnce { // two that commit are to be seen
		w.changing = false
	}
	if f == flawNoCatchUp {
		w.sync, w.changing, w.leftOut = true, true, 40
	}
	w.now = time.Duration(w.rng.IntN(1000)) * time.Millisecond
	size := 3
	if w.chance(15) {
		size = 2
	}
	if w.chance(10) {
		w.noFailover = w.rng.IntN(size)
	}
	if w.chance(20) {
		w.maxLag = 4
	}
	if w.chance(15) || f == flawNeverStandsBack {
		w.broken = w.rng.IntN(size)
	}
	w.start(size)
	w.after(0, w.writeAll)
	w.after(w.between(0, second), w.keepSnapshot)
	w.after(w.between(0, second), w.askMembers)
	w.after(w.between(4*second, 8*second), w.wantMembers)
	w.after(healing-w.now, w.heal)
	if w.longest > lease.DefaultDuration {
		w.after(w.between(0, 4*second), w.changeDuration)
		w.after(w.between(0, second), w.reportDurations)
		if w.chance(30) || f == flawRelyUnknown {
			w.earlier = w.rng.IntN(size)
		}
	}
	w.planFaults()
	return w
}

// start begins with a cluster whose Lease was released in order.
func (w *world) start(size int) {
	var volumes []string
	for i := range size {
		volumes = append(volumes, "v"+strconv.Itoa(i))
	}
	record := lease.Record{Term: 1, Timeline: 1, HighestTimeline: 1, ReachedTimeline: 1, SystemIdentifier: "s", Volumes: volumes, Shutdown: &lease.Position{Timeline: 1, LSN: 100}}
	w.write = 2
	if w.sync {
		record.Quorum = &lease.Quorum{Volumes: volumes, Write: w.write}
	}
	w.api = apiState{exists: true, uid: 1, version: 1, record: record}
	w.nextUID = 1
	for i := range size {
		n := &node{w: w, id: i, volume: volumes[i], wal: []fork{{timeline: 1}}, end: 100, flushed: 100, rate: 1, timing: timingOf(0)}
		if w.drift { // far more than clocks of machines differ
			n.rate, n.offset = 0.95+0.1*w.rng.Float64(), w.between(0, 1000*second)
		}
		n.disk = Persistent{VolumeID: n.volume, SystemIdentifier: "s", Timelines: []int64{1}, Known: record}
		w.nodes = append(w.nodes, n)
		n.start(true)
	}
}

func (w *world) keepSnapshot() {
	w.older = append(w.older, w.api)
	for _, n := range w.nodes {
		n.older = append(n.older, snapshot{n.disk, slices.Clone(n.wal), n.flushed})
	}
	w.after(6*second, w.keepSnapshot)
}

// run stops at the first violation, and when a primary served for a while after
// the faults.
func (w *world) run() {
	for len(w.queue) > 0 && w.violation == "" {
		e := heap.Pop(&w.queue).(event)
		if e.at > w.horizon() || w.hasSettled() {
			return
		}
		w.now = e.at
		e.do()
	}
}

// hasSettled reports whether a primary serves by a Lease that it renewed after the
// faults.
func (w *world) hasSettled() bool {
	return w.healed && w.now > w.settled() && w.served > w.settled()
}

// writeAll has a client inside each pod write to its server, twice a second.
func (w *world) writeAll() {
	for _, n := range w.nodes {
		n.commit()
	}
	w.after(w.between(200*time.Millisecond, 800*time.Millisecond), w.writeAll)
}

// isLinked reports whether both directions work.
func (w *world) isLinked(i, j int) bool { return !w.cut[i][j] && !w.cut[j][i] }

func (w *world) nodeOf(volume string) *node {
	for _, n := range w.nodes {
		if n.volume == volume {
			return n
		}
	}
	return nil
}

// request sends a request of the node to the API server and its answer back.
func (w *world) request(n *node, do func() (answer func())) {
	epoch, toward, back := n.epoch, w.delay(), w.delay()
	if n.apiCut || toward < 0 {
		return
	}
	w.after(toward, func() {
		if w.apiDown {
			return
		}
		answer := do()
		if back < 0 || n.answersLost {
			return
		}
		w.after(back, func() {
			if n.epoch == epoch && !n.apiCut {
				n.whenAwake(answer)
			}
		})
	})
}

// recordAnswer notes when the member reached the API server last.
func (n *node) recordAnswer(a lease.Answer) {
	if a.IsReached() {
		n.reachedAPI = n.w.now
	}
}

func (w *world) readLease(n *node, sent time.Duration) {
	w.request(n, func() func() {
		reading := lease.Reading{Sent: sent}
		switch {
		case w.apiSick:
		case n.forbidden:
			reading.Answer = lease.Forbidden
		case !w.api.exists:
			reading.Answer = lease.Missing
		default:
			reading.Answer, reading.Version, reading.Record = lease.Done, w.api.leaseVersion(), w.api.record
			if n.id == w.earlier {
				reading.Record.Duration = 0
			}
		}
		return func() {
			reading.Received = n.clock()
			n.recordAnswer(reading.Answer)
			n.step(LeaseRead{reading})
		}
	})
}

func (w *world) writeLease(n *node, e WriteLease) {
	w.request(n, func() func() {
		answer := LeaseWritten{Sent: e.Sent}
		create := e.Base == lease.Version{}
		switch {
		case w.apiSick:
			if w.chance(50) && w.api.exists && w.api.leaseVersion() == e.Base { // done, and answered with an error
				w.store(n, e.Record)
			}
		case n.forbidden:
			answer.Answer = lease.Forbidden
			// Another member may write a release, and its answer be lost.
			if e.Record.IsReleased() && !create && w.api.exists && w.api.leaseVersion() == e.Base && w.chance(50) {
				w.store(n, e.Record)
				if w.chance(50) {
					answer.Answer, answer.Version = lease.Done, w.api.leaseVersion()
				}
			}
		case create && w.api.exists, !create && w.api.exists && w.api.leaseVersion() != e.Base:
			answer.Answer = lease.Conflict
		case !create && !w.api.exists:
			answer.Answer = lease.Missing
		default:
			if create {
				w.nextUID++
				w.api.uid, w.api.exists = w.nextUID, true
			}
			w.store(n, e.Record)
			answer.Answer, answer.Version = lease.Done, w.api.leaseVersion()
		}
		return func() {
			n.recordAnswer(answer.Answer)
			if answer.Answer == lease.Done {
				n.reliable = max(n.reliable, timingOf(e.Record.Duration).Deadlines(e.Sent).Fence)
			}
			n.step(answer)
		}
	})
}

// store judges what is written to the Lease.
func (w *world) store(n *node, r lease.Record) {
	before := w.api.record
	// A member that never heard of the term that was lost with the Lease may take it again.
	isClaim := r.HolderUID != "" && (r.Term != before.Term || r.HolderUID != before.HolderUID)
	if isClaim && r.ForcedTimeline == r.Timeline {
		w.recordForced(n, r.Term)
	}
	if isClaim {
		w.claimedAt = w.now
	}
	if isClaim && w.forced != r.Term {
		w.judgeClaim(n, before, r)
	}
	if r.Validate() != nil {
		w.violate("member %d writes a record that is refused: %v", n.id, r.Validate())
	}
	if r.Revision != before.Revision {
		w.changes++
	}
	if r.Quorum == nil { // no vote is mandatory any more
		clear(w.acked)
		w.floor = lease.Position{}
	} else if r.Acknowledged.Newer(w.floor) && before.Quorum != nil {
		w.floor = r.Acknowledged
	}
	if r.IsReleased() {
		w.releasedAt = w.now
	}
	if isClaim || r.IsReleased() || r.Revision != before.Revision {
		w.log("lease: term %d, holder %q, timeline %d, volumes %v, quorum %+v, by member %d", r.Term, r.HolderUID, r.Timeline, r.Volumes, r.Quorum, n.id)
	}
	w.api.version++
	w.api.record = r
}

// recordForced records that a person has decided to go on with what a member holds,
// whether or not its server comes to lead: the Lease says so.
func (w *world) recordForced(n *node, term int64) {
	w.forced, w.floor = term, lease.Position{}
	for id, end := range w.acked {
		w.acked[id] = min(end, n.endOnFork(id))
	}
}

// judgeClaim judges what was sent: the member may have another volume by now.
func (w *world) judgeClaim(n *node, before, r lease.Record) {
	switch {
	case r.Term > n.known && n.known > before.Term && before.Term > 0:
		w.violate("member %d wins term %d after term %d, and had read term %d", n.id, r.Term, before.Term, n.known)
	case w.noFailover == n.id:
		w.violate("member %d wins term %d, and may not lead", n.id, r.Term)
	case r.Quorum == nil && w.maxLag > 0 && before.CountLag(r.Acknowledged) > w.maxLag:
		w.violate("member %d wins term %d with %v; %v was acknowledged", n.id, r.Term, r.Acknowledged, before.Acknowledged)
	case before.IsReleased() && before.Successor != "" && before.Successor != r.HolderVolume && w.now-w.releasedAt < 9*second:
		w.violate("member %d takes a Lease that was released for volume %s", n.id, before.Successor)
	}
}

// send brings a message to the member with the volume.
func (w *world) send(from *node, volume string, in Input) {
	to := w.nodeOf(volume)
	d := w.delay()
	if to == nil || d < 0 || w.cut[from.id][to.id] {
		return
	}
	epoch := to.epoch
	w.after(d, func() {
		if to.epoch != epoch || w.cut[from.id][to.id] {
			return
		}
		to.whenAwake(func() {
			if request, is := in.(VoteRequest); is {
				request.WAL = to.reportWAL()
				to.step(request)
				return
			}
			to.step(in)
		})
	})
}

// runHistory runs one history. The first that fails is run again with its trace.
func runHistory(t *testing.T, seed uint64) *world {
	w := newWorld(seed, flawNone)
	w.run()
	w.judgeEnd()
	if w.violation == "" {
		return w
	}
	if !t.Failed() {
		again := newWorld(seed, flawNone)
		again.tracing = true
		again.run()
		for _, line := range again.trace {
			t.Log(line)
		}
	}
	t.Errorf("seed %d: %s", seed, w.violation)
	return w
}
