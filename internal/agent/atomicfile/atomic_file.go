// Package atomicfile replaces and moves files so that a crash never leaves half
// of one.
package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// WriteFile replaces a file in one step, and leaves one alone that is the same.
// A process that dies leaves the old file or the new one. A machine that dies
// may leave an empty one: this is for files that are written anew at each start.
func WriteFile(path string, data []byte) error {
	return replaceFile(path, data, func(*os.File) error { return nil })
}

// WriteDurably replaces a file in one step, and leaves one alone that is the same. When it
// returns without an error the file is on the disk, also where an earlier write of the
// same failed at its end.
func WriteDurably(path string, data []byte) error {
	if err := replaceFile(path, data, (*os.File).Sync); err != nil {
		return err
	}
	if err := SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

// keepFile flushes a file that is not replaced.
func keepFile(path string, flush func(*os.File) error) error {
	file, err := os.Open(path)
	if err == nil {
		err = errors.Join(flush(file), file.Close())
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

// replaceFile flushes the new file before it gets the name: some file systems
// write a name before the bytes. The temporary file begins with a dot, so that
// on a volume it is never taken for data, and has one name, so that crashes leave
// no more than one.
func replaceFile(path string, data []byte, flush func(*os.File) error) error {
	if before, err := os.ReadFile(path); err == nil && bytes.Equal(before, data) {
		return keepFile(path, flush)
	}
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	file, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = file.Write(data)
		err = errors.Join(err, flush(file), file.Close())
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

// Move renames a finished directory into place, durably; never over anything.
func Move(from, to string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE); err != nil {
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
			return fmt.Errorf("rename %s to %s: %w", filepath.Base(from), filepath.Base(to), err)
		}
		// A file system without the flag: a plain rename refuses a directory
		// that is not empty.
		if err := os.Rename(from, to); err != nil {
			return err
		}
	}
	return SyncDir(filepath.Dir(to))
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return flushDir(d)
}

// flushDir is replaced by tests.
var flushDir = (*os.File).Sync
