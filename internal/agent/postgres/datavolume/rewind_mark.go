package datavolume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
)

// RewindStage is how far the rewind of a volume's data has come.
type RewindStage int

// The stages of a rewind, by its mark on the volume.
const (
	// RewindNone: the data is not being rewound.
	RewindNone RewindStage = iota
	// RewindPrepared: a rewind has begun and changed nothing. The data is whole, and may
	// lack the file that makes it a standby's.
	RewindPrepared
	// RewindStarted: the data may be neither one history nor the other. It is never
	// started: it is rewound again, or another copy takes its place.
	RewindStarted
	// RewindReplaying: the data is rewound, and becomes whole as soon as it has replayed
	// the primary's WAL up to a point. Until then it neither leads nor votes.
	RewindReplaying
)

// RewindProgress is how far the rewind of a volume's data has come.
type RewindProgress struct {
	Stage RewindStage
	// Consistent is the point that rewound data has to replay; zero before
	// RewindReplaying.
	Consistent lsn.Point
}

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
