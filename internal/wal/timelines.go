package wal

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/holdfast-db/holdfast/internal/store"
)

// listTimelines lists those that the archive holds files of, the newest first.
func (a *Archive) listTimelines(ctx context.Context) ([]uint32, error) {
	dirs, err := a.Store.ListDirs(ctx, a.Prefix)
	if err != nil {
		return nil, err
	}
	var all []uint32
	for _, dir := range dirs {
		name := strings.TrimSuffix(strings.TrimPrefix(dir, a.Prefix), "/")
		if t, err := strconv.ParseUint(name, 16, 32); err == nil && len(name) == 8 {
			all = append(all, uint32(t))
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	return all, nil
}

// Way is what a recovery follows: a timeline, and those that it came from.
type Way struct {
	// Timeline that it leads to, and From the one that it begins on.
	Timeline, From uint32
	History        History
	// Unknown are newer timelines that the archive holds files of, and does not
	// say where they came from.
	Unknown []uint32
}

// FindWay finds the way to the newest timeline that came from a position of another
// one.
func (a *Archive) FindWay(ctx context.Context, timeline uint32, position uint64) (Way, error) {
	all, err := a.listTimelines(ctx)
	if err != nil {
		return Way{}, err
	}
	var unknown []uint32
	for _, newest := range all {
		if newest <= timeline {
			break
		}
		h, err := a.ReadHistory(ctx, newest)
		if store.NotFound(err) {
			unknown = append(unknown, newest)
			continue
		}
		if err != nil {
			return Way{}, err
		}
		if slices.ContainsFunc(h, func(t Turn) bool { return t.Timeline == timeline && t.Position >= position }) {
			return Way{newest, timeline, h, unknown}, nil
		}
	}
	h, err := a.ReadHistory(ctx, timeline)
	if store.NotFound(err) {
		err = &Refusal{Message: fmt.Sprintf("the archive at %s lacks %s: another client has removed it", a.Prefix, HistoryName(timeline))}
	}
	return Way{timeline, timeline, h, unknown}, err
}

// ListBeside lists the timelines of which the archive holds WAL that a way does not
// lead to: what was written after they were left, or by members that no other
// member followed.
func (a *Archive) ListBeside(ctx context.Context, w Way) (beside []uint32, err error) {
	all, err := a.listTimelines(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if t == w.Timeline {
			continue
		}
		stored, err := a.ListSegments(ctx, t)
		if err != nil {
			return nil, err
		}
		for name := range stored {
			if s, ok := ParseSegment(name, usualSize); ok && !w.leadsThrough(s) {
				beside = append(beside, t)
				break
			}
		}
	}
	slices.Sort(beside)
	return beside, nil
}

// leadsThrough says whether the way leads through a segment of the usual size: what that
// begins with is on the way, and what it ends with may not be.
func (w Way) leadsThrough(s Segment) bool {
	for _, t := range w.History {
		if t.Timeline == s.Timeline {
			return s.Number*usualSize < t.Position
		}
	}
	return s.Timeline == w.Timeline
}

// listAlong lists the segments of a way that the archive holds.
func (a *Archive) listAlong(ctx context.Context, w Way) (found []Segment, err error) {
	timelines := []uint32{w.Timeline}
	for _, t := range w.History {
		timelines = append(timelines, t.Timeline)
	}
	for _, timeline := range timelines {
		if timeline < w.From {
			continue
		}
		stored, err := a.ListSegments(ctx, timeline)
		if err != nil {
			return nil, err
		}
		for name := range stored {
			if s, ok := ParseSegment(name, usualSize); ok && w.leadsThrough(s) {
				found = append(found, s)
			}
		}
	}
	return found, nil
}

// StartOf is where a segment of the usual size begins, such as 0/5000000; empty
// for what is no segment.
func StartOf(name string) string {
	s, ok := ParseSegment(name, usualSize)
	if !ok {
		return ""
	}
	return FormatPosition(s.Number * usualSize)
}

// FormatPosition writes a position as PostgreSQL does.
func FormatPosition(at uint64) string { return pglogrepl.LSN(at).String() }
