package rolechange

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// unreachedSuffix marks the history of a timeline that the data never reached. Its
// number stays taken here.
const unreachedSuffix = ".unreached"

// TimelineTakenError says that a timeline cannot be begun: it is not above all that
// the volume knows.
type TimelineTakenError struct{ Timeline, Highest int64 }

func (e *TimelineTakenError) Error() string {
	return fmt.Sprintf("timeline %d cannot be begun: this volume knows timeline %d already; reserve a higher one", e.Timeline, e.Highest)
}

// StaleHistoryError says that the server may follow a timeline of which its volume
// holds nothing, and would begin another one as its child.
type StaleHistoryError struct{ Timeline, Held int64 }

func (e *StaleHistoryError) Error() string {
	return fmt.Sprintf("the volume has the history of timeline %d and data of timeline %d at most: restart the server as a standby, and then promote it", e.Timeline, e.Held)
}

// reserveTimeline has PostgreSQL choose a timeline at its next promotion: it takes the
// first number without a history. A replica asks its primary for the histories of all
// timelines after its own, so the files stay; they are never archived. It returns
// the files that it made.
func reserveTimeline(dir string, held HeldWAL, target int64) (made []string, err error) {
	highest, err := findHighestTimeline(dir)
	if err != nil {
		return nil, err
	}
	if highest = max(highest, held.End.Timeline); target <= highest {
		return nil, &TimelineTakenError{target, highest}
	}
	histories, err := wal.ReadHistories(dir)
	if err != nil {
		return nil, err
	}
	own := uint32(held.End.Timeline) //nolint:gosec // PostgreSQL's are so long
	for timeline, history := range histories {
		if slices.ContainsFunc(history, func(t wal.Turn) bool { return t.Timeline == own }) {
			return nil, &StaleHistoryError{int64(timeline), held.End.Timeline}
		}
	}
	for timeline := uint32(2); int64(timeline) < target; timeline++ {
		if _, found := histories[timeline]; found || timeline == own {
			continue
		}
		path := filepath.Join(dir, wal.HistoryName(timeline))
		made = append(made, path)
		if err := atomicfile.WriteDurably(path, []byte(describeTimeline(held.History, timeline))); err != nil {
			return made, err
		}
	}
	return made, nil
}

// describeTimeline is the history file of a timeline that the data came through, or of
// one that was never begun here.
func describeTimeline(history wal.History, timeline uint32) string {
	i := slices.IndexFunc(history, func(t wal.Turn) bool { return t.Timeline == timeline })
	if i < 1 {
		return "# reserved: this volume holds no data of this timeline\n"
	}
	var b strings.Builder
	for _, turn := range history[:i] {
		fmt.Fprintf(&b, "%d\t%s\tas a later timeline has it\n", turn.Timeline, wal.FormatPosition(turn.Position))
	}
	return b.String()
}

// ofTimeline are files in a pg_wal directory that show that a timeline's number is
// taken.
var ofTimeline = regexp.MustCompile(`^([0-9A-F]{8})(?:[0-9A-F]{16}(?:\.partial)?|\.history(?:\` + unreachedSuffix + `)?)$`)

// findHighestTimeline finds the highest number that a file in a pg_wal directory has.
func findHighestTimeline(dir string) (int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	highest := int64(0)
	for _, entry := range entries {
		if match := ofTimeline.FindStringSubmatch(entry.Name()); match != nil {
			timeline, err := strconv.ParseInt(match[1], 16, 64)
			if err != nil {
				return 0, err
			}
			highest = max(highest, timeline)
		}
	}
	return highest, nil
}

// dropUnreached removes the histories of timelines above the one that the data is on,
// and keeps that their numbers are taken. A server that starts as a standby takes the
// newest history for what it has to follow. One that was fetched from a primary is
// fetched again; one of a promotion that was interrupted leads nowhere.
func dropUnreached(dir string, held int64) error {
	histories, err := wal.ReadHistories(dir)
	if err != nil {
		return err
	}
	dropped := false
	for timeline := range histories {
		if int64(timeline) <= held {
			continue
		}
		path := filepath.Join(dir, wal.HistoryName(timeline))
		if err := os.Rename(path, path+unreachedSuffix); err != nil {
			return fmt.Errorf("set the history of timeline %d aside: %w", timeline, err)
		}
		dropped = true
	}
	if !dropped {
		return nil
	}
	return atomicfile.SyncDir(dir)
}

// removeReserved removes files that a reservation made which is not used.
func removeReserved(made []string) error {
	var failed error
	for _, path := range made {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}
