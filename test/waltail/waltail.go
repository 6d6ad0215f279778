// Package waltail takes the end of a server's WAL away, as storage does that loses what
// it had confirmed when the power goes.
package waltail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// segmentName is a timeline and two numbers of a position, eight digits each.
var segmentName = regexp.MustCompile(`^[0-9A-F]{24}$`)

// Drop zeroes a timeline's WAL in PGDATA from a position on, such as 0/3000148, and
// removes the segments after it. It returns how many bytes of segments that is, with
// what was allocated and not written yet. No server may run meanwhile.
func Drop(pgdata string, timeline int64, position string) (bytes int64, err error) {
	lsn, err := parsePosition(position)
	if err != nil {
		return 0, err
	}
	segments, err := listSegments(filepath.Join(pgdata, "pg_wal"), timeline)
	if err != nil {
		return 0, err
	}
	if !slices.ContainsFunc(segments, func(s segment) bool { return s.start <= lsn && lsn < s.start+s.size }) {
		return 0, fmt.Errorf("no segment of timeline %d in %s has position %s", timeline, pgdata, position)
	}
	var errs []error
	for _, s := range segments {
		switch {
		case s.start+s.size <= lsn: // all of it is before the position
		case s.start > lsn:
			bytes += s.size
			errs = append(errs, os.Remove(s.path))
		default:
			bytes += s.start + s.size - lsn
			errs = append(errs, zero(s.path, lsn-s.start, s.size))
		}
	}
	return bytes, errors.Join(errs...)
}

// segment of WAL: start is the position of its first byte.
type segment struct {
	path        string
	start, size int64
}

func listSegments(folder string, timeline int64) (segments []segment, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !segmentName.MatchString(e.Name()) || !strings.HasPrefix(e.Name(), fmt.Sprintf("%08X", timeline)) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		start, err := startOf(e.Name(), info.Size())
		if err != nil {
			return nil, err
		}
		segments = append(segments, segment{filepath.Join(folder, e.Name()), start, info.Size()})
	}
	return segments, nil
}

// parsePosition reads a position as PostgreSQL writes it.
func parsePosition(text string) (int64, error) {
	high, low, found := strings.Cut(text, "/")
	h, errHigh := strconv.ParseUint(high, 16, 32)
	l, errLow := strconv.ParseUint(low, 16, 32)
	if !found || errHigh != nil || errLow != nil || h > 1<<30 {
		return 0, fmt.Errorf("%q is no position in the WAL", text)
	}
	return int64(h<<32 | l), nil //nolint:gosec // below 2^62
}

// startOf a segment is its position by its name and size.
func startOf(name string, size int64) (int64, error) {
	high, errHigh := strconv.ParseInt(name[8:16], 16, 64)
	low, errLow := strconv.ParseInt(name[16:], 16, 64)
	if size <= 0 || errHigh != nil || errLow != nil {
		return 0, fmt.Errorf("segment %s of %d bytes", name, size)
	}
	return high<<32 + low*size, nil
}

func zero(path string, from, to int64) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(make([]byte, to-from), from)
	return errors.Join(err, file.Sync(), file.Close())
}
