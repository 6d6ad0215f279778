package elector

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// guardedTerm is what of the server and the guard belongs to one term.
type guardedTerm struct {
	// context is that of the term's promotion, and cancel ends it; nil before the first.
	context context.Context
	cancel  context.CancelFunc
	// deadline is the guard's, number the term that it was last extended for, and
	// extended the value of fences then.
	deadline time.Duration
	number   int64
	extended int64
	// fences counts the fences, and is the ID of the last one.
	fences int64
}

// startTerm is the context of the term that is about to be promoted.
func (t *guardedTerm) startTerm(ctx context.Context) context.Context {
	t.cancelTerm()
	t.context, t.cancel = context.WithCancel(ctx)
	return t.context
}

func (t *guardedTerm) cancelTerm() {
	if t.cancel != nil {
		t.cancel()
	}
}

// isWanted reports whether an effect is still one of the state's. Time passes before
// an effect that waits for the volume is done.
func (c *core) isWanted(given entry) bool {
	switch e := given.effect.(type) {
	case election.Promote:
		return c.state.Phase == election.Promoting && c.state.Term() == e.Term
	case election.SetQuorum:
		return c.state.Phase == election.Leading && c.state.Term() == given.term
	case election.AskVote:
		return c.state.Phase == election.Asking && c.state.Term() == e.Request.Term
	case election.WriteLease:
		isHolder := c.state.IsPrimary() || c.state.Phase == election.Releasing
		return e.Sent == c.lastWrite && (isHolder || c.state.Phase == election.Claiming)
	}
	return true
}

// doEffect does an effect that has nothing to wait for any more.
func (c *core) doEffect(given entry) {
	if !c.isWanted(given) {
		return
	}
	switch e := given.effect.(type) {
	case election.ReadLease:
		c.readLease(e)
	case election.WriteLease:
		c.writeLease(e)
	case election.AskVote:
		c.askVote(e)
	case election.AskConfirm:
		c.askConfirm(e)
	case election.Vote:
		c.answerVote(e, given.replies)
	case election.Confirm:
		given.replies.answerConfirm(e.Reply)
	case election.Stall:
		c.reportStall(e.Reason)
	case election.RefuseSwitchover: // the request's client has it from the step
	default:
		c.doLocally(given)
	}
}

// doLocally does what concerns the server and the guard.
func (c *core) doLocally(given entry) {
	switch e := given.effect.(type) {
	case election.Fence:
		c.doFence()
	case election.ExtendGuard:
		c.extendGuard(e.Until)
	case election.StopServer:
		c.o.Server.StopServer(c.state.Term())
	case election.StopReceiver:
		c.stops++
		c.o.Server.StopReceiver(c.stops)
	case election.Follow:
		c.o.Server.Follow(c.findLeader(e))
	case election.Promote:
		c.o.Server.Promote(c.term.startTerm(c.ctx), Promotion{Term: e.Term, Timeline: e.Timeline, Quorum: e.Quorum})
	case election.SetQuorum:
		c.o.Server.SetQuorum(c.term.context, e.ID, e.Quorum)
	}
}

// findLeader is the leader of a term by the record that named it.
func (c *core) findLeader(e election.Follow) Leader {
	leader := c.currentView().Leader
	if leader.Volume != e.Volume || leader.Term != e.Term { // another one was read since
		return Leader{Volume: e.Volume, Term: e.Term}
	}
	return leader
}

// doFence kills the server at once. What waits for the volume is judged later, by a
// state that does not lead.
func (c *core) doFence() {
	c.term.cancelTerm()
	c.term.fences++
	c.o.Server.Fence(c.term.fences)
}

// extendGuard moves the guard's deadline. A guard whose deadline has passed is about to
// kill this process: it does not lead any more.
func (c *core) extendGuard(until time.Duration) {
	if !c.o.Guard.Extend(until) {
		c.journal.writeLine(slog.LevelError, "the guard's deadline has passed before it was extended", "term", c.state.Term())
		c.doFence()
		c.step(election.ServerFailed{Term: c.state.Term()}, replies{})
		return
	}
	c.term.deadline, c.term.number, c.term.extended = until, c.state.Term(), c.term.fences
}

// clearGuard removes the deadline of a term of which no process is left. A later term
// has its own.
func (c *core) clearGuard() {
	if c.state.IsPrimary() {
		return
	}
	c.term.deadline = 0
	c.o.Guard.Clear()
}

// endFence takes that no process is left after the fence of that ID.
func (c *core) endFence(id int64) {
	if id == c.term.fences && c.term.extended < id {
		c.clearGuard()
	}
}

// endServer takes that no process of the term's server is left after its shutdown.
func (c *core) endServer(term int64, end lease.Position) {
	if term != c.state.Term() {
		return
	}
	c.step(election.ServerStopped{End: end}, replies{})
	if term == c.term.number {
		c.clearGuard()
	}
}

func (c *core) reportStall(reason string) {
	c.stalled = reason
	if reason == "" {
		c.journal.writeLine(slog.LevelInfo, "the election goes on")
		return
	}
	c.journal.writeLine(slog.LevelWarn, "no member is elected", "reason", reason)
}

// readLease reads the Lease beside the loop. Its times are the loop's: the state
// machine knows the answer by the moment at which it gave the effect, which is no later
// than the request.
func (c *core) readLease(e election.ReadLease) {
	c.request(e.Sent, func(ctx context.Context) {
		reading, err := c.o.Lease.ReadLease(ctx)
		reading.Sent, reading.Received = e.Sent, c.o.Now()
		c.mail.post(func() {
			c.logAnswer("read", reading.Answer, err)
			c.step(election.LeaseRead{Reading: reading}, replies{})
		})
	})
}

func (c *core) writeLease(e election.WriteLease) {
	c.request(e.Sent, func(ctx context.Context) {
		answer, version, err := c.o.Lease.WriteLease(ctx, e.Base, e.Record)
		if answer == lease.Forbidden && e.Record.IsReleased() {
			answer, version, err = c.releaseByPeer(ctx, e.Base, e.Record, err)
		}
		c.mail.post(func() {
			c.logAnswer("written", answer, err)
			c.step(election.LeaseWritten{Answer: answer, Version: version, Sent: e.Sent}, replies{})
		})
	})
}

// request does a request to the API server beside the loop, within its time from sent.
func (c *core) request(sent time.Duration, do func(context.Context)) {
	left := c.state.Pace().RequestTimeout() - (c.o.Now() - sent)
	c.work.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, left)
		defer cancel()
		do(ctx)
	})
}

// logAnswer reports when the API server begins or ends to answer.
func (c *core) logAnswer(what string, answer lease.Answer, err error) {
	unreached := !answer.IsReached()
	if unreached == c.unreached || c.ctx.Err() != nil {
		return
	}
	c.unreached = unreached
	if unreached {
		c.journal.writeLine(slog.LevelWarn, "the Lease is not "+what, "error", err.Error())
		return
	}
	c.journal.writeLine(slog.LevelInfo, "the API server answers again")
}
