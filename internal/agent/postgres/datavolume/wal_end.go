package datavolume

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// WALMeter finds out how far the WAL goes of data that does not run, once for every
// run of it. It serves one goroutine.
type WALMeter struct {
	pgdata string
	key    string
	end    lsn.Extent
}

// NewWALMeter is for a data directory.
func NewWALMeter(pgdata string) *WALMeter { return &WALMeter{pgdata: pgdata} }

// ForgetEnd has the next measurement read the WAL again: the database ran, or is about
// to.
func (m *WALMeter) ForgetEnd() { m.key, m.end = "", lsn.Extent{} }

// MeasureEnd finds where the WAL on the volume ends; timelines from before on do not
// count, unless that is 0.
func (m *WALMeter) MeasureEnd(control server.ControlData, before int64) (lsn.Extent, error) {
	key := strings.Join([]string{control.SystemIdentifier, control.State, control.Checkpoint, strconv.FormatInt(control.Timeline, 10), strconv.FormatInt(before, 10)}, " ")
	if m.key == key {
		return m.end, nil
	}
	from, err := wal.ParsePosition(control.Checkpoint)
	if err != nil {
		return lsn.Extent{}, err
	}
	found, err := wal.FindExtent(filepath.Join(m.pgdata, "pg_wal"), uint32(control.Timeline), from, uint32(before)) //nolint:gosec // PostgreSQL's are so long
	if err != nil {
		return lsn.Extent{}, fmt.Errorf("find where the WAL ends: %w", err)
	}
	m.key, m.end = key, lsn.Extent{Point: lsn.Point{Timeline: int64(found.Timeline), Position: found.Position}, Reach: found.Reach}
	return m.end, nil
}
