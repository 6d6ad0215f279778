package elector

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// core is what the loop has. Only the loop uses it, apart from work.
type core struct {
	o       Options
	mail    *mailbox
	journal *journal
	views   *viewStore
	// ctx ends with the loop, and work is what runs beside it.
	ctx  context.Context
	work sync.WaitGroup

	state  election.State
	outbox outbox
	// recorded is the newest record of the Lease that is on the volume.
	recorded lease.Record
	ballot   *ballot
	term     guardedTerm
	stalled  string
	// lastWrite is the Sent of the newest write to the Lease, stops the ID of the
	// newest StopReceiver.
	lastWrite time.Duration
	stops     int64
	asked     standingRequests
	// unreached says that the API server did not answer the last request.
	unreached bool
	tally     tally
}

// standingRequests are repeated until they are done or replaced.
type standingRequests struct {
	members *election.MembersWanted // nil for none
	forceID string                  // empty for none
}

func newCore(o Options, mail *mailbox, journal *journal) *core {
	c := &core{o: o, mail: mail, journal: journal, ctx: context.Background(), state: election.NewState(o.Config, o.Recorded), recorded: o.Recorded.Known}
	c.views = newViewStore(c.currentView())
	return c
}

// tick lets time pass, and tries again what a volume did not take.
func (c *core) tick() {
	c.step(election.Tick{}, replies{})
	c.repeatForce()
	// A term whose promotion waits for the volume keeps the others from leading.
	if c.state.Phase == election.Promoting && c.outbox.isLate(c.o.Now(), c.state.Config.Timing.Duration()) {
		c.journal.writeLine(slog.LevelError, "the volume does not take the record of the election: this member does not lead", "term", c.state.Term())
		c.step(election.ServerFailed{Term: c.state.Term()}, replies{})
	}
}

// repeatForce asks for a forced candidacy until a claim has begun by it.
func (c *core) repeatForce() {
	if id := c.asked.forceID; id != "" && id != c.state.Disk.Forced {
		c.step(election.ForceRequest{ID: id}, replies{})
	}
}

// step passes an input to the state machine and does its effects. The replies are those
// of a client that the input came from.
func (c *core) step(in election.Input, r replies) []election.Effect {
	before := c.state
	next, effects := election.Step(before, c.o.Now(), in)
	c.state = next
	c.tally.countStep(before.Phase, next.Phase, in, effects)
	for _, e := range effects {
		c.routeEffect(e, r)
	}
	if before.IsPrimary() && !c.state.IsPrimary() {
		c.term.cancelTerm()
		c.asked.members = nil // the next term's are wanted anew
	}
	c.logPhase(before, in, effects)
	if next.Phase == election.Leading && before.Phase != election.Leading && c.asked.members != nil {
		c.step(*c.asked.members, replies{})
	}
	c.writeVolume()
	c.publish()
	return effects
}

// routeEffect does an effect, or has it wait for the volume.
func (c *core) routeEffect(e election.Effect, r replies) {
	now := c.o.Now()
	if write, is := e.(election.WriteLease); is {
		c.lastWrite = write.Sent
	}
	given := entry{effect: e, term: c.state.Term(), replies: r}
	switch e := e.(type) {
	case election.Persist:
		c.outbox.addEntry(entry{disk: &e.Disk}, now)
	default:
		if !c.outbox.isEmpty() && !isFree(e, c.state.Phase) {
			c.outbox.addEntry(given, now)
			return
		}
		c.doEffect(given)
	}
}

// writeVolume begins the next write, beside the loop.
func (c *core) writeVolume() {
	disk := c.outbox.startWrite(c.o.Now())
	if disk == nil {
		return
	}
	c.work.Go(func() {
		err := c.o.Volume.WriteRecord(*disk)
		c.mail.post(func() {
			if err == nil {
				c.recorded = disk.Known
			}
			c.endWrite(err)
		})
	})
}

// endWrite does what waited for a write.
func (c *core) endWrite(err error) {
	if err != nil {
		c.failWrite(err)
		return
	}
	// A fence that is due comes first: it ends what waits.
	c.step(election.Tick{}, replies{})
	if c.outbox.failure != "" {
		c.journal.writeLine(slog.LevelInfo, "the volume takes the record of the election again")
	}
	for _, e := range c.outbox.endWrite(c.o.Now()) {
		switch {
		case e.done != nil:
			e.done <- nil
		case e.effect != nil:
			c.doEffect(e)
		}
	}
	c.writeVolume()
	c.publish()
}

func (c *core) failWrite(err error) {
	reason := "this member's volume does not take the record of the election: " + err.Error()
	if c.outbox.failure != reason {
		c.journal.writeLine(slog.LevelError, "the record of the election is not on the volume", "error", err.Error())
	}
	for _, client := range c.outbox.failWrite(reason, c.o.Now()+c.state.Config.Timing.Renewal()/2) {
		client.done <- errors.New(reason)
	}
	c.publish()
}

// awaitVolume answers a client when all that is known by now is on the volume.
func (c *core) awaitVolume(done chan<- error) {
	if c.outbox.isEmpty() {
		done <- nil
		return
	}
	c.outbox.addEntry(entry{done: done}, c.o.Now())
}

// end fences a server that may be a primary, since its Lease is not renewed any more.
func (c *core) end() {
	if c.state.IsPrimary() {
		c.doFence()
	}
	c.term.cancelTerm()
}

// publish shows the state to the other parts of the agent.
func (c *core) publish() { c.views.publishView(c.currentView()) }

func (c *core) currentView() View {
	known := c.state.Disk.Known
	v := View{
		Volume: c.state.Disk.VolumeID, Phase: c.state.Phase, Term: c.state.Term(),
		PromisedUntil: c.state.PromisedUntil(), Stalled: c.outbox.failure, Fences: c.term.fences, Held: c.state.Held(), Counts: c.tally.counts,
		Leader:  Leader{UID: known.HolderUID, Pod: known.HolderPod, Volume: known.HolderVolume, Term: known.Term, Timeline: known.Timeline, ForcedTimeline: known.ForcedTimeline},
		MayLead: strings.Join(known.Volumes, ","), Forced: c.state.Disk.Forced,
		LeaseDuration: c.recorded.Duration, Rewinding: c.state.Disk.Rewinding, SystemIdentifier: c.state.Disk.SystemIdentifier,
	}
	if known.Quorum != nil {
		v.Quorum, v.Write = strings.Join(known.Quorum.Volumes, ","), known.Quorum.Write
	}
	if v.Stalled == "" && c.outbox.isLate(c.o.Now(), c.state.Config.Timing.Duration()) {
		v.Stalled = "this member's volume hangs: it does not take the record of the election"
	}
	if v.Stalled == "" {
		v.Stalled = c.stalled
	}
	if c.state.IsPrimary() {
		v.Deadline, v.Renewed = c.term.deadline, c.state.Renewed()
	}
	return v
}
