package datavolume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
)

// FindRewindMark finds the mark of data that is being rewound, on the volume at dir:
// beside the data, where a rewind writes it, or inside data that a copy has replaced and
// that was put back. It is empty where the data is whole.
func FindRewindMark(dir string) (string, error) {
	for _, path := range []string{filepath.Join(dir, RewindName), filepath.Join(dir, DataName, RewindName)} {
		_, err := os.Lstat(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("look for the mark of a rewind: %w", err)
		}
	}
	return "", nil
}

// MoveRewindMark moves the mark into the data that was set aside for a copy: the copy is
// whole, and the data would not be if it was put back. There is no other data then.
func MoveRewindMark(dir string) error {
	mark := filepath.Join(dir, RewindName)
	if _, err := os.Lstat(mark); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	aside := DropName
	if !FindLeftovers(dir).Drop {
		aside = OldName
	}
	to := filepath.Join(dir, aside)
	if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) { // the marked data is gone
		return errors.Join(os.Remove(mark), atomicfile.SyncDir(dir))
	}
	if err := os.Rename(mark, filepath.Join(to, RewindName)); err != nil {
		return fmt.Errorf("move the mark of a rewind: %w", err)
	}
	return errors.Join(atomicfile.SyncDir(to), atomicfile.SyncDir(dir))
}
