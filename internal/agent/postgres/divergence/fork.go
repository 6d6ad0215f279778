package divergence

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// findFork finds the position from which data on a timeline that the primary never took
// has a history of its own: that of a member that was promoted, and was replaced before
// another one followed it. It is 0 where no timeline before is the primary's as well, or
// where what both hold before that position differs.
func (c *Comparer) findFork(ctx context.Context, primary string, end lsn.Point) (uint64, error) {
	dir := filepath.Join(c.o.PGData, "pg_wal")
	histories, err := wal.ReadHistories(dir)
	if err != nil {
		return 0, err
	}
	way := wal.FindHistory(histories, uint32(end.Timeline)) //nolint:gosec // PostgreSQL's are so long
	for _, turn := range slices.Backward(way) {
		timeline, fork := int64(turn.Timeline), turn.Position
		answer, err := c.askPeerComparison(ctx, primary, timeline, fork, fork)
		switch {
		case err != nil:
			return 0, err
		case !answer.Descends:
			continue
		case answer.Left > 0:
			fork = min(fork, answer.Left)
		}
		// The part before may be gone, here or there, as anywhere else.
		found, err := findEvidence(dir, lsn.Point{Timeline: timeline, Position: fork})
		if err != nil {
			return fork, nil //nolint:nilerr // there is nothing to compare
		}
		found, answer, err = c.askComparison(ctx, primary, timeline, found)
		if err != nil || found.differsFrom(answer) {
			return 0, err
		}
		return fork, nil
	}
	return 0, nil
}
