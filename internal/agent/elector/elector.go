package elector

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// The state machine lets time pass at least ticksLeast and at most ticksMost times within
// the time between two renewals.
const (
	ticksLeast = 5
	ticksMost  = 10
)

// endLimit is how long Run waits at its end for a volume or a text log that hangs.
const endLimit = time.Second

// ErrEnded says that the elector does not run any more.
var ErrEnded = errors.New("the election ended with the agent")

// LeaseClient reads and replaces the Lease, within the context. See the package
// primarylease.
type LeaseClient interface {
	ReadLease(ctx context.Context) (lease.Reading, error)
	WriteLease(ctx context.Context, base lease.Version, r lease.Record) (lease.Answer, lease.Version, error)
}

// Volume keeps what the member has promised. A record is on the disk when WriteRecord
// returns without an error. See datavolume.ElectionFile.
type Volume interface {
	WriteRecord(p election.Persistent) error
}

// Peers sends messages to other members' pods. See statusserver.Peers.
type Peers interface {
	PostPeer(ctx context.Context, pod, path string, message, into any) error
}

// Directory knows which pod runs on a volume, as the members report it. It answers at
// once.
type Directory interface {
	FindPod(volume string) (pod string, known bool)
	// FindSilence finds since when, of the monotonic clock, the pod on a volume has
	// answered none of several questions; silent is false if it has, or is not asked.
	FindSilence(volume string) (since time.Duration, silent bool)
}

// Options are what an Elector is made of. All are needed, apart from Now.
type Options struct {
	Log      *slog.Logger
	Identity identity.Identity
	// Config without the pod, which is that of Identity.
	Config election.Config
	// Recorded is what Volume held at the start.
	Recorded  election.Persistent
	Volume    Volume
	Lease     LeaseClient
	Guard     Guard
	Server    Server
	Peers     Peers
	Directory Directory
	// Now is CLOCK_BOOTTIME; tests replace it.
	Now func() time.Duration
}

// Elector runs a member's part in the election. Its methods may be called by any
// goroutine.
type Elector struct {
	core    *core
	mail    *mailbox
	views   *viewStore
	journal *journal
	ended   chan struct{}
}

// New is an elector of a member whose agent just started. It does not lead, whatever
// the Lease says.
func New(o Options) (*Elector, error) {
	switch {
	case o.Recorded.VolumeID == "":
		return nil, errors.New("start the election: the volume has no ID")
	case o.Identity.PodUID == "" || o.Identity.Pod == "":
		return nil, errors.New("start the election: the member's pod is unknown")
	case o.Config.Timing == lease.Timing{}:
		return nil, errors.New("start the election: the Lease has no duration")
	case o.Log == nil || o.Volume == nil || o.Lease == nil || o.Guard == nil || o.Server == nil || o.Peers == nil || o.Directory == nil:
		return nil, errors.New("start the election: a part of the member is missing")
	}
	if o.Now == nil {
		o.Now = clock.Boottime
	}
	o.Config.UID, o.Config.Pod = o.Identity.PodUID, o.Identity.Pod
	e := &Elector{mail: newMailbox(), journal: newJournal(o.Log), ended: make(chan struct{})}
	e.core = newCore(o, e.mail, e.journal)
	e.views = e.core.views
	return e, nil
}

// Run takes part in the election until ctx ends. An agent that ends in order first
// asks for a switchover and waits until the member does not lead any more. A server that
// may still be a primary when ctx ends is fenced.
func (e *Elector) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var lines sync.WaitGroup
	lines.Go(e.journal.followLines)
	c := e.core
	c.ctx = ctx
	pauses := newPauses(c.o)
	timer := time.NewTimer(pauses())
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-timer.C:
			c.tick()
			timer.Reset(pauses())
		case <-e.mail.ready:
			for _, do := range e.mail.takeAll() {
				do()
			}
		}
	}
	c.end()
	close(e.ended)
	// Nothing waits for a volume or a pipe that hangs: the process ends anyway.
	waitAtMost(endLimit, &c.work)
	close(e.journal.lines)
	waitAtMost(endLimit, &lines)
}

// newPauses are the times between two ticks. They differ, and for each member in its own
// way: members that compete at the same moments take each other's votes for ever.
func newPauses(o Options) func() time.Duration {
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(o.Identity.PodUID))
	random := rand.New(rand.NewPCG(seed.Sum64(), 0)) //nolint:gosec // it need not be secret
	renewal := o.Config.Timing.Renewal()
	return func() time.Duration {
		return renewal/ticksMost + time.Duration(random.Int64N(int64(renewal/ticksLeast-renewal/ticksMost)))
	}
}

func waitAtMost(limit time.Duration, work *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// ReadView is the newest View, and a channel that is closed at the next change. It
// takes no lock.
func (e *Elector) ReadView() (View, <-chan struct{}) { return e.views.readView() }

// Reports is what the Server reports to.
func (e *Elector) Reports() Reports { return Reports{e} }

// NewHandlers answer the other members, by path, over the members' mutual TLS. Each
// takes POST.
func (e *Elector) NewHandlers() map[string]http.Handler {
	return map[string]http.Handler{
		postgresapi.VotePath:    e.newHandler(e.serveVote),
		postgresapi.ConfirmPath: e.newHandler(e.serveConfirm),
		postgresapi.ReleasePath: e.newHandler(e.serveRelease),
		postgresapi.ReleasedPath: e.newHandler(func(*http.Request) (any, error) {
			e.mail.post(func() { e.core.step(election.LeaseChanged{}, replies{}) })
			return struct{}{}, nil
		}),
	}
}

// RequestSwitchover asks a member that leads to shut down in order and to release the
// Lease: for the volume of a member that is alive, streams and is not being deleted, or
// for any if the target is empty. The error says why it does not.
func (e *Elector) RequestSwitchover(ctx context.Context, target string) error {
	return e.requestSwitchover(ctx, election.SwitchoverRequest{Target: target})
}

// RequestStop is RequestSwitchover of a member that stops in any case.
func (e *Elector) RequestStop(ctx context.Context, target string) error {
	return e.requestSwitchover(ctx, election.SwitchoverRequest{Target: target, Stops: true})
}

func (e *Elector) requestSwitchover(ctx context.Context, r election.SwitchoverRequest) error {
	refused := make(chan error, 1)
	e.mail.post(func() {
		var reason error
		for _, effect := range e.core.step(r, replies{}) {
			if r, is := effect.(election.RefuseSwitchover); is {
				reason = errors.New("the switchover is refused: " + r.Reason)
			}
		}
		refused <- reason
	})
	return e.await(ctx, refused)
}

// RequestMembers asks for the volumes that may lead and the quorum, whenever this
// member leads, until another request replaces it. A wish that leaves the primary out
// is not followed.
func (e *Elector) RequestMembers(w election.MembersWanted) {
	e.mail.post(func() {
		e.core.asked.members = &w
		e.core.step(w, replies{})
	})
}

// ReportDurations replaces what the other members reported of the duration of the Lease.
func (e *Elector) ReportDurations(reports []election.DurationReport) {
	e.mail.post(func() { e.core.step(election.DurationsKnown{Reports: reports}, replies{}) })
}

// RequestLimits replaces the limits of failover.
func (e *Elector) RequestLimits(l election.LimitsWanted) {
	e.mail.post(func() { e.core.step(l, replies{}) })
}

// RequestForce asks this member to lead with what it has, as a person decided, until it
// has claimed the Lease once for that ID. An empty ID withdraws the request.
func (e *Elector) RequestForce(id string) {
	e.mail.post(func() {
		e.core.asked.forceID = id
		e.core.repeatForce()
	})
}

// await waits for the loop's answer.
func (e *Elector) await(ctx context.Context, answer <-chan error) error {
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-e.ended:
		return ErrEnded
	}
}
