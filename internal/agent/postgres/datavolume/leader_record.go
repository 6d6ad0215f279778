package datavolume

import (
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
