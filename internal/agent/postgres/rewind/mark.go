package rewind

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
)

// mark is the record on the volume of a rewind that is not complete.
type mark struct {
	// Started says that pg_rewind may have changed files. Before, the data is whole.
	Started bool `json:"started,omitempty"`
	// Held is what the volume held, and Fork where the primary's WAL left it.
	Held rolechange.HeldWAL `json:"held,omitzero"`
	Fork lsn.Point          `json:"fork,omitzero"`
	// Checkpoint and Timeline are pg_control's, which pg_rewind replaces last.
	Checkpoint string `json:"checkpoint,omitempty"`
	Timeline   int64  `json:"timeline,omitempty"`
	// Common is the last checkpoint before the fork, and Kept the name of the directory
	// with the WAL since then.
	Common lsn.Point `json:"common,omitzero"`
	Kept   string    `json:"kept,omitempty"`
}

// isUntouched says whether pg_control is what it was before pg_rewind began.
func (m mark) isUntouched(control server.ControlData) bool {
	return control.Checkpoint == m.Checkpoint && control.Timeline == m.Timeline
}

// IsInterrupted says whether the data on the volume at dir was being rewound, and may be
// neither one history nor the other: it is never started. It is rewound again, or another
// copy takes its place.
func IsInterrupted(dir string) (bool, error) {
	path, err := datavolume.FindRewindMark(dir)
	return path != "" || err != nil, err
}

func readMark(dir string) (m mark, found bool, err error) {
	path, err := datavolume.FindRewindMark(dir)
	if err != nil || path == "" {
		return mark{}, false, err
	}
	found, err = atomicfile.ReadJSON(path, &m)
	return m, found, err
}

func writeMark(dir string, m mark) error {
	return atomicfile.WriteJSON(filepath.Join(dir, datavolume.RewindName), m)
}

// removeMark takes in that the data is whole.
func removeMark(dir string) error {
	for _, at := range []string{dir, filepath.Join(dir, datavolume.DataName)} {
		err := os.Remove(filepath.Join(at, datavolume.RewindName))
		switch {
		case err == nil:
			err = atomicfile.SyncDir(at)
		case errors.Is(err, os.ErrNotExist):
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
