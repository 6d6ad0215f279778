package servercontrol

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/lease"
)

const (
	// volumePrefix begins the name of a standby whose stream is not known. No stream has
	// such a name: it counts as a member of the quorum that acknowledges nothing.
	volumePrefix = "holdfast_volume_"
	// namesPause is between two checks of how the volumes of the quorum stream.
	namesPause = time.Second
)

// nameQuorum names the standbys of a quorum by the application names of their streams,
// which are of their volumes. One that is not known gets a name that no stream has, so
// that as many standbys as the Lease records acknowledge each commit.
func (c *Control) nameQuorum(q *lease.Quorum) rolechange.Quorum {
	if q == nil || q.Write < 2 {
		return rolechange.Quorum{}
	}
	named := rolechange.Quorum{Number: q.Write - 1}
	own := c.reports.Volume()
	for _, volume := range q.Volumes {
		if volume == own {
			continue
		}
		name, known := c.o.Directory.FindStream(volume)
		if !known {
			name = volumePrefix + volume
		}
		named.Members = append(named.Members, name)
	}
	return named
}

// SetQuorum implements elector.Server.
func (c *Control) SetQuorum(term context.Context, id int64, q *lease.Quorum) {
	c.command(func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(term, cancel)()
		run, names := c.setNames(ctx, q)
		if run == nil {
			return
		}
		c.reports.ReportQuorumSet(id)
		c.keepNames(ctx, q, run, names)
	})
}

// setNames gives the running server a quorum, by the names that are known, and tries
// again until it has it; the run is nil when ctx has ended before.
func (c *Control) setNames(ctx context.Context, q *lease.Quorum) (*Run, rolechange.Quorum) {
	for ctx.Err() == nil {
		names := c.nameQuorum(q)
		run := c.awaitRun(ctx)
		if run == nil {
			break
		}
		err := c.setQuorum(ctx, run, q, names)
		if err == nil {
			return run, names
		}
		c.logUnlessEnded(ctx, "the quorum is not set yet", err)
		clock.Sleep(ctx, retryPause)
	}
	return nil, rolechange.Quorum{}
}

// setQuorum gives a server a quorum. If pods become known meanwhile, it begins again:
// the one that has to acknowledge may be among them.
func (c *Control) setQuorum(ctx context.Context, run *Run, q *lease.Quorum, names rolechange.Quorum) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		for c.isNamed(q, names) {
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-time.After(namesPause):
			}
		}
		cancel()
	}()
	return run.Server.SetQuorum(ctx, names)
}

// keepNames sets the quorum again when one of its volumes is known to stream by another
// name, and on the server's next run, until ctx ends. The volumes stay the same, so
// the quorum overlaps with the recorded one at each moment.
func (c *Control) keepNames(ctx context.Context, q *lease.Quorum, run *Run, names rolechange.Quorum) {
	for q != nil && q.Write > 1 && clock.Sleep(ctx, namesPause) {
		current := c.awaitRun(ctx)
		if current == run && c.isNamed(q, names) {
			continue
		}
		if run, names = c.setNames(ctx, q); run == nil {
			return
		}
		c.o.Log.Info("the standbys of the quorum are named anew", "number", names.Number, "standbys", names.Members)
	}
}

// isNamed says whether the names are those that are known now.
func (c *Control) isNamed(q *lease.Quorum, names rolechange.Quorum) bool {
	now := c.nameQuorum(q)
	return now.Number == names.Number && slices.Equal(now.Members, names.Members)
}
