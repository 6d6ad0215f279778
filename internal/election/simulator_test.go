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

// A history is one run of the simulator, made from its seed alone.

const (
	horizon = 55 * time.Second
	second  = time.Second
)

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
	timing  lease.Timing
	api     apiState
	older   []apiState
	apiDown bool
	apiSick bool // answers with errors
	nextUID int
	nodes   []*node
	cut     [4][4]bool          // from, to
	quiet   [4][4]time.Duration // since when both ways work
	lossy   bool
	calm    bool // no crash between two effects
	sync    bool

	promoted  map[int64]int // timeline → node
	acked     map[int64]uint64
	elections int
	commits   int
	edited    bool // by hand, or restored to an older state

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

func newWorld(seed uint64, f flaw) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 7)), flaw: f, promoted: map[int64]int{1: -1}, acked: map[int64]uint64{}}
	w.timing, _ = lease.NewTiming(0)
	w.sync, w.lossy = w.chance(50), w.chance(25)
	w.now = time.Duration(w.rng.IntN(1000)) * time.Millisecond
	var volumes []string
	size := 3
	if w.chance(15) {
		size = 2
	}
	for i := range size {
		volumes = append(volumes, "v"+strconv.Itoa(i))
	}
	record := lease.Record{Term: 1, Timeline: 1, HighestTimeline: 1, ReachedTimeline: 1, SystemIdentifier: "s", Volumes: volumes, Shutdown: &lease.Position{Timeline: 1, LSN: 100}}
	if w.sync {
		record.Quorum = &lease.Quorum{Volumes: volumes, Write: 2}
	}
	w.api = apiState{exists: true, uid: 1, version: 1, record: record}
	w.nextUID = 1
	for i := range size {
		n := &node{w: w, id: i, volume: volumes[i], wal: []fork{{1, 0}}, end: 100, flushed: 100}
		n.disk = Persistent{VolumeID: n.volume, SystemIdentifier: "s", Timelines: []int64{1}, Known: record}
		w.nodes = append(w.nodes, n)
		n.start(true)
	}
	w.after(0, w.write)
	w.after(w.between(0, second), w.keepSnapshot)
	w.planFaults()
	return w
}

func (w *world) keepSnapshot() {
	w.older = append(w.older, w.api)
	for _, n := range w.nodes {
		n.older = append(n.older, snapshot{n.disk, slices.Clone(n.wal), n.flushed})
	}
	w.after(6*second, w.keepSnapshot)
}

// run stops at the first violation.
func (w *world) run() {
	for len(w.queue) > 0 && w.violation == "" {
		e := heap.Pop(&w.queue).(event)
		if e.at > horizon {
			return
		}
		w.now = e.at
		e.do()
	}
}

// write has a client inside each pod write to its server, twice a second.
func (w *world) write() {
	for _, n := range w.nodes {
		n.commit()
	}
	w.after(w.between(200*time.Millisecond, 800*time.Millisecond), w.write)
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
		}
		return func() {
			reading.Received = w.now
			if w.flaw == flawShortExpiry {
				reading.Received -= 8 * second
			}
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
			if answer.Answer == lease.Done {
				n.reliable = max(n.reliable, e.Sent)
			}
			n.step(answer)
		}
	})
}

func (w *world) store(n *node, r lease.Record) {
	if r.Term > n.known && n.known > w.api.record.Term && w.sync {
		w.violate("member %d wins term %d after term %d, and had read term %d", n.id, r.Term, w.api.record.Term, n.known)
	}
	if r.Term != w.api.record.Term || r.HolderUID != w.api.record.HolderUID {
		w.log("lease: term %d, holder %q, timeline %d, by member %d", r.Term, r.HolderUID, r.Timeline, n.id)
	}
	w.api.version++
	w.api.record = r
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

// runHistory runs one history, and again with its trace if it fails.
func runHistory(t *testing.T, seed uint64) *world {
	w := newWorld(seed, flawNone)
	w.run()
	if w.violation != "" {
		again := newWorld(seed, flawNone)
		again.tracing = true
		again.run()
		for _, line := range again.trace {
			t.Log(line)
		}
		t.Fatalf("seed %d: %s", seed, w.violation)
	}
	return w
}
