package archive

import (
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// reservedSpace is the disk space that WAL which waits for the store must
// leave: a full volume would stop the database.
func reservedSpace(s diskspace.Space) int64 {
	return min(max(s.Total/50, 2*dataspace.MinimumFree), 1<<30)
}

// excess judges whether more WAL waits for the store than may: by the budget, and by
// the disk space that is left.
type excess struct {
	files  walFiles
	space  func() diskspace.Space
	pace   pace
	ledger *ledger
	run    *databaseRun
}

// findExcess says why the oldest file that waits for the store is to be discarded;
// empty while it is kept.
func (e excess) findExcess(budget int64) agentapi.GapCause {
	b := e.files.readBacklog()
	size := e.files.segmentSize(b)
	switch {
	case b.Segments*size > budget:
		return agentapi.GapBudget
	case b.Segments > 0 && e.shortOfSpace(b, size):
		return agentapi.GapDiskSpace
	}
	return ""
}

// shortOfSpace says whether the database is about to run out of disk space for
// WAL while the store takes nothing. It asks nothing of the store: one that is
// slow, or holds a request for ever, reports no error. The last segment that waits
// is kept as long as others fit beside it.
func (e excess) shortOfSpace(b backlog, size int64) bool {
	space := e.space()
	if space.Total == 0 || space.Free >= reservedSpace(space) {
		return false
	}
	left := space.Free + e.files.preparedSegments(size)*size
	stopped, checkpointing := e.run.isStopped(), e.run.isCheckpointing()
	now := time.Now()
	switch {
	case left < dataspace.MinimumFree+size && !stopped:
		return e.ledger.hasOpenGap() || e.measureIdle(b, now) >= e.pace.urgent
	case left < reservedSpace(space) && b.Segments > 1:
		return !checkpointing && e.measureIdle(b, now) >= e.pace.slow
	}
	return false
}

// measureIdle is how long the store has had for what waits, and has taken nothing.
func (e excess) measureIdle(b backlog, now time.Time) time.Duration {
	since := b.oldest
	for _, at := range []time.Time{e.ledger.lastStored(), e.run.lastChange()} {
		if at.After(since) {
			since = at
		}
	}
	return now.Sub(since)
}
