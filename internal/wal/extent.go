package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Extent is how far the WAL in a directory goes.
type Extent struct {
	Timeline uint32
	// Position is the end of the last complete record.
	Position uint64
	// Reach is Position, or where the pages end that hold the beginning of one
	// more record: a server may have said of those that they are flushed.
	Reach uint64
}

// FindExtent follows the records in a pg_wal directory from one of them, such as
// the latest checkpoint, to the end of the last that is complete, and onto later
// timelines where the directory holds them. Timelines from before on do not
// count; 0 for all. No server may run there.
func FindExtent(dir string, timeline uint32, from uint64, before uint32) (Extent, error) {
	r, err := newRecordReader(dir, timeline)
	if err != nil {
		return Extent{}, err
	}
	defer r.closeSegment()
	end, err := r.followRecords(from)
	if err != nil {
		return Extent{}, err
	}
	if end.Position == from {
		return end, fmt.Errorf("the WAL in %s holds no record at %s of timeline %d", dir, FormatPosition(from), timeline)
	}
	return r.followChildren(from, end, before)
}

// FindEnd follows the records in a pg_wal directory from where one ends, such as
// the last that a server has replayed, to the end of the last complete one up to
// a position, by the way that goes furthest of a timeline and those after it. No
// server may write WAL there. Reach is behind half a record that follows it.
func FindEnd(dir string, timeline uint32, from, to uint64) (Extent, error) {
	histories, err := ReadHistories(dir)
	if err != nil {
		return Extent{}, err
	}
	var furthest Extent
	for _, way := range listWays(histories, timeline) {
		r, err := newRecordReader(dir, way)
		if err != nil {
			return Extent{}, err
		}
		r.to = to
		end, err := r.followRecords(from)
		if err == nil {
			end, err = r.followChildren(from, end, 0)
		}
		r.closeSegment()
		if err != nil {
			return Extent{}, err
		}
		if end.Position > furthest.Position || end.Position == furthest.Position && end.Reach > furthest.Reach {
			furthest = end
		}
	}
	return furthest, nil
}

// followChildren follows the newest timeline before a number that came from the
// one that was followed; before is 0 for any number.
func (r *recordReader) followChildren(from uint64, end Extent, before uint32) (Extent, error) {
	children, err := childTimelines(r.dir, end.Timeline, from, end.Position)
	if err != nil {
		return Extent{}, err
	}
	for _, child := range children {
		if before != 0 && child.Timeline >= before {
			continue
		}
		r.timeline = child.Timeline
		r.closeSegment()
		if later, err := r.followAfter(child.Position); err == nil && later.Position > child.Position {
			return later, nil
		}
	}
	return end, nil
}

// listWays lists a timeline and those after it.
func listWays(histories map[uint32]History, timeline uint32) []uint32 {
	found := []uint32{timeline}
	for later := range histories {
		if later > timeline {
			found = append(found, later)
		}
	}
	return found
}

// childTimelines are those in the directory that came from a timeline between
// two positions, with where they began, the newest first.
func childTimelines(dir string, timeline uint32, from, to uint64) ([]Turn, error) {
	histories, err := ReadHistories(dir)
	if err != nil {
		return nil, err
	}
	var found []Turn
	for child, history := range histories {
		for _, turn := range history {
			if turn.Timeline == timeline && turn.Position > from && turn.Position <= to {
				// The last turn is where the child itself begins.
				found = append(found, Turn{child, history[len(history)-1].Position})
			}
		}
	}
	slices.SortFunc(found, func(a, b Turn) int { return int(b.Timeline) - int(a.Timeline) })
	return found, nil
}

// ReadHistories reads the history files of a pg_wal directory, by timeline. One
// that cannot be read is there all the same, and empty: its number is taken.
func ReadHistories(dir string) (map[uint32]History, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	found := map[uint32]History{}
	for _, e := range entries {
		if !IsHistory(e.Name()) {
			continue
		}
		timeline, err := strconv.ParseUint(strings.TrimSuffix(e.Name(), ".history"), 16, 32)
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		history, _ := ParseHistory(data)
		found[uint32(timeline)] = history
	}
	return found, nil
}

// readSizes reads the sizes of the segments and pages in a pg_wal directory.
func readSizes(dir string) (segment, page int64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, 0, err
	}
	for _, e := range entries {
		if !IsSegment(e.Name()) {
			continue
		}
		file, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return 0, 0, err
		}
		header := make([]byte, longHeader)
		_, err = file.ReadAt(header, 0)
		_ = file.Close()
		segment, page = int64(binary.NativeEndian.Uint32(header[32:])), int64(binary.NativeEndian.Uint32(header[36:]))
		if err == nil && validSize(segment) && page >= 1<<10 && page <= 1<<16 && page&(page-1) == 0 {
			return segment, page, nil
		}
	}
	return 0, 0, fmt.Errorf("%s %w", dir, errNoWAL)
}

// errNoWAL says of a directory that no segment in it can be read.
var errNoWAL = errors.New("holds no WAL")

// What a page and a record look like; the same in PostgreSQL 14 to 18.
const (
	shortHeader, longHeader = 24, 40
	recordHeader            = 24

	pageContinues  = 0x0001 // the page begins with the rest of a record
	pageLong       = 0x0002
	pageOverwrites = 0x0008 // the record before was discarded where the page begins

	switchRecord = 0x40 // of resource manager 0: the rest of the segment is empty
)

// errEnd says that there is no page, or none that continues what came before.
var errEnd = errors.New("the WAL ends")

// recordReader reads the records of one timeline.
type recordReader struct {
	dir      string
	size     int64
	timeline uint32
	block    int64
	to       uint64 // what ends after it is not read; 0 for no limit

	file   *os.File
	number uint64
	page   []byte
	at     uint64 // of page
	magic  uint16
	system uint64
}

func newRecordReader(dir string, timeline uint32) (*recordReader, error) {
	size, page, err := readSizes(dir)
	if err != nil {
		return nil, err
	}
	return &recordReader{dir: dir, size: size, timeline: timeline, block: page}, nil
}

func (r *recordReader) closeSegment() {
	if r.file != nil {
		_ = r.file.Close()
	}
	r.file, r.page, r.magic = nil, nil, 0
}

// openSegment opens a segment, unless it is open; errEnd where there is none.
func (r *recordReader) openSegment(number uint64) error {
	if r.file != nil && number == r.number {
		return nil
	}
	if r.file != nil {
		_ = r.file.Close()
	}
	r.file = nil
	file, err := os.Open(filepath.Join(r.dir, Segment{r.timeline, number}.Name(r.size)))
	if errors.Is(err, os.ErrNotExist) {
		return errEnd
	}
	if err != nil {
		return err
	}
	r.file, r.number = file, number
	return nil
}

// loadPage reads the page at a position; errEnd where it is not one of this WAL.
func (r *recordReader) loadPage(at uint64) error {
	if err := r.openSegment(at / uint64(r.size)); err != nil {
		return err
	}
	page := make([]byte, r.block)
	_, err := r.file.ReadAt(page, int64(at%uint64(r.size))) //nolint:gosec // less than a segment
	if errors.Is(err, io.EOF) {
		return errEnd
	}
	if err != nil {
		return err
	}
	magic := binary.NativeEndian.Uint16(page)
	if magic == 0 || r.magic != 0 && magic != r.magic || binary.NativeEndian.Uint64(page[8:]) != at ||
		binary.NativeEndian.Uint32(page[4:]) > r.timeline {
		return errEnd
	}
	if long := pageInfo(page)&pageLong != 0; long != (at%uint64(r.size) == 0) {
		return errEnd
	} else if long {
		system := binary.NativeEndian.Uint64(page[24:])
		if r.system != 0 && system != r.system || int64(binary.NativeEndian.Uint32(page[32:])) != r.size || int64(binary.NativeEndian.Uint32(page[36:])) != r.block {
			return errEnd
		}
		r.system = system
	}
	r.page, r.at, r.magic = page, at, magic
	return nil
}

func pageInfo(page []byte) uint16 { return binary.NativeEndian.Uint16(page[2:]) }

func headerOf(page []byte) uint64 {
	if pageInfo(page)&pageLong != 0 {
		return longHeader
	}
	return shortHeader
}

// followRecords reads records from one on that is known to be there.
func (r *recordReader) followRecords(from uint64) (Extent, error) {
	return r.follow(from, predecessor{})
}

// followAfter reads the records behind one that ends at a position.
func (r *recordReader) followAfter(end uint64) (Extent, error) {
	return r.follow(end, predecessor{end: end})
}

func (r *recordReader) follow(from uint64, before predecessor) (Extent, error) {
	position := from
	for {
		next, start, reach, err := r.readRecord(position, before)
		if errors.Is(err, errEnd) || err == nil && r.to != 0 && next > r.to {
			return Extent{r.timeline, position, max(position, reach)}, nil
		}
		if err != nil {
			return Extent{}, err
		}
		position, before = next, predecessor{start: start}
	}
}

// readRecord reads one, and returns where it ends and where it begins. At errEnd,
// reach is where the pages of one end that is not complete.
func (r *recordReader) readRecord(at uint64, before predecessor) (next, start, reach uint64, err error) {
	block := uint64(r.block)
	page := at - at%block
	if r.page == nil || r.at != page {
		if err := r.loadPage(page); err != nil {
			return 0, 0, 0, err
		}
	}
	if start = at; at == page {
		start += headerOf(r.page)
		if pageInfo(r.page)&pageContinues != 0 {
			return 0, 0, 0, errEnd
		}
	}
	p := piece{r: r, at: start, crc: crc32.New(castagnoli), before: before, start: start}
	err = p.readRecord()
	if errors.Is(err, errOverwritten) {
		// What was begun was discarded, and the page goes on with another.
		return r.readRecord(r.at, before)
	}
	if err != nil {
		return 0, 0, p.reach, err
	}
	if p.header[17] == 0 && p.header[16]&0xf0 == switchRecord {
		size := uint64(r.size)
		return (p.at + size - 1) / size * size, start, 0, nil
	}
	return (p.at + 7) &^ 7, start, 0, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errOverwritten = errors.New("the record was discarded")
