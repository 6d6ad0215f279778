package servercontrol

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// ReadWAL implements elector.Server.
func (c *Control) ReadWAL(ctx context.Context) (election.WAL, error) {
	run := c.awaitSettled(ctx)
	if ctx.Err() != nil {
		return election.WAL{}, ctx.Err()
	}
	if run == nil {
		return c.measureAtRest(ctx)
	}
	if isPrimary, at := c.readPrimary(ctx, run); isPrimary {
		return election.WAL{Flushed: at}, nil // it refuses its vote
	}
	held, err := run.Server.MeasureWAL(ctx)
	return encodeHeld(held), err
}

// readPrimary reads how far a server has flushed that leads.
func (c *Control) readPrimary(ctx context.Context, run *Run) (bool, lease.Position) {
	progress, err := run.Server.ReadProgress(ctx)
	if err != nil {
		return false, lease.Position{}
	}
	return true, lease.Position{Timeline: progress.Own.Timeline, LSN: progress.Own.Position}
}

// measureAtRest measures a volume whose server does not run; the zero value for one
// without data.
func (c *Control) measureAtRest(ctx context.Context) (election.WAL, error) {
	c.mu.Lock()
	locked := c.lock != nil
	c.mu.Unlock()
	if !locked {
		return election.WAL{}, errors.New("the lock on the volume is not held")
	}
	volume, err := datavolume.InspectVolume(c.o.Volume)
	switch {
	case err != nil:
		return election.WAL{}, err
	case volume.Content == datavolume.ContentEmpty:
		return election.WAL{}, nil
	}
	held, err := rolechange.MeasureWALAtRest(ctx, c.o.Programs, c.o.PGData)
	return encodeHeld(held), err
}

func encodeHeld(held rolechange.HeldWAL) election.WAL {
	return election.WAL{
		Flushed: lease.Position{Timeline: held.End.Timeline, LSN: held.End.Position}, Reach: held.Reach, Timelines: held.Timelines,
	}
}

// StopReceiver implements elector.Server.
func (c *Control) StopReceiver(id int64) {
	c.setFollowing(nil)
	c.command(func(ctx context.Context) {
		for ctx.Err() == nil {
			wal, err := c.stopReceiving(ctx)
			if err == nil {
				c.reports.ReportReceiverStopped(id, wal)
				return
			}
			c.logUnlessEnded(ctx, "the receiver is not stopped yet", err)
			clock.Sleep(ctx, retryPause)
		}
	})
}

func (c *Control) stopReceiving(ctx context.Context) (election.WAL, error) {
	run := c.awaitSettled(ctx)
	if ctx.Err() != nil {
		return election.WAL{}, ctx.Err()
	}
	if run == nil {
		return c.measureAtRest(ctx)
	}
	held, err := run.Server.StopReceiver(ctx)
	return encodeHeld(held), err
}

// Follow implements elector.Server.
func (c *Control) Follow(leader elector.Leader) {
	c.setFollowing(&leader)
	c.command(func(ctx context.Context) {
		for ctx.Err() == nil {
			run := c.awaitRun(ctx)
			if run == nil {
				return
			}
			connection := c.o.Connection(leader)
			if !c.followLeader(ctx, run, leader, connection) {
				clock.Sleep(ctx, retryPause)
				continue
			}
			c.keepFollowing(ctx, run, leader, connection.Application)
		}
	})
}

// keepFollowing returns when a run has ended that follows a leader, and the next one has to
// follow it; or when the leader counts the stream by another name.
func (c *Control) keepFollowing(ctx context.Context, run *Run, leader elector.Leader, name string) {
	for c.o.Connection(leader).Application == name {
		select {
		case <-ctx.Done():
			return
		case <-run.Ended:
			c.awaitDetached(ctx, run)
			return
		case <-time.After(namesPause):
		}
	}
	c.o.Log.Info("streams by another name: the leader's agent was replaced", "leader", leader.Pod, "before", name)
}

// followLeader has a server stream, and reports whether there is nothing left to try
// in this run.
func (c *Control) followLeader(ctx context.Context, run *Run, leader elector.Leader, connection settings.PrimaryConnection) bool {
	if leader.Pod == "" || leader.Timeline == 0 {
		return true // replaced as soon as the Lease names the pod
	}
	err := c.reports.RecordTimeline(ctx, leader.Timeline)
	if err == nil {
		err = run.Server.Follow(ctx, rolechange.Target{Connection: connection, Timeline: leader.Timeline})
	}
	var diverged *rolechange.DivergedError
	var other *rolechange.OtherSystemError
	var problem *rolechange.FollowError
	switch {
	case err == nil:
		c.o.Log.Info("follows the leader", "leader", leader.Pod, "term", leader.Term, "timeline", leader.Timeline)
		return true
	case errors.As(err, &diverged), errors.As(err, &other), errors.As(err, &problem) && problem.Problem == rolechange.WALRemoved:
		run.GiveUp(err)
		return true
	}
	c.logUnlessEnded(ctx, "the leader is not followed yet", err)
	return false
}

// awaitDetached waits until a run is no more the current one.
func (c *Control) awaitDetached(ctx context.Context, run *Run) {
	for {
		now, _, changed := c.current()
		if now != run {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// Promote implements elector.Server.
func (c *Control) Promote(term context.Context, p elector.Promotion) {
	c.setFollowing(nil)
	c.command(func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(term, cancel)()
		names := c.nameQuorum(p.Quorum)
		run, err := c.promoteServer(ctx, p, names)
		if err != nil {
			c.o.Log.Error("the server is not promoted", "term", p.Term, "timeline", p.Timeline, "error", err.Error())
			c.reports.ReportFailed(p.Term)
			return
		}
		c.keepNames(ctx, p.Quorum, run, names)
	})
}

func (c *Control) promoteServer(ctx context.Context, p elector.Promotion, quorum rolechange.Quorum) (*Run, error) {
	run := c.awaitStart(ctx)
	if run == nil {
		return nil, errors.New("no server runs that could be promoted")
	}
	ctx, cancel := c.boundPromotion(ctx, run, p.Term)
	defer cancel()
	if err := datavolume.WriteLeader(c.o.Volume, datavolume.LeaderRecord{Term: p.Term, Timeline: p.Timeline}); err != nil {
		return nil, err
	}
	promoted, err := run.Server.Promote(ctx, rolechange.Promotion{Timeline: p.Timeline, Quorum: quorum})
	if err != nil {
		return nil, err
	}
	if !c.recordLed(run, p.Term) {
		return nil, errors.New("the server ended as soon as it was promoted")
	}
	run.BecomePrimary(promoted)
	c.reports.ReportPromoted(p.Term, p.Timeline)
	c.o.Log.Info("the server is the primary", "term", p.Term, "timeline", p.Timeline)
	return run, nil
}

// StopServer implements elector.Server.
func (c *Control) StopServer(term int64) {
	c.mu.Lock()
	c.stopping = true
	c.mu.Unlock()
	c.command(func(ctx context.Context) {
		run := c.awaitSettled(ctx)
		if run == nil {
			c.endTerm()
			c.reports.ReportFailed(term)
			return
		}
		c.setShutting(true)
		defer c.setShutting(false)
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
		defer cancel()
		end, err := run.Server.Stop(limit)
		if err != nil {
			c.o.Log.Warn("the server did not shut down in order", "term", term, "error", err.Error())
			c.reports.ReportFailed(term)
			return
		}
		c.o.Log.Info("the server has shut down in order", "term", term, "end", end.String())
		c.reports.ReportStopped(term, lease.Position{Timeline: end.Timeline, LSN: end.Position})
	})
}

// deadPause is between two checks whether a fenced server is gone.
const deadPause = 50 * time.Millisecond

// Fence implements elector.Server.
func (c *Control) Fence(id int64) {
	c.mu.Lock()
	c.fences.Add(1)
	lock := c.lock
	c.next, c.following, c.led = nil, nil, 0
	if c.cancel != nil {
		c.cancel()
	}
	c.mu.Unlock()
	if lock == nil {
		c.reports.ReportFenced(id)
		return
	}
	lock.KillHolders()
	go func() {
		for {
			if alive, err := lock.DatabaseAlive(); err == nil && !alive {
				c.reports.ReportFenced(id)
				return
			}
			lock.KillHolders()
			time.Sleep(deadPause)
		}
	}()
}

func (c *Control) logUnlessEnded(ctx context.Context, message string, err error) {
	if ctx.Err() == nil && err != nil {
		c.o.Log.Info(message, "error", err.Error())
	}
}
