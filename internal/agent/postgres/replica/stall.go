package replica

import (
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
)

const (
	// stallLimit is how long a replica may stand before half a record.
	stallLimit = time.Minute
	// streamsInRow is how often in a row a replica is observed to receive that does: a
	// stream which ends at once is begun again all the time.
	streamsInRow = 3
)

// stall follows a replica that has replayed all that it has but half a record,
// which the primary, that has more, does not continue: its rest was discarded. The
// log says nothing of that. The zero value is none.
type stall struct {
	begun    bool
	since    time.Duration
	position int64
	streams  int
}

// recordObservation takes in an observation of the replica, and whether it stands before half a record.
func (s stall) recordObservation(now time.Duration, observed server.Observation, half bool) stall {
	switch {
	case observed.Receiving:
		if s.streams++; s.streams >= streamsInRow {
			return stall{}
		}
		return s
	case !half:
		return stall{}
	case !s.begun || observed.Position != s.position:
		return stall{begun: true, since: now, position: observed.Position}
	default:
		s.streams = 0
		return s
	}
}

func (s stall) isProven(now time.Duration) bool { return s.begun && now-s.since >= stallLimit }
