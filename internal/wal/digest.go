package wal

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// DigestRange computes the SHA-256, in hex, of the WAL from one position to another, as the
// way to a timeline has it in a pg_wal directory. The error is fs.ErrNotExist
// where the directory does not hold all of it.
func DigestRange(dir string, timeline uint32, from, to uint64) (string, error) {
	size, _, err := readSizes(dir)
	if err != nil {
		return "", err
	}
	histories, err := ReadHistories(dir)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for at := from; at < to; {
		segment := histories[timeline].SegmentAt(timeline, at/uint64(size), size)
		end := min((at/uint64(size)+1)*uint64(size), to)
		if err := digestPart(sum, filepath.Join(dir, segment.Name(size)), int64(at%uint64(size)), int64(end-at)); err != nil { //nolint:gosec // less than a segment
			return "", err
		}
		at = end
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func digestPart(to io.Writer, path string, from, length int64) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	n, err := io.Copy(to, io.NewSectionReader(file, from, length))
	if err == nil && n < length {
		err = fmt.Errorf("%s is too short: %w", path, os.ErrNotExist)
	}
	return err
}

// LastSegments is where the segment of a position begins in a pg_wal directory,
// and from where the directory holds what comes before: the segment before it,
// or the same one.
func LastSegments(dir string, timeline uint32, to uint64) (from, last uint64, err error) {
	size, _, err := readSizes(dir)
	if err != nil {
		return 0, 0, err
	}
	histories, err := ReadHistories(dir)
	if err != nil {
		return 0, 0, err
	}
	number := (max(to, 1) - 1) / uint64(size)
	from, last = number*uint64(size), number*uint64(size)
	if number > 0 {
		before := histories[timeline].SegmentAt(timeline, number-1, size)
		if _, err := os.Stat(filepath.Join(dir, before.Name(size))); err == nil {
			from -= uint64(size)
		}
	}
	return from, last, nil
}

// WayDigest is the digest of WAL as the way to a timeline has it.
type WayDigest struct {
	Timeline uint32
	Sum      string
}

// DigestWays computes those of the WAL from one position to another by every way that a
// pg_wal directory holds, of the timelines from one on.
func DigestWays(dir string, timeline uint32, from, to uint64) ([]WayDigest, error) {
	histories, err := ReadHistories(dir)
	if err != nil {
		return nil, err
	}
	var found []WayDigest
	for _, way := range listWays(histories, timeline) {
		sum, err := DigestRange(dir, way, from, to)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, WayDigest{way, sum})
	}
	return found, nil
}
