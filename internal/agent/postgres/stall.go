package postgres

import "time"

const (
	// stallLimit is how long a replica may stand before half a record.
	stallLimit = time.Minute
	// streamsInRow is how often in a row a replica is seen to receive that does: a
	// stream which ends at once is begun again all the time.
	streamsInRow = 3
)

// stall follows a replica that has replayed all that it has but half a record,
// which the primary, that has more, does not continue: its rest was given up. The
// log says nothing of that. The zero value is none.
type stall struct {
	begun    bool
	since    time.Duration
	position int64
	streams  int
}

// saw takes in a look at the replica, and whether it stands before half a record.
func (s stall) saw(now time.Duration, seen sight, half bool) stall {
	switch {
	case seen.Receiving:
		if s.streams++; s.streams >= streamsInRow {
			return stall{}
		}
		return s
	case !half:
		return stall{}
	case !s.begun || seen.Position != s.position:
		return stall{begun: true, since: now, position: seen.Position}
	default:
		s.streams = 0
		return s
	}
}

func (s stall) over(now time.Duration) bool { return s.begun && now-s.since >= stallLimit }
