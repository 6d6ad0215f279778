package wal

import (
	"encoding/binary"
	"errors"
	"hash"
	"slices"
)

// piece is a record that is being read, from page to page.
type piece struct {
	r         *recordReader
	before    predecessor
	start     uint64
	at, reach uint64
	header    []byte
	crc       hash.Hash32
}

// readRecord takes in the whole record, and checks it.
func (p *piece) readRecord() error {
	left, first := uint64(4), true
	var total uint64
	for left > 0 {
		if offset := p.at - p.r.at; offset >= uint64(p.r.block) {
			if err := p.turnPage(left); err != nil {
				return err
			}
		}
		offset := p.at - p.r.at
		n := min(uint64(p.r.block)-offset, left)
		if first {
			// The length never spans two pages.
			total = uint64(binary.NativeEndian.Uint32(p.r.page[offset:]))
			if total < recordHeader {
				return errEnd
			}
			left, first = total, false
			continue
		}
		p.addData(p.r.page[offset : offset+n])
		if len(p.header) == recordHeader {
			if err := p.checkPredecessor(); err != nil {
				return err
			}
		}
		left -= n
		p.at += n
	}
	p.crc.Write(p.header[:20]) //nolint:errcheck // it never fails
	if p.crc.Sum32() != binary.NativeEndian.Uint32(p.header[20:]) {
		return errEnd
	}
	return nil
}

// turnPage goes on to the next page, which must continue the record.
func (p *piece) turnPage(left uint64) error {
	next := p.r.at + uint64(p.r.block)
	p.reach = next
	if err := p.r.loadPage(next); err != nil {
		return err
	}
	switch info := pageInfo(p.r.page); {
	case info&pageOverwrites != 0:
		return errOverwritten
	case info&pageContinues == 0, uint64(binary.NativeEndian.Uint32(p.r.page[16:])) != left:
		return errEnd
	}
	p.at = next + headerOf(p.r.page)
	return nil
}

// addData keeps the header, and sums up the rest.
func (p *piece) addData(data []byte) {
	if missing := recordHeader - len(p.header); missing > 0 {
		n := min(missing, len(data))
		p.header = append(p.header, data[:n]...)
		data = data[n:]
	}
	p.crc.Write(data) //nolint:errcheck // it never fails
}

// checkPredecessor is errEnd where the header does not follow the record before.
func (p *piece) checkPredecessor() error {
	follows, err := p.r.follows(binary.NativeEndian.Uint64(p.header[8:]), p.before)
	if err == nil && !follows {
		err = errEnd
	}
	return err
}

// predecessor is what is known of the record before another one: where it starts, or
// only where it ends, or nothing at all.
type predecessor struct{ start, end uint64 }

// follows reports whether a record that names the start of the one before it follows
// that one. The pages of a segment that is used again hold records of earlier positions
// behind what was written last: they are complete, and name another one.
func (r *recordReader) follows(named uint64, before predecessor) (bool, error) {
	switch {
	case before.start != 0:
		return named == before.start, nil
	case before.end != 0 && named < before.end:
		return r.endsAt(named, before.end)
	default:
		return before.end == 0, nil
	}
}

// endsAt reports whether the directory holds a record between two positions, of the
// timeline or of one that it came from.
func (r *recordReader) endsAt(start, end uint64) (bool, error) {
	histories, err := ReadHistories(r.dir)
	if err != nil {
		return false, err
	}
	timelines := []uint32{r.timeline}
	for _, turn := range slices.Backward(FindHistory(histories, r.timeline)) {
		timelines = append(timelines, turn.Timeline)
	}
	for _, timeline := range timelines {
		other := recordReader{dir: r.dir, size: r.size, timeline: timeline, block: r.block}
		next, _, _, err := other.readRecord(start, predecessor{})
		other.closeSegment()
		if err == nil && next == end {
			return true, nil
		}
		if err != nil && !errors.Is(err, errEnd) {
			return false, err
		}
	}
	return false, nil
}
