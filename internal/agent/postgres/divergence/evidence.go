package divergence

import (
	"slices"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// evidence is a part of a replica's WAL at its end, by content: what distinguishes
// its history from another one of the same timeline. The zero value is none.
type evidence struct {
	End  lsn.Point
	From uint64
	// Sums are those of each way that leads there. More than one does where the
	// timeline of End may be an earlier one than that of the data.
	Sums []wal.WayDigest
	// Short is of the last segment alone, for a primary that has dropped the one
	// before; nil where that is all there is.
	Short *evidence
}

// findEvidence reads the WAL of a replica that receives none: its last whole
// segment, and what comes after it.
func findEvidence(dir string, end lsn.Point) (evidence, error) {
	timeline := uint32(end.Timeline) //nolint:gosec // PostgreSQL's are so long
	from, last, err := wal.LastSegments(dir, timeline, end.Position)
	if err != nil {
		return evidence{}, err
	}
	e := evidence{End: end, From: from}
	if e.Sums, err = wal.DigestWays(dir, timeline, from, end.Position); err != nil || last == from {
		return e, err
	}
	e.Short = &evidence{End: end, From: last}
	e.Short.Sums, err = wal.DigestWays(dir, timeline, last, end.Position)
	return e, err
}

// differsFrom says whether a primary that holds the same part holds another one.
func (e evidence) differsFrom(answer postgresapi.WALComparison) bool {
	return answer.Sum != "" && len(e.Sums) > 0 && !slices.ContainsFunc(e.Sums, func(d wal.WayDigest) bool { return d.Sum == answer.Sum })
}

// reduceToOneWay is the evidence with the timeline that the data is on, where only one
// way leads to its end: pg_control may name an earlier one while a replica runs.
func (e evidence) reduceToOneWay() (evidence, bool) {
	if len(e.Sums) != 1 || e.Short != nil && len(e.Short.Sums) != 1 {
		return e, false
	}
	e.End.Timeline = int64(e.Sums[0].Timeline)
	if e.Short != nil {
		short := *e.Short
		short.End, e.Short = e.End, &short
	}
	return e, true
}

// isDiverged says whether a primary's answer proves that the data which ends with
// this WAL, on just that timeline, holds what the primary's does not.
func (e evidence) isDiverged(answer postgresapi.WALComparison) bool {
	switch {
	case e.End.Timeline > answer.Timeline, !answer.Descends:
		return true
	case answer.Left > 0 && e.End.Position > answer.Left:
		return true
	default:
		return e.differsFrom(answer)
	}
}

// isContained says whether a primary's answer leaves nothing of the data that the
// primary lacks.
func (e evidence) isContained(answer postgresapi.WALComparison) bool {
	return !e.isDiverged(answer) && (answer.Left > 0 || e.End.Position <= answer.Position)
}
