package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-db/holdfast/internal/memberapi"
	"github.com/holdfast-db/holdfast/internal/store"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// follows makes sure, before a segment is stored, that the one before it is.
// What an earlier primary did not store, and what was given up and is still on
// the volume, is stored now; of what is not, it is recorded that it is missing.
func (s *archiver) follows(ctx context.Context, archive *wal.Archive, name string) error {
	info, err := os.Stat(s.path(name))
	if err != nil {
		return err
	}
	size := info.Size()
	segment, ok := wal.Parse(name, size)
	if !ok || segment.Number == 0 {
		return nil // the archive refuses what is no segment
	}
	s.mu.Lock()
	sound := s.sound
	s.mu.Unlock()
	if sound == name {
		return nil
	}
	if previous := (wal.Segment{Timeline: segment.Timeline, Number: segment.Number - 1}); sound == previous.Name(size) {
		return nil
	}
	history, err := s.history(ctx, archive, segment.Timeline)
	if err != nil {
		return err
	}
	way := archiveWay{s, archive, history, segment, size}
	previous := way.at(segment.Number - 1)
	if there, err := archive.Has(ctx, previous.Name(size)); err != nil || there {
		return err
	}
	return way.fill(ctx)
}

// history of a timeline, from the volume or the archive, which gets it too.
func (s *archiver) history(ctx context.Context, archive *wal.Archive, timeline uint32) (wal.History, error) {
	if timeline <= 1 {
		return nil, nil
	}
	name := wal.HistoryName(timeline)
	data, err := os.ReadFile(s.path(name))
	if errors.Is(err, os.ErrNotExist) {
		h, err := archive.History(ctx, timeline)
		if store.NotFound(err) {
			return nil, nil // data that began on this timeline, as far as anybody knows
		}
		return h, err
	}
	if err != nil {
		return nil, err
	}
	if err := archive.Put(ctx, s.path(name), name); err != nil {
		return nil, err
	}
	return wal.ParseHistory(data)
}

// archiveWay is the way that the log took to a segment.
type archiveWay struct {
	*archiver
	archive *wal.Archive
	history wal.History
	to      wal.Segment
	size    int64
}

func (w archiveWay) at(number uint64) wal.Segment {
	return w.history.At(w.to.Timeline, number, w.size)
}

// newest is the newest segment before the last that the archive holds.
func (w archiveWay) newest(ctx context.Context) (found wal.Segment, since time.Time, ok bool, err error) {
	timelines := []uint32{w.to.Timeline}
	for _, t := range slices.Backward(w.history) {
		timelines = append(timelines, t.Timeline)
	}
	for _, timeline := range timelines {
		stored, err := w.archive.Segments(ctx, timeline)
		if err != nil {
			return found, since, false, err
		}
		for name, at := range stored {
			s, parsed := wal.Parse(name, w.size)
			if parsed && s.Number < w.to.Number && w.at(s.Number) == s && (!ok || s.Number > found.Number) {
				found, since, ok = s, at, true
			}
		}
		if ok {
			return found, since, true, nil
		}
	}
	return found, since, false, nil
}

// here are the segments on the volume, after one and before the last, in order.
func (w archiveWay) here(after uint64) ([]wal.Segment, error) {
	entries, err := os.ReadDir(filepath.Join(w.pgdata, "pg_wal"))
	if err != nil {
		return nil, err
	}
	var found []wal.Segment
	for _, e := range entries {
		if s, ok := wal.Parse(e.Name(), w.size); ok && s.Number > after && s.Number < w.to.Number && w.at(s.Number) == s {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b wal.Segment) int { return int(a.Number) - int(b.Number) })
	return found, nil
}

// fill stores what the volume still has of what the archive lacks, and records
// the rest.
func (w archiveWay) fill(ctx context.Context) error {
	newest, since, any, err := w.newest(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	given := w.giving
	w.mu.Unlock()
	if !any {
		// The archive begins here, or with the first that was given up.
		first, ok := wal.Segment{}, false
		if given != nil {
			first, ok = wal.Parse(given.From, w.size)
		}
		if !ok || first.Number == 0 {
			return nil
		}
		newest = w.at(first.Number - 1)
	}
	here, err := w.here(newest.Number)
	if err != nil {
		return err
	}
	here, err = w.put(ctx, here)
	if err != nil {
		return err
	}
	return w.record(ctx, newest, since, any, here)
}

// put stores what is there. What is not what its name says is as good as not
// there.
func (w archiveWay) put(ctx context.Context, here []wal.Segment) ([]wal.Segment, error) {
	group, storing := errgroup.WithContext(ctx)
	group.SetLimit(w.atOnce)
	refused := make([]bool, len(here))
	for i, segment := range here {
		group.Go(func() error {
			name := segment.Name(w.size)
			err := w.archiver.put(storing, w.archive, name)
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

// record says what is missing between what is stored.
func (w archiveWay) record(ctx context.Context, after wal.Segment, since time.Time, known bool, stored []wal.Segment) error {
	var gap *memberapi.ArchiveGap
	for _, next := range append(stored, w.to) {
		if next.Number > after.Number+1 {
			gap = &memberapi.ArchiveGap{From: w.at(after.Number + 1).Name(w.size), To: w.at(next.Number - 1).Name(w.size), Ended: time.Now().UTC()}
			if known {
				gap.After, gap.Begun = after.Name(w.size), since.UTC()
			}
			if err := w.archive.PutGap(ctx, *gap); err != nil {
				return fmt.Errorf("record what is missing: %w", err)
			}
			w.log.Error("the archive lacks log for good: a new base backup is needed", "from", gap.From, "to", gap.To)
		}
		after, since, known = next, time.Now(), true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.giving = nil; gap != nil {
		w.gap = gap
	}
	return nil
}
