// Package diskspace measures the space of a volume, and tries whether a file
// can grow.
package diskspace

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Space of a volume, in bytes. The zero value is unknown.
type Space struct{ Free, Total int64 }

// SpaceOf is the space of the file system that holds a directory. What only
// root may fill is not free.
func SpaceOf(dir string) Space {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return Space{}
	}
	return Space{Free: int64(s.Bavail) * s.Bsize, Total: int64(s.Blocks) * s.Bsize}
}

// Fits says whether so much is free. An unknown space has room: that it runs
// out is seen then.
func (s Space) Fits(size int64) bool { return s.Total == 0 || s.Free >= size }

// probeSize is how much is asked for: what a database extends a file by.
const probeSize = 1 << 20

// probeName is the file that disk space is asked for with.
const probeName = ".holdfast-space"

// AllocateIn says whether a file in a directory can grow: an error of the kind
// that OutOfSpace knows where it cannot. Nothing of it stays.
func AllocateIn(dir string) error {
	path := filepath.Join(dir, probeName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, probeSize)
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = f.Write(make([]byte, probeSize))
	}
	return errors.Join(err, f.Close(), os.Remove(path))
}

// OutOfSpace says whether an error is that a volume, or the share of it that one
// may use, is full.
func OutOfSpace(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
