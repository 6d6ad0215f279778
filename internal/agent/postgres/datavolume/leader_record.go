package datavolume

import (
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
)

// LeaderRecord is what a volume records of its time as a primary's.
type LeaderRecord struct {
	// Term of the Lease when it last led; 0 for never.
	Term int64 `json:"term,omitempty"`
	// Reserved is the highest timeline that was reserved here.
	Reserved int64 `json:"reserved,omitempty"`
	// Pending is the timeline of a promotion that is not known to be complete;
	// 0 for none. Until it is, no start goes on with the timeline before.
	Pending int64 `json:"pending,omitempty"`
	// Request is the ID of the last request to go on with older data, and
	// Requested says that Pending is for it.
	Request   string `json:"request,omitempty"`
	Requested bool   `json:"requested,omitempty"`
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

// CompleteRecord is the record once pg_control says that the promotion is complete.
func (r LeaderRecord) CompleteRecord(control server.ControlData) LeaderRecord {
	if r.Pending > 0 && control.Timeline >= r.Pending {
		r.Pending, r.Requested = 0, false
	}
	return r
}
