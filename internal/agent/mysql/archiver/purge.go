package archiver

import (
	"context"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// leastFree is what must be free on the volume of a server that runs.
const leastFree = 40 << 20

// reservedSpace is the disk space that binlogs must leave: a full volume stops the database.
func reservedSpace(s diskspace.Space) int64 { return min(max(s.Total/50, 48<<20), 1<<30) }

func isShort(s diskspace.Space) bool { return s.Total > 0 && s.Free < reservedSpace(s) }

// purgeArchived purges files that the archive has: those that are older than members which join
// need, and all of them where the volume is short of disk space. The newest that is closed
// stays, so that it may be compared.
func (r *run) purgeArchived(ctx context.Context, state ServerState, closed []closedFile, now time.Time) error {
	short := isShort(r.o.Space())
	if !short && now.Sub(r.purged) < r.pace.purge {
		return nil
	}
	r.purged = now
	before := ""
	for _, f := range closed {
		old := state.Keep > 0 && now.Sub(f.written) > state.Keep
		if !r.known.reach.Contains(f.end) || !old && !short {
			break
		}
		before = f.next
	}
	if before == "" {
		return nil
	}
	return r.server.PurgeBefore(ctx, before)
}

// discardExcess lets the database go on where more waits than may: the oldest file that waits is
// purged, and the archive will lack it.
func (r *run) discardExcess(ctx context.Context, place Place, waiting []closedFile, now time.Time) error {
	cause := r.findExcess(place.Budget, waiting, now)
	if cause == "" {
		return nil
	}
	f := waiting[0]
	if r.cancelJob(); len(r.listWaiting(waiting[:1])) == 0 { // it was this one, and is stored
		return nil
	}
	if err := r.server.PurgeBefore(ctx, f.next); err != nil {
		return err
	}
	r.discardedAt = now
	if !r.primary {
		return nil
	}
	r.count(func(c *Counts) { c.Discarded++ })
	if r.openGap == nil {
		last := r.findLast()
		missing, _ := f.end.Subtract(f.begin).First()
		r.openGap = &agentapi.ArchiveGap{From: missing.String(), After: r.last, Begun: last.Last}
		r.o.Log.Error("binlogs that wait for the store are no longer kept: moments since then cannot be restored", "from", missing.String(), "cause", cause)
	}
	r.openCause = cause
	return nil
}

// findExcess says why the oldest file that waits is to be purged; empty while it is kept.
func (r *run) findExcess(budget int64, waiting []closedFile, now time.Time) agentapi.GapCause {
	if len(waiting) == 0 {
		return ""
	}
	size := int64(0)
	for _, f := range waiting {
		size += f.size
	}
	idle, space := r.measureIdle(waiting[0], now), r.o.Space()
	switch {
	case size > budget:
		return agentapi.GapBudget
	case space.Total == 0:
		return ""
	case space.Free < leastFree && idle >= r.pace.urgent, isShort(space) && len(waiting) > 1 && idle >= r.pace.slow:
		return agentapi.GapDiskSpace
	}
	return ""
}

// measureIdle is how long the store has had for what waits, and has taken nothing.
func (r *run) measureIdle(oldest closedFile, now time.Time) time.Duration {
	since := oldest.written
	for _, at := range []time.Time{r.lastAt, r.discardedAt} {
		if at.After(since) {
			since = at
		}
	}
	return now.Sub(since)
}
