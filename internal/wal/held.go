package wal

import (
	"errors"
	"fmt"
)

// FindHeld follows the records in a pg_wal directory from where one ends, on exactly
// that timeline, to the end of the last complete one, and onto the newest timeline
// that came from there and of which the directory holds records. The position is
// such as the last that a server has replayed. What follows counts only if it names the
// record that ends there, which the directory must hold: except at redo, where the
// server's recovery began. No server may write WAL there.
func FindHeld(dir string, timeline uint32, from, redo uint64) (Extent, error) {
	if from == 0 {
		return Extent{}, fmt.Errorf("%s: no record ends at 0/0", dir)
	}
	r, err := newRecordReader(dir, timeline)
	if err != nil {
		return Extent{}, err
	}
	defer r.closeSegment()
	before := predecessor{end: from}
	if from == redo {
		before = predecessor{}
	}
	end, err := r.follow(from, before)
	if err != nil {
		return Extent{}, err
	}
	return r.followChildren(from-1, end, 0) // one may begin just there
}

// FindRecordEnd is where the record at a position of a timeline ends in a pg_wal
// directory: where the next one begins, but for the header of a page.
func FindRecordEnd(dir string, timeline uint32, at uint64) (uint64, error) {
	r, err := newRecordReader(dir, timeline)
	if err != nil {
		return 0, err
	}
	defer r.closeSegment()
	end, _, _, err := r.readRecord(at, predecessor{})
	if errors.Is(err, errEnd) {
		return 0, fmt.Errorf("the WAL in %s holds no complete record at %s of timeline %d", dir, FormatPosition(at), timeline)
	}
	return end, err
}

// FindHistory is the history of a timeline: by its own file, or by that of one that
// came from it. Nil says that neither is known.
func FindHistory(histories map[uint32]History, timeline uint32) History {
	if own := histories[timeline]; len(own) > 0 {
		return own
	}
	for _, history := range histories {
		for i, turn := range history {
			if turn.Timeline == timeline && i > 0 {
				return history[:i]
			}
		}
	}
	return nil
}

// ListHeld lists the timelines of which data on a timeline with this history holds
// WAL, in the order of their numbers. One that was left where it began is none: a
// recovery that knew of it ended before it.
func (h History) ListHeld(timeline uint32) []uint32 {
	var held []uint32
	begun := uint64(0)
	for _, turn := range h {
		if turn.Position > begun {
			held = append(held, turn.Timeline)
		}
		begun = max(begun, turn.Position)
	}
	return append(held, timeline)
}
