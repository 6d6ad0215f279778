package divergence

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leaderview"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

const (
	// comparisonPause is between two comparisons of one replica.
	comparisonPause = 2 * time.Second
	// comparisonLimit is how long a primary may take to answer one.
	comparisonLimit = 3 * time.Second
)

// AskPeer reads the JSON that a pod's agent answers at a path. The error is
// errors.ErrUnsupported of an agent that does not know the path.
type AskPeer func(ctx context.Context, pod, path string, into any) error

// Options are what a Comparer is made of.
type Options struct {
	Log *slog.Logger
	// Volume of the member, and PGData, the data directory on it.
	Volume, PGData string
	Programs       server.Programs
	Ask            AskPeer
	// IsSuperseded says whether data that goes as far as own, on a timeline that the
	// leader's history left at a position, or 0 where it does not lead through it, only
	// holds what the leader was elected without; nil for never.
	IsSuperseded func(own lsn.Point, left uint64, leader int64) bool
}

// Comparer compares the WAL of a member's data with its primary's: of data at rest,
// of a replica that runs, and before data is replaced. It outlives the runs of the
// server. One goroutine uses it at a time: the loop's, or, while a server runs, that
// which observes it.
type Comparer struct {
	o     Options
	meter *datavolume.WALMeter

	// evidence is the end of the data's WAL that is not compared with the
	// primary's yet, compared the last that was, and comparedAt when.
	evidence   evidence
	compared   comparedWAL
	comparedAt time.Duration
	// last is where the last record of a running replica ended.
	last lastRecord
	// proof is of data that seems to be ahead of its primary.
	proof aheadProof
	// superseded says that the data was found to hold what the leader was elected
	// without.
	superseded bool
}

// IsSuperseded says whether the data was found to hold WAL that the leader was elected
// without: it is replaced, and not held.
func (c *Comparer) IsSuperseded() bool { return c.superseded }

// NewComparer compares nothing yet.
func NewComparer(o Options) *Comparer {
	return &Comparer{o: o, meter: datavolume.NewWALMeter(o.PGData)}
}

// MeasureEnd finds where the WAL of data at rest ends, once for every run; timelines
// from before on do not count, unless that is 0.
func (c *Comparer) MeasureEnd(control server.ControlData, before int64) (lsn.Extent, error) {
	return c.meter.MeasureEnd(control, before)
}

// comparedWAL is how far a replica's WAL was compared, and with the primary of
// which pod.
type comparedWAL struct {
	position uint64
	with     string
}

// comparison is what comes of a comparison.
type comparison int

const (
	// comparisonOpen: the primary does not hold that part, or not yet.
	comparisonOpen comparison = iota
	// comparisonSame: the primary holds all that the replica does.
	comparisonSame
	// comparisonDiverged: the data is marked.
	comparisonDiverged
)

// askComparison compares evidence with the primary's WAL, of a timeline or, for
// 0, as the primary has it. The evidence is returned that the answer is about.
func (c *Comparer) askComparison(ctx context.Context, primary string, timeline int64, e evidence) (evidence, postgresapi.WALComparison, error) {
	ctx, cancel := context.WithTimeout(ctx, comparisonLimit)
	defer cancel()
	answer, err := c.askPeerComparison(ctx, primary, timeline, e.From, e.End.Position)
	if err == nil && answer.Sum == "" && e.Short != nil {
		e = *e.Short
		answer, err = c.askPeerComparison(ctx, primary, timeline, e.From, e.End.Position)
	}
	return e, answer, err
}

// askPeerComparison asks a peer that leads what its WAL has to do with a part of the own: of
// a timeline, or, for 0, of its own way. The deadline is the context's; the error
// is errors.ErrUnsupported of an agent that is too old to know.
func (c *Comparer) askPeerComparison(ctx context.Context, pod string, timeline int64, from, to uint64) (postgresapi.WALComparison, error) {
	var answer postgresapi.WALComparison
	query := url.Values{}
	query.Set("timeline", strconv.FormatInt(timeline, 10))
	query.Set("from", strconv.FormatUint(from, 10))
	query.Set("to", strconv.FormatUint(to, 10))
	return answer, c.o.Ask(ctx, pod, postgresapi.ComparisonPath+"?"+query.Encode(), &answer)
}

// markDiverged marks data whose history is not the primary's. Other content within what
// both hold is explained by no election.
func (c *Comparer) markDiverged(ctx context.Context, primary string, e evidence, answer postgresapi.WALComparison) error {
	left := answer.Left
	if !answer.Descends && e.End.Timeline < answer.Timeline {
		fork, err := c.findFork(ctx, primary, e.End)
		if err != nil {
			c.o.Log.Info("where the data left the primary's history is not known yet", "primary", primary, "error", err.Error())
			return nil // what is not marked is compared again
		}
		left = fork
	}
	if !e.differsFrom(answer) && c.o.IsSuperseded != nil && c.o.IsSuperseded(e.End, left, answer.Timeline) {
		c.o.Log.Warn("the data holds WAL that the leader was elected without", "own", e.End.String(), "left", left, "timeline", answer.Timeline)
		c.superseded = true
		return nil
	}
	m := datavolume.DivergedMark{Own: e.End, Primary: lsn.Point{Timeline: answer.Timeline, Position: answer.Position}, Left: answer.Left, Differs: e.differsFrom(answer)}
	c.o.Log.Error("the data is of another history than the primary's", "own", m.Own.String(), "primary", m.Primary.String(), "left", answer.Left, "differs", m.Differs)
	return datavolume.WriteDivergedMark(c.o.Volume, m)
}

// DataAtRest is data that does not run.
type DataAtRest struct {
	// Present says that the volume holds data at all.
	Present          bool
	SystemIdentifier string
	// WALEnd is how far its WAL goes; zero while that is not known. End is the same,
	// or what pg_control says where that is further.
	WALEnd, End lsn.Point
}

// CompareAtRest compares the WAL of data that does not run with the primary's,
// and marks data whose history is another. It says whether that data holds nothing
// that the primary lacks, as far as a primary can prove.
func (c *Comparer) CompareAtRest(ctx context.Context, data DataAtRest, primary leaderview.Primary) (bool, error) {
	c.evidence, c.compared, c.comparedAt, c.superseded = evidence{}, comparedWAL{}, 0, false
	if !data.Present || data.WALEnd.Position == 0 {
		return false, nil
	}
	if mark, err := datavolume.ReadDivergedMark(c.o.Volume); mark != nil || err != nil {
		return false, err // what was found stays as it is, however far the primary goes
	}
	found, err := findEvidence(filepath.Join(c.o.PGData, "pg_wal"), data.WALEnd)
	if err != nil {
		c.o.Log.Warn("the WAL cannot be compared", "error", err.Error())
		return false, nil
	}
	c.evidence = found
	if !primary.Known || primary.SystemIdentifier != data.SystemIdentifier {
		return false, nil
	}
	found, answer, err := c.askComparison(ctx, primary.Pod, data.WALEnd.Timeline, found)
	switch {
	case errors.Is(err, errors.ErrUnsupported): // of an older agent: positions are all there is
		return !lsn.IsAhead(data.WALEnd, primary.End), nil
	case err != nil:
		c.o.Log.Info("the WAL is not compared yet", "primary", primary.Pod, "error", err.Error())
		return false, nil
	case found.isDiverged(answer):
		c.evidence = evidence{}
		return false, c.markDiverged(ctx, primary.Pod, found, answer)
	case found.isContained(answer):
		c.evidence = evidence{}
		return true, nil
	}
	return false, nil // the primary has not come so far yet, and may come to differ
}

// UpdateMark reads the mark of data at rest that is ahead of its primary, and makes
// it once that is proven; nil for none.
func (c *Comparer) UpdateMark(data DataAtRest, primary leaderview.Primary) (*datavolume.DivergedMark, error) {
	now := clock.Boottime()
	c.proof = c.proof.recordPositions(now, data.End, primary.End)
	if ours := primary.SystemIdentifier == data.SystemIdentifier; primary.Known && ours && c.proof.isProven(now) {
		if err := datavolume.WriteDivergedMark(c.o.Volume, datavolume.DivergedMark{Own: data.End, Primary: primary.End}); err != nil {
			return nil, err
		}
	}
	return datavolume.ReadDivergedMark(c.o.Volume)
}

// MeasureNow finds where the WAL of the data ends now, whatever was measured before.
func (c *Comparer) MeasureNow(ctx context.Context) (lsn.Point, error) {
	_, end, err := c.measureNow(ctx)
	return end.Point, err
}

func (c *Comparer) measureNow(ctx context.Context) (server.ControlData, lsn.Extent, error) {
	control, err := c.o.Programs.ReadControlData(ctx, c.o.PGData)
	if err != nil {
		return control, lsn.Extent{}, err
	}
	c.meter.ForgetEnd()
	end, err := c.meter.MeasureEnd(control, 0)
	c.meter.ForgetEnd()
	return control, end, err
}

// MayBeReplaced says whether a replica's data, which receives nothing, holds
// nothing that the primary lacks, so that a copy may take its place, and how far
// it goes. Data that does is marked. Where proof is wanted, a part that the primary
// has dropped is none. The error is errors.ErrUnsupported where the primary's agent
// is older and compares nothing.
func (c *Comparer) MayBeReplaced(ctx context.Context, primary string, proof bool) (bool, lsn.Point, error) {
	control, end, err := c.measureNow(ctx)
	if err != nil {
		return false, lsn.Point{}, err
	}
	if len(c.evidence.Sums) > 0 {
		// It was read before anything came in its place.
		if result, err := c.compareEvidence(ctx, primary, true); err != nil || result != comparisonSame {
			return false, end.Point, err
		}
	}
	found, err := findEvidence(filepath.Join(c.o.PGData, "pg_wal"), end.Point)
	if err != nil {
		return false, end.Point, err
	}
	found, answer, err := c.askComparison(ctx, primary, end.Timeline, found)
	switch {
	case err != nil:
		return false, end.Point, err
	case found.isDiverged(answer):
		return false, end.Point, c.markDiverged(ctx, primary, found, answer)
	case control.End().Newer(end.Point), proof && answer.Sum == "" && answer.Left == 0:
		return false, end.Point, nil // the WAL here, or there, is not whole
	}
	return found.isContained(answer), end.Point, nil
}
