package datavolume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
)

// LeaderRecord is what a volume records of its time as a primary's.
type LeaderRecord struct {
	// Term of the Lease when it last led, or was about to; 0 for never.
	Term int64 `json:"term,omitempty"`
	// Timeline that it began then; 0 of a record by an earlier version.
	Timeline int64 `json:"timeline,omitempty"`
}

// ReadLeader reads the record of the volume at dir; the zero value where there is none.
func ReadLeader(dir string) (LeaderRecord, error) {
	var r LeaderRecord
	_, err := atomicfile.ReadJSON(filepath.Join(dir, LeaderName), &r)
	return r, err
}

// WriteLeader replaces the record of the volume at dir.
func WriteLeader(dir string, r LeaderRecord) error {
	return atomicfile.WriteJSON(filepath.Join(dir, LeaderName), r)
}

// ForgetLeader removes the record of the volume at dir, before data takes the place of
// that which led. It needs no disk space.
func ForgetLeader(dir string) error {
	err := os.Remove(filepath.Join(dir, LeaderName))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err = errors.Join(err, atomicfile.SyncDir(dir)); err != nil {
		return fmt.Errorf("forget the term of the data before: %w", err)
	}
	return nil
}
