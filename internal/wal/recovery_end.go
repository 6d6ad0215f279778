package wal

import (
	"context"
	"fmt"
	"time"
)

// CheckOnWay says why a recovery that has ended somewhere did not come there on its
// way; nil where it did. A segment in which a timeline was left goes on with WAL
// that no member followed: a recovery past the turn must have read it as the next
// timeline has it.
func (s *Supply) CheckOnWay(end uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, turn := range s.Way.History {
		n := turn.Position / usualSize
		of := s.handed[n] // 0: it was read from the copy, which is of no later one
		if turn.Timeline < s.Way.From || turn.Position >= end || of > turn.Timeline {
			continue
		}
		next := s.Way.Timeline
		if i+1 < len(s.Way.History) {
			next = s.Way.History[i+1].Timeline
		}
		return newRefusal(s.refused[n], "the archive at %s lacks %s, with which timeline %d goes on from %s, so that what was read there is what timeline %d has, and was not followed: if the source has it still, it is archived within minutes; else nothing after that position can be had from this backup",
			s.Archive.Prefix, Segment{next, n}.Name(usualSize), next, FormatPosition(turn.Position), turn.Timeline)
	}
	return nil
}

// CheckComplete says why a recovery that has ended somewhere has not read all that the
// archive holds; nil where it has.
func (s *Supply) CheckComplete(ctx context.Context, end uint64) error {
	if err := s.FindHole(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, turn := range s.Way.History {
		if turn.Timeline < s.Way.From {
			continue
		}
		n := turn.Position / usualSize
		if why := s.refused[n]; why != nil && turn.Position == end && s.handed[n] <= turn.Timeline {
			return why
		}
		if end < turn.Position {
			return &Refusal{Message: fmt.Sprintf("the archive at %s has no log of timeline %d from %s to %s, where it was left", s.Archive.Prefix, turn.Timeline, FormatPosition(end), FormatPosition(turn.Position))}
		}
	}
	return nil
}

// FindHole says why the recovery did not go on, though the archive does: a Refusal.
// It is nil where the WAL ended, and another error where the store does not say.
// What came only when the recovery had ended is no hole.
func (s *Supply) FindHole(ctx context.Context) error {
	const pause = 10 * time.Second
	for left := s.Patience; ; left -= pause {
		mayCome, err := s.checkHole(ctx)
		if !mayCome || left <= 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// checkHole also says whether it may be closed yet: several segments are stored at
// once.
func (s *Supply) checkHole(ctx context.Context) (mayCome bool, err error) {
	s.mu.Lock()
	far, why := s.far, s.refused[s.far]
	of, read := s.handed[far]
	s.mu.Unlock()
	if why != nil && !read {
		return false, why
	}
	stored, err := s.Archive.listAlong(ctx, s.Way)
	if err != nil {
		return false, err
	}
	behind := false
	for _, other := range stored {
		if !read && other.Number == far {
			return false, nil
		}
		behind = behind || other.Number > far
	}
	at := s.Way.History.SegmentAt(s.Way.Timeline, far, usualSize)
	switch {
	case !behind:
		return false, nil
	case read:
		return false, newRefusal(why, "the archive at %s goes on after %s, which ends before its time", s.Archive.Prefix, Segment{of, far}.Name(usualSize))
	}
	return true, &Refusal{Message: fmt.Sprintf("the archive at %s lacks %s and goes on after it: another client has removed it", s.Archive.Prefix, at.Name(usualSize))}
}

// newRefusal makes a Refusal with what the store's own error was.
func newRefusal(why error, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if why != nil {
		text += ": " + why.Error()
	}
	return &Refusal{Message: text}
}
