package server

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/process"
)

// ControlData is what pg_control says of a data directory.
type ControlData struct {
	SystemIdentifier string
	// State such as "in production", "shut down", "in archive recovery".
	State string
	// Checkpoint is the position of the latest checkpoint: after a shutdown
	// in order, the last record.
	Checkpoint string
	Timeline   int64
	// Redo is the position that crash recovery begins at.
	Redo string
	// SegmentSize is that of WAL files, in bytes.
	SegmentSize int64
	// Recovery is how far a standby had to have replayed to be consistent,
	// and RecoveryTimeline where; 0/0 for a primary.
	Recovery         string
	RecoveryTimeline int64
	// WALLevel and CommitTimestamps are settings that recovery must not lower.
	WALLevel, CommitTimestamps string
	// Floors are the settings that a standby must have at least as large.
	Floors map[string]int64
}

// floorSettings by their label in pg_controldata.
var floorSettings = map[string]string{
	"max_connections setting":      "max_connections",
	"max_worker_processes setting": "max_worker_processes",
	"max_wal_senders setting":      "max_wal_senders",
	"max_prepared_xacts setting":   "max_prepared_transactions",
	"max_locks_per_xact setting":   "max_locks_per_transaction",
}

// ReadControlData runs pg_controldata on a data directory.
func (p Programs) ReadControlData(ctx context.Context, dir string) (ControlData, error) {
	out, err := p.Run(ctx, "pg_controldata", "-D", dir)
	if err != nil {
		return ControlData{}, err
	}
	return parseControlData(out)
}

func parseControlData(out string) (ControlData, error) {
	c := ControlData{Floors: map[string]int64{}}
	scanner := bufio.NewScanner(strings.NewReader(out))
	for scanner.Scan() {
		label, value, found := strings.Cut(scanner.Text(), ":")
		if !found {
			continue
		}
		value = strings.TrimSpace(value)
		c.setField(label, value)
		if name, ok := floorSettings[label]; ok {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return ControlData{}, fmt.Errorf("pg_control: %s is %q", label, value)
			}
			c.Floors[name] = n
		}
	}
	if c.SystemIdentifier == "" || len(c.Floors) != len(floorSettings) {
		return ControlData{}, fmt.Errorf("pg_controldata says something unknown: %s", process.LastLine(out))
	}
	return c, nil
}

// setField sets the field that a line of pg_controldata speaks of.
func (c *ControlData) setField(label, value string) {
	switch label {
	case "Database system identifier":
		c.SystemIdentifier = value
	case "Database cluster state":
		c.State = value
	case "Latest checkpoint location":
		c.Checkpoint = value
	case "Latest checkpoint's REDO location":
		c.Redo = value
	case "Bytes per WAL segment":
		c.SegmentSize, _ = strconv.ParseInt(value, 10, 64)
	case "Minimum recovery ending location":
		c.Recovery = value
	case "Min recovery ending loc's timeline":
		c.RecoveryTimeline, _ = strconv.ParseInt(value, 10, 64)
	case "wal_level setting":
		c.WALLevel = value
	case "track_commit_timestamp setting":
		c.CommitTimestamps = value
	case "Latest checkpoint's TimeLineID":
		c.Timeline, _ = strconv.ParseInt(value, 10, 64)
	}
}

// RaisesFloors says whether a setting that recovery must not lower is larger than
// it was.
func (c ControlData) RaisesFloors(before ControlData) bool {
	for name, floor := range c.Floors {
		if floor > before.Floors[name] {
			return true
		}
	}
	return false
}

// StateShutDown is pg_control's word for a shutdown in order.
const StateShutDown = "shut down"

// End is how far the data surely goes.
func (c ControlData) End() lsn.Point {
	end := lsn.Parse(c.Timeline, c.Checkpoint)
	if replayed := lsn.Parse(c.RecoveryTimeline, c.Recovery); replayed.Newer(end) {
		return replayed
	}
	return end
}
