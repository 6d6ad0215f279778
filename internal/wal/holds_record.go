package wal

import (
	"errors"
	"io/fs"
)

// HoldsRecord says whether a pg_wal directory holds the complete record at a
// position of a timeline. No server may run there.
func HoldsRecord(dir string, timeline uint32, at uint64) (bool, error) {
	r, err := newRecordReader(dir, timeline)
	if err == nil {
		defer r.closeSegment()
		_, _, _, err = r.readRecord(at, predecessor{})
	}
	switch {
	case errors.Is(err, errEnd), errors.Is(err, errNoWAL), errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}
