package wal

import (
	"fmt"
	"strconv"
	"strings"
)

// Turn is where a timeline was left for the next one.
type Turn struct {
	Timeline uint32
	// Position in the WAL, in bytes.
	Position uint64
}

// History of a timeline: those that it came from, the oldest first.
type History []Turn

// ParseHistory reads a timeline's history file.
func ParseHistory(data []byte) (History, error) {
	var h History
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 2 {
			return nil, fmt.Errorf("a line of a history has no position: %q", line)
		}
		timeline, err := strconv.ParseUint(fields[0], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("a line of a history has no timeline: %q", line)
		}
		position, err := ParsePosition(fields[1])
		if err != nil {
			return nil, err
		}
		if len(h) > 0 && uint32(timeline) <= h[len(h)-1].Timeline {
			return nil, fmt.Errorf("the timelines of a history do not ascend: %q", line)
		}
		h = append(h, Turn{uint32(timeline), position})
	}
	// A recovery that ends before a turn that it knows of writes that one down
	// all the same: whatever was left later was left there already.
	for i := len(h) - 1; i > 0; i-- {
		h[i-1].Position = min(h[i-1].Position, h[i].Position)
	}
	return h, nil
}

// ParsePosition reads a position as PostgreSQL writes it, such as 0/5000028. It
// is stricter than pglogrepl.ParseLSN, which ignores text after a position and
// adds a lower half of more than 32 bits to the upper one: users write targets
// of recoveries by hand.
func ParsePosition(text string) (uint64, error) {
	high, low, found := strings.Cut(text, "/")
	h, err := strconv.ParseUint(high, 16, 32)
	l, lowErr := strconv.ParseUint(low, 16, 32)
	if !found || err != nil || lowErr != nil {
		return 0, fmt.Errorf("%q is no position in a log", text)
	}
	return h<<32 | l, nil
}

// SegmentAt is the segment of a number, on the way that the WAL took to a timeline
// with this history.
func (h History) SegmentAt(timeline uint32, number uint64, size int64) Segment {
	for _, t := range h {
		if number < t.Position/uint64(size) {
			return Segment{t.Timeline, number}
		}
	}
	return Segment{timeline, number}
}
