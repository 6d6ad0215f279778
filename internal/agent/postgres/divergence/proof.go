package divergence

import (
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
)

// aheadLimit is how long a primary must have stayed behind what its replica
// had, for what it says of its position is a moment old.
const aheadLimit = 5 * time.Second

// aheadProof follows a replica that seems to be ahead of its primary. The zero
// value is none.
type aheadProof struct {
	begun bool
	since time.Duration
	mark  lsn.Point
}

// recordPositions takes in where both were. The proof is that the primary does not reach
// for a while what the replica had at its beginning.
func (p aheadProof) recordPositions(now time.Duration, own, primary lsn.Point) aheadProof {
	switch {
	case p.begun && lsn.IsAhead(p.mark, primary):
		return p
	case lsn.IsAhead(own, primary):
		return aheadProof{begun: true, since: now, mark: own}
	default:
		return aheadProof{}
	}
}

func (p aheadProof) isProven(now time.Duration) bool {
	return p.begun && now-p.since >= aheadLimit
}
