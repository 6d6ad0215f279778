package wal

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/internal/store"
)

// PruneArchive removes the WAL below a prefix that no backup needs; see PruneFiles.
func PruneArchive(ctx context.Context, s *store.Store, prefix string, kept []string) (int, error) {
	return (&Archive{Store: s, Prefix: prefix}).PruneFiles(ctx, kept)
}

// PruneFiles removes the WAL that no backup needs any more to be gone on from, and
// says how many files that were. Kept are the positions that the backups that
// are kept begin at, such as 1:0/2000028; without any, nothing is removed.
func (a *Archive) PruneFiles(ctx context.Context, kept []string) (int, error) {
	all, err := a.Store.List(ctx, a.Prefix)
	if err != nil {
		return 0, err
	}
	keys := map[string]string{}
	var names []string
	for _, o := range all {
		name := strings.TrimSuffix(o.Key[strings.LastIndex(o.Key, "/")+1:], packedSuffix)
		if key, _, err := objectKey(name); err == nil && o.Key == a.Prefix+key {
			keys[name] = o.Key
			names = append(names, name)
		}
	}
	size, err := a.segmentSize(ctx, names)
	if err != nil || size == 0 {
		return 0, err
	}
	starts := make([]Segment, 0, len(kept))
	for _, position := range kept {
		start, err := parseStart(position, size)
		if err != nil {
			return 0, &Refusal{Message: err.Error()}
		}
		starts = append(starts, start)
	}
	removed := 0
	for _, name := range listSurplus(names, starts, size) {
		if err := a.Store.Delete(ctx, keys[name]); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// segmentSize is that of the segments in an archive; 0 without any.
func (a *Archive) segmentSize(ctx context.Context, names []string) (size int64, err error) {
	for _, name := range names {
		if IsSegment(name) {
			err = a.readStored(ctx, name, func(r io.Reader) (err error) {
				size, err = io.Copy(io.Discard, r)
				return err
			})
			return size, err
		}
	}
	return 0, nil
}

// parseStart reads the segment of a position with its timeline in front.
func parseStart(text string, size int64) (Segment, error) {
	timeline, position, found := strings.Cut(text, ":")
	t, err := strconv.ParseUint(timeline, 10, 32)
	if !found || err != nil || !validSize(size) {
		return Segment{}, fmt.Errorf("%q is no position with its timeline", text)
	}
	at, err := ParsePosition(position)
	return Segment{uint32(t), at / uint64(size)}, err
}

// listSurplus lists the names of what lies before every backup that is kept, by
// timeline and by position. What a backup may be gone on with never does: it
// lies behind its start, on its timeline or one that came of it. Histories stay:
// they are short, and say which way the WAL took.
func listSurplus(names []string, kept []Segment, size int64) (drop []string) {
	for _, name := range names {
		if IsHistory(name) || len(name) < 24 || len(kept) == 0 {
			continue
		}
		s, ok := ParseSegment(name[:24], size)
		for _, start := range kept {
			ok = ok && s.Timeline <= start.Timeline && s.Number < start.Number
		}
		if ok {
			drop = append(drop, name)
		}
	}
	return drop
}
