package archive

import (
	"context"
	"os"
	"path/filepath"
	"strconv"

	"github.com/holdfast-db/holdfast/internal/wal"
)

// partialSuffix marks what a timeline had of its last segment when it was left.
const partialSuffix = ".partial"

// segmentLength is that of a segment's name, with which others begin.
const segmentLength = 24

// putFile stores a file in an archive. What a replica had of timelines that were left
// meanwhile waits for the store as well when it is promoted, and another member may
// have stored more under that name, or something else: putFile never stores such a
// file under a name at which it would be taken for the whole.
func (f walFiles) putFile(ctx context.Context, archive *wal.Archive, name string) error {
	var as string
	var err error
	switch {
	case wal.IsHistory(name):
		as, err = f.nameHistory(ctx, archive, name)
	case wal.IsSegment(name):
		as, err = f.nameSegment(name)
	default:
		as = name
	}
	if err != nil || as == "" {
		return err
	}
	return archive.StoreFile(ctx, f.walPath(name), as)
}

// nameHistory says under which name a timeline's history is stored; none for one that
// is not needed. The data's own is always stored. Those of other timelines came from
// another member, which may have written them anew from a later timeline's: what
// the archive has of them stays. A reserved timeline has none.
func (f walFiles) nameHistory(ctx context.Context, archive *wal.Archive, name string) (string, error) {
	data, err := os.ReadFile(f.walPath(name))
	if err != nil {
		return "", err
	}
	if history, err := wal.ParseHistory(data); err == nil && len(history) == 0 {
		return "", nil
	}
	histories, err := wal.ReadHistories(f.walDir())
	if err != nil {
		return "", err
	}
	if own, _ := findOwnHistory(histories); wal.HistoryName(own) == name {
		return name, nil
	}
	if stored, err := archive.HasFile(ctx, name); err != nil || stored {
		return "", err
	}
	return name, nil
}

// nameSegment says under which name a segment is stored. A replica that follows its
// primary onto another timeline marks what it has of the old one's last segment as if
// that were whole; the WAL before the fork is in the next timeline's as well.
func (f walFiles) nameSegment(name string) (string, error) {
	info, err := os.Stat(f.walPath(name))
	if err != nil {
		return "", err
	}
	size := uint64(info.Size())
	segment, ok := wal.ParseSegment(name, info.Size())
	if !ok {
		return name, nil // the archive refuses it
	}
	histories, err := wal.ReadHistories(f.walDir())
	if err != nil {
		return "", err
	}
	_, history := findOwnHistory(histories)
	for _, turn := range history {
		if turn.Timeline != segment.Timeline || turn.Position/size != segment.Number || turn.Position%size == 0 {
			continue
		}
		goesOn, err := wal.HoldsRecord(f.walDir(), turn.Timeline, turn.Position)
		if err == nil && !goesOn {
			name += partialSuffix
		}
		return name, err
	}
	return name, nil
}

// parseTimeline reads the timeline that the name of a file begins with; 0 for none.
func parseTimeline(name string) uint32 {
	n, err := strconv.ParseUint(name[:min(len(name), 8)], 16, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// leadsTo says whether a file of an earlier timeline is known to be a part of the way to a
// later one: by the history of that on the volume, and whole before that left. Of the
// segment in which it left, the volume may have more than that.
func (f walFiles) leadsTo(name string, timeline uint32) bool {
	histories, err := wal.ReadHistories(f.walDir())
	if err != nil {
		return false
	}
	for _, turn := range histories[timeline] {
		if turn.Timeline != parseTimeline(name) {
			continue
		}
		if wal.IsHistory(name) {
			return true
		}
		size := f.segmentSize(f.readBacklog())
		segment, ok := wal.ParseSegment(name[:min(len(name), segmentLength)], size)
		return ok && (segment.Number+1)*uint64(size) <= turn.Position //nolint:gosec // a size
	}
	return false
}

// findOwnHistory finds the newest timeline that has a history, which is that of a
// primary's data: none was begun from an older one than the volume knows. It is 0 of
// data that was on one timeline only.
func findOwnHistory(histories map[uint32]wal.History) (own uint32, history wal.History) {
	for timeline, found := range histories {
		if len(found) > 0 && timeline > own {
			own, history = timeline, found
		}
	}
	return own, history
}

func (f walFiles) walDir() string { return filepath.Join(f.pgdata, "pg_wal") }
