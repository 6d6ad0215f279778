package datavolume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
)

// DivergedMark is the mark of data that holds what the primary does not.
type DivergedMark struct {
	// Own is how far the data went, and Primary how far the primary's did.
	Own     lsn.Point `json:"own"`
	Primary lsn.Point `json:"primary"`
	// Left is where the primary's history left Own's timeline; 0 where it did
	// not, or did not say. Differs says that the WAL before Own is not the
	// primary's.
	Left    uint64 `json:"left,omitempty"`
	Differs bool   `json:"differs,omitempty"`
}

// DescribeHold says why such data is held, and what to do about it.
func (m DivergedMark) DescribeHold() string {
	if m.Differs {
		return fmt.Sprintf("the WAL of this member, which went to %s, is not the primary's: its data may be the only newest copy, and is neither started nor copied over. "+
			"Save what it holds, then delete this member's volume and pod; or, if the primary has an older volume, put the newer one back and then remove %s from this volume", m.Own, DivergedMarkName)
	}
	return fmt.Sprintf("the data of this member went to %s when that of the primary went to %s: it may be the only newest copy, and is neither started nor copied over. "+
		"If the primary has an older volume, put the newer one back and then remove %s from this volume; or, to discard what the primary lacks, delete this member's volume and pod",
		m.Own, m.Primary, DivergedMarkName)
}

// WriteDivergedMark marks the data on the volume at dir once and for all.
func WriteDivergedMark(dir string, m DivergedMark) error {
	return atomicfile.WriteJSON(filepath.Join(dir, DivergedMarkName), m)
}

// ReadDivergedMark reads the mark; nil when there is none. One that cannot be read
// counts.
func ReadDivergedMark(dir string) (*DivergedMark, error) {
	data, err := os.ReadFile(filepath.Join(dir, DivergedMarkName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no mark is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read the mark of newer data: %w", err)
	}
	m := &DivergedMark{}
	_ = json.Unmarshal(data, m)
	return m, nil
}
