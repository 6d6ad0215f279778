package elector

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// trace records what happened in a test, in order.
type trace struct {
	mu    sync.Mutex
	lines []string
}

func (t *trace) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line)
}

// find is the index of the first line that is equal, -1 for none.
func (t *trace) find(line string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Index(t.lines, line)
}

func (t *trace) count(line string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, l := range t.lines {
		if l == line {
			n++
		}
	}
	return n
}

// fakeVolume keeps a record in memory. It can hang or fail.
type fakeVolume struct {
	trace *trace

	mu       sync.Mutex
	recorded election.Persistent
	hanging  chan struct{} // nil while it does not hang
	slow     time.Duration // a write takes
	failure  error
	agent    int // writes of an agent that is gone do not arrive
}

func (v *fakeVolume) WriteRecord(p election.Persistent) error {
	v.mu.Lock()
	hanging, slow, agent := v.hanging, v.slow, v.agent
	v.mu.Unlock()
	if hanging != nil {
		<-hanging
	}
	time.Sleep(slow)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.agent != agent {
		return errors.New("the agent that writes is gone")
	}
	if v.failure != nil {
		return v.failure
	}
	v.recorded = p
	v.trace.add("persisted: promised " + strconv.FormatInt(p.Promised, 10))
	return nil
}

// hang has writes wait, until release.
func (v *fakeVolume) hang() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.hanging == nil {
		v.hanging = make(chan struct{})
	}
}

func (v *fakeVolume) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.hanging != nil {
		close(v.hanging)
		v.hanging = nil
	}
}

func (v *fakeVolume) fail(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failure = err
}

// mount gives the volume to another agent.
func (v *fakeVolume) mount() election.Persistent {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.agent++
	return v.recorded
}

func (v *fakeVolume) setSlow(d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.slow = d
}

func (v *fakeVolume) read() election.Persistent {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.recorded
}

// leaseStore is the API server's Lease.
type leaseStore struct {
	mu      sync.Mutex
	exists  bool
	version int
	record  lease.Record
	written []lease.Record
}

func (s *leaseStore) state() (lease.Version, lease.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return lease.Version{UID: "u", Resource: strconv.Itoa(s.version)}, s.record
}

func (s *leaseStore) put(r lease.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exists, s.record = true, r
	s.version++
	s.written = append(s.written, r)
}

func (s *leaseStore) countWrites() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.written)
}

// fakeLease is one member's way to the Lease. It can be cut off, and lose or delay
// answers to what was done.
type fakeLease struct {
	store *leaseStore
	trace *trace
	// judgeClaim and, of a server, judgePromotion look for what is not allowed.
	judgeClaim func(lease.Record)

	mu    sync.Mutex
	cut   bool          // no request arrives
	lossy bool          // no answer does
	alien bool          // each answer is that the client is not known
	delay time.Duration // of answers; a client gets them late, beyond its timeout
}

func (l *fakeLease) set(change func(*fakeLease)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// exchange does a request and reports whether its answer arrives.
func (l *fakeLease) exchange(ctx context.Context, do func()) error {
	l.mu.Lock()
	cut, lossy, delay := l.cut, l.lossy, l.delay
	l.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if cut {
		<-ctx.Done()
		return ctx.Err()
	}
	do()
	if lossy {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(delay)
	return nil
}

// errAlien is the answer to a client whose token is not valid any more.
var errAlien = errors.New("the API server answered 401: Unauthorized")

func (l *fakeLease) isAlien() bool {
	l.mu.Lock()
	alien, delay := l.alien, l.delay
	l.mu.Unlock()
	if alien {
		time.Sleep(delay)
	}
	return alien
}

func (l *fakeLease) ReadLease(ctx context.Context) (reading lease.Reading, err error) {
	if l.isAlien() {
		return lease.Reading{Answer: lease.Forbidden}, errAlien
	}
	err = l.exchange(ctx, func() {
		l.store.mu.Lock()
		defer l.store.mu.Unlock()
		reading.Answer = lease.Missing
		if l.store.exists {
			reading.Answer, reading.Record = lease.Done, l.store.record
			reading.Version = lease.Version{UID: "u", Resource: strconv.Itoa(l.store.version)}
		}
	})
	if err != nil {
		return lease.Reading{}, err
	}
	return reading, nil
}

func (l *fakeLease) WriteLease(ctx context.Context, base lease.Version, r lease.Record) (answer lease.Answer, version lease.Version, err error) {
	l.trace.add("written: term " + strconv.FormatInt(r.Term, 10))
	if l.isAlien() {
		return lease.Forbidden, lease.Version{}, errAlien
	}
	if _, now := l.store.state(); r.Term > now.Term {
		l.judgeClaim(r)
	}
	err = l.exchange(ctx, func() {
		now, _ := l.store.state()
		if base != now {
			answer = lease.Conflict
			return
		}
		l.store.put(r)
		answer = lease.Done
		version, _ = l.store.state()
	})
	switch {
	case err != nil:
		return lease.Unanswered, lease.Version{}, err
	case answer != lease.Done:
		return answer, lease.Version{}, errors.New("another client was first")
	}
	return answer, version, nil
}

// fork is a timeline, with the position at which it begins and the number of its
// promotion. A list of forks and an end determine the content of the WAL.
type fork struct {
	timeline int64
	begin    uint64
	id       int
}

// life is how long a server was a primary, by the test's clock.
type life struct {
	term, timeline int64
	begin, end     time.Duration
	ended          bool
	pod            string
}

// fakeServer is a member's PostgreSQL. What it is asked for takes delay.
type fakeServer struct {
	trace   *trace
	now     func() time.Duration
	pod     string
	reports Reports
	delay   time.Duration

	judgePromotion func(Promotion)
	// lawless servers do not stop when they are fenced: only the guard ends them.
	lawless bool

	mu       sync.Mutex
	forks    []fork
	end      uint64
	primary  bool
	closing  bool // it shuts down, and takes no more writes
	epoch    int  // grows with each request that replaces the one before
	leader   Leader
	follows  bool
	lives    []life
	quorums  []int64
	fences   int
	rewinds  int
	breaking bool // the next promotion fails
	nextID   func() int
}

func (s *fakeServer) wal() election.WAL {
	w := election.WAL{}
	for _, f := range s.forks {
		w.Timelines = append(w.Timelines, f.timeline)
	}
	if len(s.forks) > 0 {
		w.Flushed = lease.Position{Timeline: s.forks[len(s.forks)-1].timeline, LSN: s.end}
	}
	return w
}

func (s *fakeServer) ReadWAL(context.Context) (election.WAL, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wal(), nil
}

// later does something after the server's delay, unless another request replaces it.
func (s *fakeServer) later(do func()) {
	s.epoch++
	epoch := s.epoch
	time.AfterFunc(s.delay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.epoch == epoch {
			do()
		}
	})
}

func (s *fakeServer) StopReceiver(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace.add("receiver stopped")
	s.follows = false
	s.later(func() { s.reports.ReportReceiverStopped(id, s.wal()) })
}

func (s *fakeServer) Follow(leader Leader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace.add("follows " + leader.Volume)
	s.epoch++
	s.leader, s.follows = leader, true
}

func (s *fakeServer) Promote(ctx context.Context, p Promotion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace.add("promoted: term " + strconv.FormatInt(p.Term, 10))
	s.judgePromotion(p)
	s.later(func() {
		if ctx.Err() != nil {
			return
		}
		if s.breaking {
			s.breaking = false
			s.reports.ReportFailed(p.Term)
			return
		}
		s.forks = append(slices.Clone(s.forks), fork{p.Timeline, s.end, s.nextID()})
		s.end++
		s.primary, s.follows = true, false
		s.lives = append(s.lives, life{term: p.Term, timeline: p.Timeline, begin: s.now(), pod: s.pod})
		s.reports.ReportPromoted(p.Term, p.Timeline)
	})
}

func (s *fakeServer) SetQuorum(_ context.Context, id int64, _ *lease.Quorum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace.add("quorum set")
	s.quorums = append(s.quorums, id)
	s.reports.ReportQuorumSet(id) // from within: the elector does not wait for itself
}

func (s *fakeServer) StopServer(term int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace.add("server stopped")
	if !s.primary {
		return
	}
	s.end++ // the shutdown checkpoint, which standbys receive before the end
	s.closing = true
	time.AfterFunc(600*time.Millisecond, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.primary {
			return
		}
		s.epoch++
		s.endLife()
		s.reports.ReportStopped(term, s.wal().Flushed)
	})
}

func (s *fakeServer) Fence(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace.add("fenced")
	s.fences++
	if s.lawless {
		return
	}
	s.epoch++
	s.endLife()
	s.reports.ReportFenced(id)
}

// endLife ends a primary; the mutex is held.
func (s *fakeServer) endLife() {
	if s.primary {
		s.primary, s.closing = false, false
		s.lives[len(s.lives)-1].end, s.lives[len(s.lives)-1].ended = s.now(), true
	}
}

// kill ends every process, as the guard does.
func (s *fakeServer) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	s.follows = false
	s.endLife()
}

// endOn is where the WAL ends on a fork, 0 without it; the mutex is held.
func (s *fakeServer) endOn(id int) uint64 {
	for i, f := range s.forks {
		if f.id == id && i+1 < len(s.forks) {
			return s.forks[i+1].begin
		} else if f.id == id {
			return s.end
		}
	}
	return 0
}

// fakeGuard kills the server at its deadline.
type fakeGuard struct {
	now    func() time.Duration
	killed func()

	mu     sync.Mutex
	until  time.Duration // 0 for none
	timer  *time.Timer
	clears int
	moves  int
}

func (g *fakeGuard) Extend(until time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.until != 0 && g.now() >= g.until {
		return false
	}
	if g.until = max(g.until, until); g.timer != nil {
		g.timer.Stop()
	}
	g.moves++
	g.timer = time.AfterFunc(g.until-g.now(), g.killed)
	return true
}

func (g *fakeGuard) Clear() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.until != 0 && g.now() >= g.until {
		return false
	}
	g.until = 0
	g.clears++
	if g.timer != nil {
		g.timer.Stop()
	}
	return true
}

func (g *fakeGuard) deadline() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until
}

// countFences is how often it was fenced.
func (s *fakeServer) countFences() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fences
}

// listLives are the times for which it was a primary.
func (s *fakeServer) listLives() []life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lives)
}
