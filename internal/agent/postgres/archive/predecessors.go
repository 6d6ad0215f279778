package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// storePredecessors makes sure, before a segment is stored, that all before it is. What
// an earlier primary did not store, and what was discarded and is still on the volume,
// is stored now; of what is not, it is recorded that it is missing. That the
// segment before it is stored proves nothing: several are stored at once.
func (s *Archiver) storePredecessors(ctx context.Context, archive *wal.Archive, name string) error {
	info, err := os.Stat(s.files.walPath(name))
	if err != nil {
		return err
	}
	size := info.Size()
	segment, ok := wal.ParseSegment(name, size)
	if !ok || segment.Number == 0 {
		return nil // the archive refuses what is no segment
	}
	from := s.ledger.findWayStart(segment, size)
	if from.reachesSegment(segment) {
		return nil
	}
	history, err := s.files.findHistory(ctx, archive, segment.Timeline)
	if err != nil {
		return err
	}
	return way{
		log: s.log, files: s.files, ledger: s.ledger, queue: s.queue,
		archive: archive, history: history, to: segment, size: size, from: from,
	}.fillGaps(ctx)
}

// wayStart is what the archiver remembers of the way.
type wayStart struct {
	// number of a segment up to which all is stored, or recorded as missing, where
	// that is known.
	number uint64
	known  bool
	// openGap is the gap that goes on, and discarded its first segment.
	openGap   *agentapi.ArchiveGap
	discarded wal.Segment
}

// reachesSegment says whether nothing is to be seen to before a segment.
func (f wayStart) reachesSegment(to wal.Segment) bool {
	return f.known && to.Number <= f.number+1 && !f.discardedBefore(to)
}

// discardedBefore says whether a segment before another was discarded since.
func (f wayStart) discardedBefore(to wal.Segment) bool {
	return f.openGap != nil && f.discarded.Number > 0 && f.discarded.Number < to.Number
}

// way is the way that the WAL took to a segment.
type way struct {
	log    *slog.Logger
	files  walFiles
	ledger *ledger
	queue  *storeQueue

	archive *wal.Archive
	history wal.History
	to      wal.Segment
	size    int64
	from    wayStart
}

func (w way) segmentAt(number uint64) wal.Segment {
	return w.history.SegmentAt(w.to.Timeline, number, w.size)
}

// heldSegment is one that the archive holds, and since when.
type heldSegment struct {
	wal.Segment
	since time.Time
}

// listHeld are the segments before the last that the archive holds, in order: all
// after a number, and one or more up to it, where there are any.
func (w way) listHeld(ctx context.Context, after uint64) ([]heldSegment, error) {
	timelines := []uint32{w.to.Timeline}
	for _, t := range slices.Backward(w.history) {
		timelines = append(timelines, t.Timeline)
	}
	var found []heldSegment
	for _, timeline := range timelines {
		stored, err := w.archive.ListSegments(ctx, timeline)
		if err != nil {
			return nil, err
		}
		reached := false
		for name, at := range stored {
			if s, ok := wal.ParseSegment(name, w.size); ok && s.Number < w.to.Number && w.segmentAt(s.Number) == s {
				found = append(found, heldSegment{s, at})
				reached = reached || s.Number <= after
			}
		}
		if reached {
			break
		}
	}
	slices.SortFunc(found, func(a, b heldSegment) int { return cmp.Compare(a.Number, b.Number) })
	return found, nil
}

// findRecorded is the number of the newest segment that is recorded as missing; 0 for
// none.
func (w way) findRecorded(ctx context.Context) (newest uint64, err error) {
	gaps, err := w.archive.ListGaps(ctx)
	if err != nil {
		return 0, err
	}
	if len(gaps) > 0 {
		w.ledger.recordFound(w.archive, &gaps[len(gaps)-1])
	}
	for _, gap := range gaps {
		if s, ok := wal.ParseSegment(gap.To, w.size); ok && s.Number < w.to.Number && w.segmentAt(s.Number) == s {
			newest = max(newest, s.Number)
		}
	}
	return newest, nil
}

// listMissing are the segments on the volume, after one and before the last, that the
// archive does not hold, in order.
func (w way) listMissing(after uint64, held []heldSegment) ([]wal.Segment, error) {
	entries, err := os.ReadDir(filepath.Join(w.files.pgdata, "pg_wal"))
	if err != nil {
		return nil, err
	}
	stored := map[uint64]bool{}
	for _, s := range held {
		stored[s.Number] = true
	}
	var found []wal.Segment
	for _, e := range entries {
		if s, ok := wal.ParseSegment(e.Name(), w.size); ok && s.Number > after && s.Number < w.to.Number && w.segmentAt(s.Number) == s && !stored[s.Number] {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b wal.Segment) int { return cmp.Compare(a.Number, b.Number) })
	return found, nil
}

// fillGaps stores what the volume still has of what the archive lacks, and records
// the rest. An archiver that remembers nothing checks all that the archive holds
// since the newest record of what is missing.
func (w way) fillGaps(ctx context.Context) error {
	var err error
	after := w.from.number
	discarded := w.from.discardedBefore(w.to)
	switch {
	case !w.from.known:
		if after, err = w.findRecorded(ctx); err != nil {
			return err
		}
	case discarded:
		after = min(after, w.from.discarded.Number-1)
	}
	held, err := w.listHeld(ctx, after)
	if err != nil {
		return err
	}
	if !w.from.known && after == 0 {
		// The archive begins with what it holds, or with what was discarded, or here.
		after = w.to.Number - 1
		if len(held) > 0 {
			after = held[0].Number
		}
		if discarded {
			after = min(after, w.from.discarded.Number-1)
		}
	}
	here, err := w.listMissing(after, held)
	if err != nil {
		return err
	}
	if here, err = w.storeSegments(ctx, here); err != nil {
		return err
	}
	for _, s := range here {
		held = append(held, heldSegment{s, time.Now()})
	}
	slices.SortFunc(held, func(a, b heldSegment) int { return cmp.Compare(a.Number, b.Number) })
	return w.recordMissing(ctx, after, held)
}

// storeSegments stores what is there. What is not what its name says is as good as not
// there.
func (w way) storeSegments(ctx context.Context, here []wal.Segment) ([]wal.Segment, error) {
	group, storing := errgroup.WithContext(ctx)
	group.SetLimit(w.queue.atOnce)
	refused := make([]bool, len(here))
	for i, segment := range here {
		group.Go(func() error {
			name := segment.Name(w.size)
			err := w.queue.storeFile(storing, w.archive, name)
			var no *wal.Refusal
			if refused[i] = errors.As(err, &no) || errors.Is(err, os.ErrNotExist); refused[i] {
				w.log.Warn("a segment that the archive lacks cannot be stored any more", "file", name, "error", err.Error())
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var kept []wal.Segment
	for i, segment := range here {
		if !refused[i] {
			kept = append(kept, segment)
		}
	}
	if len(kept) > 0 {
		w.log.Info("stored what the archive lacked", "segments", len(kept), "first", kept[0].Name(w.size))
	}
	return kept, nil
}

// recordMissing says what is missing after a number, between what is stored.
func (w way) recordMissing(ctx context.Context, after uint64, stored []heldSegment) error {
	var gap *agentapi.ArchiveGap
	var before *heldSegment
	for _, next := range append(stored, heldSegment{Segment: w.to}) {
		if next.Number > after+1 {
			gap = &agentapi.ArchiveGap{From: w.segmentAt(after + 1).Name(w.size), To: w.segmentAt(next.Number - 1).Name(w.size), Ended: time.Now().UTC()}
			if before != nil {
				gap.After, gap.Begun = before.Name(w.size), before.since.UTC()
			}
			if err := w.archive.RecordGap(ctx, *gap); err != nil {
				return fmt.Errorf("record what is missing: %w", err)
			}
			w.log.Error("the archive lacks WAL for good: a new base backup is needed", "from", gap.From, "to", gap.To)
		}
		after, before = max(after, next.Number), &next
	}
	// What is discarded from here on goes on, and what lies on no way to here does not.
	var ended *agentapi.ArchiveGap
	if w.from.openGap != nil && (w.from.discardedBefore(w.to) || w.segmentAt(w.from.discarded.Number) != w.from.discarded) {
		ended = w.from.openGap
	}
	return w.ledger.recordWay(w.archive, w.to.Name(w.size), gap, ended)
}
