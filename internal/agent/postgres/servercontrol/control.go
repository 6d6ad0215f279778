package servercontrol

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/recoverywatch"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// Pauses between two attempts of a command.
const (
	retryPause = 200 * time.Millisecond
	// startPatience is how long a promotion waits for a server that is not there and does
	// not come nearer.
	startPatience = 10 * time.Second
	// stopPatience is how long an orderly shutdown may take. The election fences a
	// server that takes longer.
	stopPatience = 4500 * time.Millisecond
)

// Options are what a Control is made of.
type Options struct {
	Log *slog.Logger
	// Volume of the member, and PGData, the data directory on it.
	Volume, PGData string
	Programs       server.Programs
	// Connection is how this member connects to a leader.
	Connection func(elector.Leader) settings.PrimaryConnection
	// Directory knows by which name a volume streams.
	Directory Directory
}

// Directory knows by which name a volume streams from this member, if it does. It answers
// at once.
type Directory interface {
	FindStream(volume string) (name string, known bool)
}

// Server is a running PostgreSQL whose role changes. See rolechange.Server.
type Server interface {
	MeasureWAL(ctx context.Context) (rolechange.HeldWAL, error)
	ReadProgress(ctx context.Context) (rolechange.Progress, error)
	StopReceiver(ctx context.Context) (rolechange.HeldWAL, error)
	Follow(ctx context.Context, t rolechange.Target) error
	Promote(ctx context.Context, p rolechange.Promotion) (rolechange.Promoted, error)
	SetQuorum(ctx context.Context, q rolechange.Quorum) error
	Stop(ctx context.Context) (lsn.Point, error)
}

// Reports is to whom outcomes are reported. See elector.Reports.
type Reports interface {
	Volume() string
	RecordTimeline(ctx context.Context, timeline int64) error
	ReportReceiverStopped(id int64, w election.WAL)
	ReportPromoted(term, timeline int64)
	ReportFailed(term int64)
	ReportStopped(term int64, end lease.Position)
	ReportFenced(id int64)
	ReportQuorumSet(id int64)
}

// Run is one run of the server, as the control uses it. Its functions return at once.
type Run struct {
	Server Server
	// Term that the server is the primary of from the start; 0 for a standby.
	Term int64
	// Ended is closed when the server has ended.
	Ended <-chan struct{}
	// BecomePrimary takes in that the server is the primary now, before the election
	// hears of it.
	BecomePrimary func(rolechange.Promoted)
	// GiveUp ends a run whose data cannot follow the leader.
	GiveUp func(reason error)
	// ReadMark reads how far a recovery has come that is under way.
	ReadMark func() recoverywatch.Mark
}

// Control is the elector.Server of a member. Its methods may be called by any
// goroutine.
type Control struct {
	o       Options
	reports Reports
	// fences counts the calls of Fence, also while nothing runs.
	fences atomic.Int64
	// progress counts what a server that starts has come nearer.
	progress atomic.Int64
	wake     chan struct{}

	mu sync.Mutex
	// lock of the volume; nil until it is held.
	lock *volumelock.VolumeLock
	// next is the newest command that was not begun, and cancel ends the one at work.
	next   func(context.Context)
	cancel context.CancelFunc
	// following is the leader to receive from; nil for none.
	following *elector.Leader
	// run is attached while a server answers; starting says that one is on its way.
	// changed is closed when either changes.
	run      *Run
	starting bool
	changed  chan struct{}
	// led is the term that a server of this process was promoted in last, and stopping
	// that one is being stopped on request.
	led      int64
	stopping bool
	// shutting says that a stop on request has begun, and has not read yet what the
	// server left.
	shutting bool
}

// New is a control without a server.
func New(o Options) *Control {
	return &Control{o: o, wake: make(chan struct{}, 1), changed: make(chan struct{})}
}

// SetReports says to whom outcomes are reported. It comes before Work.
func (c *Control) SetReports(r Reports) { c.reports = r }

// SetLock gives the control the lock of the volume, once it is held.
func (c *Control) SetLock(lock *volumelock.VolumeLock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lock = lock
}

// Work does commands until ctx ends.
func (c *Control) Work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		c.mu.Lock()
		do := c.next
		c.next = nil
		work, cancel := context.WithCancel(ctx)
		c.cancel = cancel
		c.mu.Unlock()
		if do != nil {
			do(work)
		}
		cancel()
	}
}

// command replaces the command at work, and the one that waits.
func (c *Control) command(do func(context.Context)) {
	c.mu.Lock()
	c.next = do
	if c.cancel != nil {
		c.cancel()
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// BeginStart says that a server is about to be started, as the primary of a term or, for
// 0, as a standby, and returns the number of fences so far. It is refused if that term
// has ended: what was observed before is not true any more.
func (c *Control) BeginStart(term int64) (fences int64, may bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if term > 0 && c.led != term {
		return 0, false
	}
	c.starting = true
	c.announce()
	return c.fences.Load(), true
}

// endTerm takes in that no server is started as a primary again.
func (c *Control) endTerm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.led = 0
}

// IsFencedSince reports whether the server was fenced since BeginStart returned that
// number: a server that was started meanwhile must not stay.
func (c *Control) IsFencedSince(fences int64) bool { return c.fences.Load() != fences }

// Attach takes over a server that answers.
func (c *Control) Attach(r *Run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.run, c.starting, c.stopping = r, false, false
	c.announce()
}

// Detach says that no process of the server is left, or that none was started. It
// waits for a stop on request to read where the WAL ends: the next run changes that.
func (c *Control) Detach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.shutting {
		changed := c.changed
		c.mu.Unlock()
		<-changed
		c.mu.Lock()
	}
	c.run, c.starting = nil, false
	c.announce()
}

// setShutting notes the beginning and the end of a stop on request.
func (c *Control) setShutting(shutting bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shutting = shutting
	c.announce()
}

// recordLed takes in that a run was promoted in a term, and reports whether it is still
// the current one. After that the loop starts the data again as the primary's, and
// before that as a standby's, which does not lead.
func (c *Control) recordLed(run *Run, term int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run != run {
		return false
	}
	c.led = term
	return true
}

// announce is called with the lock held.
func (c *Control) announce() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// IsStopping reports whether the server is being stopped on request of the election.
func (c *Control) IsStopping() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopping
}

// LedTerm is the term in which this process had a primary last; 0 for none.
func (c *Control) LedTerm() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.led
}

// ReadFollowing is the leader that the member is to receive from.
func (c *Control) ReadFollowing() (elector.Leader, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.following == nil {
		return elector.Leader{}, false
	}
	return *c.following, true
}

func (c *Control) setFollowing(l *elector.Leader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.following = l
}

// current is the state of the server, and a channel that is closed when it changes.
func (c *Control) current() (run *Run, starting bool, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.run, c.starting, c.changed
}

// awaitRun waits for a server that answers; nil when ctx ends.
func (c *Control) awaitRun(ctx context.Context) *Run {
	for {
		run, _, changed := c.current()
		if run != nil {
			return run
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// awaitSettled waits while a server is on its way. The result is nil without one, or
// when ctx ends.
func (c *Control) awaitSettled(ctx context.Context) *Run {
	for {
		run, starting, changed := c.current()
		if run != nil || !starting {
			return run
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}
