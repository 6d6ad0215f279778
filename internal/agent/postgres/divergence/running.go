package divergence

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// OwnWAL is how far the data of a running replica goes.
type OwnWAL struct {
	lsn.Point
	// Known says that it was found out.
	Known bool
	// Half says that all of it is replayed, and that half a record follows.
	Half bool
}

// lastRecord is where the WAL of a replica ended when it was followed last.
type lastRecord struct {
	received, replayed int64
	end                wal.Extent
}

// mostFollowed is the most WAL that is followed to its last record while a replica
// runs: PostgreSQL's longest record fits in.
const mostFollowed = 1<<30 + 64<<20

// BeginRun is the start of a server: what is remembered of where its WAL ends holds
// no more.
func (c *Comparer) BeginRun() {
	c.meter.ForgetEnd()
	c.last = lastRecord{}
}

// FindOwnEnd finds how far the data of a running replica goes. What it has
// received of a record that is not complete is nothing that it holds; what it
// receives just now comes in place of what it had.
func (c *Comparer) FindOwnEnd(observed server.Observation) OwnWAL {
	own := OwnWAL{Point: lsn.Point{Timeline: observed.Timeline, Position: uint64(observed.Position)}, Known: true}
	switch {
	case observed.Receiving:
		return own
	case observed.Received-observed.Position > mostFollowed:
		own.Known = false // it has much to replay before it could serve
		return own
	case c.last.received != observed.Received || c.last.replayed != observed.Position && c.last.end.Position <= own.Position:
		end, err := wal.FindEnd(filepath.Join(c.o.PGData, "pg_wal"), uint32(observed.Timeline), own.Position, uint64(observed.Received)) //nolint:gosec // PostgreSQL's are so long
		if err != nil {
			c.o.Log.Warn("where the last record ends is not known", "error", err.Error())
			own.Known = false
			return own
		}
		c.last = lastRecord{observed.Received, observed.Position, end}
	}
	own.Half = c.last.end.Position == own.Position && c.last.end.Reach > own.Position
	own.Position = max(own.Position, c.last.end.Position)
	return own
}

// ForgetProof begins anew to watch whether the data is ahead of its primary.
func (c *Comparer) ForgetProof() { c.proof = aheadProof{} }

// WatchAhead takes in where a running replica and its primary were. It says whether
// the replica is proven to be ahead, and then marks its data.
func (c *Comparer) WatchAhead(now time.Duration, own, primary lsn.Point) (ahead bool) {
	c.proof = c.proof.recordPositions(now, own, primary)
	if !c.proof.isProven(now) {
		return false
	}
	m := datavolume.DivergedMark{Own: c.proof.mark, Primary: primary}
	if err := datavolume.WriteDivergedMark(c.o.Volume, m); err != nil {
		// It is not started again while it is ahead, mark or not.
		c.o.Log.Error("data that is ahead of the primary is not marked", "error", err.Error())
	}
	c.o.Log.Error("the data is ahead of the primary's: stops", "own", m.Own.String(), "primary", m.Primary.String())
	return true
}

// RunningReplica is a replica that runs, and the primary that it follows.
type RunningReplica struct {
	Own OwnWAL
	// Receiving says that its stream is at work.
	Receiving bool
	// Serving says that the primary serves. Primary is its pod, and PrimaryUID the
	// UID of the pod that answered last.
	Serving             bool
	Primary, PrimaryUID string
}

// WatchHistory compares the WAL of a running replica with the primary's when it
// receives nothing, and when it begins to: what it has by then is not replaced
// yet by what it receives. It says whether its history is another one; its data is
// marked then.
func (c *Comparer) WatchHistory(ctx context.Context, now time.Duration, r RunningReplica) (diverged bool) {
	if !r.Serving {
		c.compared = comparedWAL{} // what serves next may be of another history
	}
	if !r.Receiving {
		c.readEvidence(r)
	}
	if !c.HasEvidence() || !r.Serving || now-c.comparedAt < comparisonPause {
		return false
	}
	c.comparedAt = now
	result, err := c.compareEvidence(ctx, r.Primary, r.Receiving)
	switch {
	case errors.Is(err, errors.ErrUnsupported): // of an older agent: positions are all there is
		c.compared, c.evidence = comparedWAL{r.Own.Position, r.PrimaryUID}, evidence{}
	case err != nil:
		c.o.Log.Info("the WAL is not compared yet", "primary", r.Primary, "error", err.Error())
	case result == comparisonSame:
		c.compared, c.evidence = comparedWAL{c.evidence.End.Position, r.PrimaryUID}, evidence{}
	case result == comparisonDiverged:
		return true
	}
	return false
}

// HasEvidence says whether WAL was read that is not compared yet.
func (c *Comparer) HasEvidence() bool { return len(c.evidence.Sums) > 0 }

// IsCompared says whether what a replica holds was compared with the primary that
// answered last.
func (c *Comparer) IsCompared(r RunningReplica) bool {
	return r.Own.Known && c.compared == comparedWAL{r.Own.Position, r.PrimaryUID}
}

// readEvidence reads the end of the WAL of a replica that receives nothing. What
// was read before it received anything stays until it is compared: what it receives
// comes in place of the last segment.
func (c *Comparer) readEvidence(r RunningReplica) {
	if !r.Own.Known || c.HasEvidence() || r.Own.Position == 0 || c.IsCompared(r) {
		return
	}
	if found, err := findEvidence(filepath.Join(c.o.PGData, "pg_wal"), r.Own.Point); err == nil {
		c.evidence = found
	}
}

// compareEvidence compares what was read of a replica's WAL while it runs. That
// the primary has dropped the part settles it for one that receives.
func (c *Comparer) compareEvidence(ctx context.Context, primary string, receiving bool) (comparison, error) {
	read, certain := c.evidence.reduceToOneWay()
	timeline := int64(0)
	if certain {
		timeline = read.End.Timeline
	}
	read, answer, err := c.askComparison(ctx, primary, timeline, read)
	switch {
	case err != nil:
		return comparisonOpen, err
	case read.differsFrom(answer), certain && read.isDiverged(answer):
		return comparisonDiverged, c.markDiverged(ctx, primary, read, answer)
	case answer.Sum == "" && (!receiving || !read.isContained(answer)):
		return comparisonOpen, nil
	}
	return comparisonSame, nil
}
