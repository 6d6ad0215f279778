package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

const (
	// leaderName is the record of a volume that a primary ran on. It stands
	// beside the data: no copy of the data has it.
	leaderName = "leader.json"
)

// leaderRecord is what a volume records of its time as a primary's.
type leaderRecord struct {
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

// readLeader reads the record; the zero value where there is none.
func readLeader(dir string) (leaderRecord, error) {
	var r leaderRecord
	data, err := os.ReadFile(filepath.Join(dir, leaderName))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, fmt.Errorf("read %s: %w", leaderName, err)
	}
	return r, nil
}

func writeLeader(dir string, r leaderRecord) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.WriteDurably(filepath.Join(dir, leaderName), data)
}

// completeRecord is the record once pg_control says that the promotion is complete.
func (r leaderRecord) completeRecord(control server.ControlData) leaderRecord {
	if r.Pending > 0 && control.Timeline >= r.Pending {
		r.Pending, r.Requested = 0, false
	}
	return r
}

// nextTimeline is higher than any that was reserved, or that any member's data is
// on, as far as it is known here.
func nextTimeline(o observation, histories map[uint32]wal.History) int64 {
	highest := max(1, o.Lease.Timeline, o.Lease.Reserved, o.Leader.Reserved, o.Leader.Pending,
		o.Volume.Control.Timeline, o.Volume.Control.RecoveryTimeline, o.End.Timeline)
	for _, m := range o.Members {
		highest = max(highest, m.End.Timeline)
	}
	for timeline := range histories {
		highest = max(highest, int64(timeline))
	}
	return highest + 1
}

// reserveTimeline reserves a timeline, on the Lease and then on the volume,
// before anything is promoted to it. One that is not promoted to is never
// reserved again.
func (a *postgresAgent) reserveTimeline(ctx context.Context, o observation, p plan) (int64, error) {
	histories, err := wal.ReadHistories(filepath.Join(a.o.pgdataPath(), "pg_wal"))
	if err != nil {
		return 0, err
	}
	next := nextTimeline(o, histories)
	if o.isRecordLost() {
		// What was reserved before may be known to no one who answers.
		next += 16 + rand.Int64N(48) //nolint:gosec // it need not be secret
	}
	if err := a.lease.AnnotateLease(ctx, map[string]string{leaseclient.AnnotationReserved: strconv.FormatInt(next, 10)}); err != nil {
		return 0, err
	}
	record := o.Leader
	record.Term, record.Reserved, record.Pending = o.Lease.Term, next, next
	record.Requested = p.Request != "" || o.Leader.Pending > 0 && o.Leader.Requested
	if p.Request != "" {
		record.Request = p.Request
	}
	a.log.Warn("begins a timeline", "timeline", next, "reason", p.Message, "from", o.findEnd().String())
	return next, writeLeader(a.o.DataDir, record)
}

// recordTerm keeps on the volume under which term it leads.
func (a *postgresAgent) recordTerm(o observation) error {
	if o.Leader.Term == o.Lease.Term {
		return nil
	}
	record := o.Leader
	record.Term = o.Lease.Term
	return writeLeader(a.o.DataDir, record)
}

// prepareTimeline has the next start promote to the timeline that this life
// begins, and returns the settings for that.
func (l *life) prepareTimeline(ctx context.Context) (map[string]string, error) {
	if l.begins == 0 {
		return nil, nil
	}
	control, err := l.programs.ReadControlData(ctx, l.o.pgdataPath())
	if err != nil || control.Timeline >= l.begins {
		return nil, err
	}
	signal := filepath.Join(l.o.pgdataPath(), dataspace.RecoverySignal)
	if _, err := os.Stat(signal); err != nil && l.promoting {
		return nil, fmt.Errorf("the promotion to timeline %d was interrupted", l.begins)
	}
	if err := reserveHistories(filepath.Join(l.o.pgdataPath(), "pg_wal"), control.Timeline, l.begins); err != nil {
		return nil, err
	}
	if err := atomicfile.WriteDurably(signal, nil); err != nil {
		return nil, err
	}
	l.promoting = true
	return promotionSettings(), nil
}

// reserveHistories makes PostgreSQL choose a timeline: it takes the first that
// has no history file. The files stay, for a replica asks its primary for that
// of every timeline between its own and the primary's. They are never archived.
func reserveHistories(dir string, from, to int64) error {
	for timeline := from + 1; timeline < to; timeline++ {
		path := filepath.Join(dir, wal.HistoryName(uint32(timeline))) //nolint:gosec // PostgreSQL's are so long
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := atomicfile.WriteDurably(path, []byte("# reserved: this volume holds no data of this timeline\n")); err != nil {
			return err
		}
	}
	return nil
}

// promotionSettings recover all that is on the volume and nothing else, then
// promote, while no client can connect.
func promotionSettings() map[string]string {
	return map[string]string{
		"restore_command": "false", "archive_cleanup_command": "", "recovery_end_command": "",
		"recovery_target_timeline": "current", "recovery_target_action": "promote", "recovery_min_apply_delay": "0",
		"recovery_target": "", "recovery_target_lsn": "", "recovery_target_name": "", "recovery_target_time": "", "recovery_target_xid": "",
		"hot_standby": "off",
	}
}

// completeTimeline records that the promotion is complete. A server that chose
// another timeline than the reserved one is not left running.
func (l *life) completeTimeline(ctx context.Context) error {
	if l.begins == 0 {
		return nil
	}
	control, err := l.programs.ReadControlData(ctx, l.o.pgdataPath())
	if err != nil {
		return err
	}
	if control.Timeline != l.begins {
		return fmt.Errorf("PostgreSQL was promoted to timeline %d, and %d was reserved", control.Timeline, l.begins)
	}
	record, err := readLeader(l.o.DataDir)
	if err != nil {
		return err
	}
	l.control = control
	record = record.completeRecord(control)
	l.Store.Update(func(s *agentapi.Status) {
		changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.Timeline = control.Timeline })
	})
	l.Store.Update(reportRequest(record))
	return writeLeader(l.o.DataDir, record)
}
