package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Reserved is a file that can be replaced on a full volume. A second file beside it has
// disk space of the same size: what is written goes there in place, and then the two
// change their names in one step. The text is filled with spaces up to that size.
//
// A file system that writes each block to a new place needs space all the same.
type Reserved struct {
	// Path of the file, and Size in bytes of the longest text that needs no new space.
	Path string
	Size int
}

// spare is the second file. Its name begins with a dot, so that it is never taken for
// data.
func (r Reserved) spare() string {
	return filepath.Join(filepath.Dir(r.Path), "."+filepath.Base(r.Path)+".spare")
}

// Reserve takes the disk space for the second file, where it has not got it yet. The
// error is that of a full volume: what is written until another call may fail.
func (r Reserved) Reserve() error {
	if info, err := os.Stat(r.spare()); err == nil && info.Size() >= int64(r.Size) {
		return nil
	}
	if err := overwrite(r.spare(), r.fill(nil)); err != nil {
		return errors.Join(fmt.Errorf("reserve disk space for %s: %w", filepath.Base(r.Path), err), os.Remove(r.spare()))
	}
	return nil
}

// Write replaces the file in one step, and leaves one alone that has the same text. When
// it returns without an error, the file and its name are on the disk.
func (r Reserved) Write(data []byte) error {
	if before, err := os.ReadFile(r.Path); err == nil && bytes.Equal(bytes.TrimRight(before, " "), bytes.TrimRight(data, " ")) {
		if err := errors.Join(keepFile(r.Path, (*os.File).Sync), SyncDir(filepath.Dir(r.Path))); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Base(r.Path), err)
		}
		return nil
	}
	if len(data) > r.Size || r.Reserve() != nil {
		return WriteDurably(r.Path, r.fill(data))
	}
	if err := overwrite(r.spare(), r.fill(data)); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(r.Path), err)
	}
	err := unix.Renameat2(unix.AT_FDCWD, r.spare(), unix.AT_FDCWD, r.Path, unix.RENAME_EXCHANGE)
	if err != nil { // there is no file yet, or the file system cannot exchange names
		err = os.Rename(r.spare(), r.Path)
	}
	if err == nil {
		err = SyncDir(filepath.Dir(r.Path))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(r.Path), err)
	}
	_ = r.Reserve() // the file before may have been smaller
	return nil
}

func (r Reserved) fill(data []byte) []byte {
	return append(bytes.Clone(data), bytes.Repeat([]byte(" "), max(0, r.Size-len(data)))...)
}

// overwrite replaces the content of a file in place and flushes it.
func overwrite(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(data, 0)
	if err == nil {
		err = file.Truncate(int64(len(data)))
	}
	return errors.Join(err, file.Sync(), file.Close())
}
