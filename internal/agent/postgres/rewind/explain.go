package rewind

import (
	"slices"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// Term is one in which the member of a volume led, and the timeline that it wrote then.
type Term struct{ Term, Timeline int64 }

// Explain says whether a failover that is on record explains that a volume has diverged:
// the primary's history leaves that of the volume before its end, for a timeline that is
// newer than all of the volume's; and the volume itself led every timeline of which it
// holds WAL after that. Other divergence is for a person to judge.
func Explain(held rolechange.HeldWAL, up rolechange.Upstream, led []Term) bool {
	if held.SystemIdentifier == "" || held.SystemIdentifier != up.SystemIdentifier || up.Standby || up.End.Timeline <= held.End.Timeline {
		return false
	}
	if rolechange.JudgeRejoin(held, up) == nil {
		return false
	}
	fork, found := findFork(held, up)
	if !found {
		return false
	}
	for _, timeline := range listDropped(held, fork) {
		if !slices.ContainsFunc(led, func(t Term) bool { return t.Timeline == timeline && t.Term > 0 }) {
			return false
		}
	}
	return true
}

// buildWay is the way that WAL took, with its end as the last turn.
func buildWay(history wal.History, end lsn.Point) wal.History {
	return slices.Concat(history, wal.History{{Timeline: uint32(end.Timeline), Position: end.Position}}) //nolint:gosec // PostgreSQL's are so long
}

// findFork finds where the way of a volume and that of a primary part: all before is the
// same. It is not found where the ways have no timeline in common, or have the number
// of one in common after they parted.
func findFork(held rolechange.HeldWAL, up rolechange.Upstream) (fork lsn.Point, found bool) {
	own, other := buildWay(held.History, held.End), buildWay(up.History, up.End)
	for i := 0; i < len(own) && i < len(other) && own[i].Timeline == other[i].Timeline; i++ {
		fork, found = lsn.Point{Timeline: int64(own[i].Timeline), Position: min(own[i].Position, other[i].Position)}, true
		if own[i].Position != other[i].Position {
			break
		}
	}
	for _, turn := range own {
		isCommon := func(t wal.Turn) bool { return t.Timeline == turn.Timeline }
		if int64(turn.Timeline) > fork.Timeline && slices.ContainsFunc(other, isCommon) {
			return lsn.Point{}, false
		}
	}
	return fork, found
}

// listDropped lists the timelines of which a volume holds WAL after a fork.
func listDropped(held rolechange.HeldWAL, fork lsn.Point) (timelines []int64) {
	begun := uint64(0)
	for _, turn := range buildWay(held.History, held.End) {
		if turn.Position > max(begun, fork.Position) && int64(turn.Timeline) >= fork.Timeline {
			timelines = append(timelines, int64(turn.Timeline))
		}
		begun = max(begun, turn.Position)
	}
	return timelines
}
