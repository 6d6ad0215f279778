package wal

import (
	"context"
	"fmt"
	"time"
)

// Astray is why a recovery that has ended somewhere did not come there on its
// way; nil where it did. A segment in which a timeline was left goes on with
// what nobody followed: who has passed the turn must have read it as the next
// timeline has it.
func (s *Supply) Astray(end uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, turn := range s.Way.History {
		n := turn.Position / usual
		of := s.handed[n] // 0: it was read from the copy, which is of no later one
		if turn.Timeline < s.Way.From || turn.Position >= end || of > turn.Timeline {
			continue
		}
		next := s.Way.Timeline
		if i+1 < len(s.Way.History) {
			next = s.Way.History[i+1].Timeline
		}
		return refusal(s.refused[n], "the archive at %s lacks %s, with which timeline %d goes on from %s, so that what was read there is what timeline %d has, and was not followed: if the source has it still, it is archived within minutes; else nothing after that position can be had from this backup",
			s.Archive.Prefix, Segment{next, n}.Name(usual), next, FormatPosition(turn.Position), turn.Timeline)
	}
	return nil
}

// Whole is why a recovery that has ended somewhere has not read all that the
// archive holds; nil where it has.
func (s *Supply) Whole(ctx context.Context, end uint64) error {
	if err := s.Hole(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, turn := range s.Way.History {
		if turn.Timeline < s.Way.From {
			continue
		}
		n := turn.Position / usual
		if why := s.refused[n]; why != nil && turn.Position == end && s.handed[n] <= turn.Timeline {
			return why
		}
		if end < turn.Position {
			return &Refusal{fmt.Sprintf("the archive at %s has no log of timeline %d from %s to %s, where it was left", s.Archive.Prefix, turn.Timeline, FormatPosition(end), FormatPosition(turn.Position))}
		}
	}
	return nil
}

// Hole is why the recovery did not go on, though the archive does: a Refusal.
// It is nil where the log ended, and another error where the store does not say.
// What came only when the recovery had ended is no hole.
func (s *Supply) Hole(ctx context.Context) error {
	const pause = 10 * time.Second
	for left := s.Patience; ; left -= pause {
		mayCome, err := s.hole(ctx)
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

// hole also says whether it may be closed yet: several segments are stored at
// once.
func (s *Supply) hole(ctx context.Context) (mayCome bool, err error) {
	s.mu.Lock()
	far, why := s.far, s.refused[s.far]
	of, read := s.handed[far]
	s.mu.Unlock()
	if why != nil && !read {
		return false, why
	}
	stored, err := s.Archive.along(ctx, s.Way)
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
	at := s.Way.History.At(s.Way.Timeline, far, usual)
	switch {
	case !behind:
		return false, nil
	case read:
		return false, refusal(why, "the archive at %s goes on after %s, which ends before its time", s.Archive.Prefix, Segment{of, far}.Name(usual))
	}
	return true, &Refusal{fmt.Sprintf("the archive at %s lacks %s and goes on after it: another client has removed it", s.Archive.Prefix, at.Name(usual))}
}

// refusal with what the store's own trouble was.
func refusal(why error, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if why != nil {
		text += ": " + why.Error()
	}
	return &Refusal{text}
}
