// Package wal keeps PostgreSQL's WAL in a store: where each of its
// files lies, that none is ever replaced, what is missing between them, and how
// a recovery reads them back. It also holds the two programs that PostgreSQL
// calls for that, which the agent and Jobs run.
package wal

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"

	"github.com/holdfast-db/holdfast/internal/logarchive"
)

// Segment is a file of the WAL.
type Segment struct {
	Timeline uint32
	// Number of the segment, from the beginning of the WAL.
	Number uint64
}

// perLog is how many segments make four gibibytes, after which their names
// count anew.
func perLog(size int64) uint64 { return uint64(1<<32) / uint64(size) }

// Name of a segment where all are so many bytes long.
func (s Segment) Name(size int64) string {
	return fmt.Sprintf("%08X%08X%08X", s.Timeline, s.Number/perLog(size), s.Number%perLog(size))
}

// ParseSegment reads the name of a segment.
func ParseSegment(name string, size int64) (Segment, bool) {
	if !segmentName.MatchString(name) || !validSize(size) {
		return Segment{}, false
	}
	var part [3]uint64
	for i := range part {
		part[i], _ = strconv.ParseUint(name[8*i:8*i+8], 16, 32)
	}
	if part[2] >= perLog(size) {
		return Segment{}, false
	}
	return Segment{uint32(part[0]), part[1]*perLog(size) + part[2]}, true
}

// validSize says whether PostgreSQL can have segments of a size.
func validSize(size int64) bool { return size >= 1<<20 && size <= 1<<30 && size&(size-1) == 0 }

// Names of what PostgreSQL archives. A backup's label is distinguished from a segment,
// too: a recovery asks for none.
var (
	segmentName = regexp.MustCompile(`^[0-9A-F]{24}$`)
	partialName = regexp.MustCompile(`^[0-9A-F]{24}\.partial$`)
	besideName  = regexp.MustCompile(`^[0-9A-F]{24}\.partial\.[0-9a-f]{16}$`)
	historyName = regexp.MustCompile(`^[0-9A-F]{8}\.history$`)
	labelName   = regexp.MustCompile(`^[0-9A-F]{24}\.[0-9A-F]{8}\.backup$`)
)

// IsSegment says whether a name is that of a whole segment.
func IsSegment(name string) bool { return segmentName.MatchString(name) }

// IsHistory says whether a name is that of a timeline's history.
func IsHistory(name string) bool { return historyName.MatchString(name) }

// HistoryName is the file that says where a timeline came from.
func HistoryName(timeline uint32) string { return fmt.Sprintf("%08X.history", timeline) }

// packedSuffix of objects that are compressed.
const packedSuffix = ".zst"

// objectKey says where a file lies, below the archive, and whether it is compressed
// there: texts, which people read, are not.
func objectKey(name string) (key string, packed bool, err error) {
	switch {
	case segmentName.MatchString(name), partialName.MatchString(name), besideName.MatchString(name):
		return name[:8] + "/" + name + packedSuffix, true, nil
	case historyName.MatchString(name), labelName.MatchString(name):
		return name[:8] + "/" + name, false, nil
	}
	return "", false, fmt.Errorf("%q is no WAL file", name)
}

// header is how the first page of a segment begins.
type header struct {
	Magic, Info      uint16
	Timeline         uint32
	Position         uint64
	Rest, _          uint32
	SystemIdentifier uint64
	SegmentSize      uint32
}

// checkHeader says whether a file is the segment of its name, of this database
// system: a file that was recycled bears the name of a later one.
func checkHeader(f *os.File, name, systemIdentifier string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	var h header
	if err := binary.Read(io.NewSectionReader(f, 0, 64), binary.NativeEndian, &h); err != nil {
		return &Refusal{Message: fmt.Sprintf("%s is too short to be a segment", name)}
	}
	s, ok := ParseSegment(name[:24], info.Size())
	if !ok || int64(h.SegmentSize) != info.Size() || h.Position != s.Number*uint64(info.Size()) {
		return &Refusal{Message: fmt.Sprintf("%s does not hold the segment that it is named after", name)}
	}
	if id := strconv.FormatUint(h.SystemIdentifier, 10); id != systemIdentifier {
		return &Refusal{Message: fmt.Sprintf("%s is of the database system %s, not of %s", name, id, systemIdentifier)}
	}
	return nil
}

// Refusal is an error that another try does not repair.
type Refusal = logarchive.Refusal
