package leadership

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// Promotion is the beginning of a reserved timeline by the start of a server. It is
// prepared before each attempt to start one, and completed when that answers.
type Promotion struct {
	l        *Leadership
	programs server.Programs
	// begins is the timeline that the run begins, 0 for none; asked says that the
	// server was asked to.
	begins int64
	asked  bool
}

// NewPromotion is to a timeline that was reserved; to 0, it is none.
func (l *Leadership) NewPromotion(programs server.Programs, begins int64) *Promotion {
	return &Promotion{l: l, programs: programs, begins: begins}
}

// PrepareTimeline has the next start promote to the timeline, and returns the settings
// for that; nil for none.
func (p *Promotion) PrepareTimeline(ctx context.Context) (map[string]string, error) {
	if p.begins == 0 {
		return nil, nil
	}
	pgdata := p.l.o.PGData
	control, err := p.programs.ReadControlData(ctx, pgdata)
	if err != nil || control.Timeline >= p.begins {
		return nil, err
	}
	signal := filepath.Join(pgdata, dataspace.RecoverySignal)
	if _, err := os.Stat(signal); err != nil && p.asked {
		return nil, fmt.Errorf("the promotion to timeline %d was interrupted", p.begins)
	}
	if err := reserveHistories(filepath.Join(pgdata, "pg_wal"), control.Timeline, p.begins); err != nil {
		return nil, err
	}
	if err := atomicfile.WriteDurably(signal, nil); err != nil {
		return nil, err
	}
	p.asked = true
	return promotionSettings(), nil
}

// CompleteTimeline records that the promotion is complete. It fails for a server that
// chose another timeline than the reserved one, which must not be left running.
func (p *Promotion) CompleteTimeline(ctx context.Context) error {
	if p.begins == 0 {
		return nil
	}
	control, err := p.programs.ReadControlData(ctx, p.l.o.PGData)
	if err != nil {
		return err
	}
	if control.Timeline != p.begins {
		return fmt.Errorf("PostgreSQL was promoted to timeline %d, and %d was reserved", control.Timeline, p.begins)
	}
	record, err := datavolume.ReadLeader(p.l.o.Volume)
	if err != nil {
		return err
	}
	record = record.CompleteRecord(control)
	p.l.o.Store.Update(func(s *agentapi.Status) {
		agentapi.ChangeEngineStatus(s, func(r *postgresapi.ReplicationStatus) { r.Timeline = control.Timeline })
	})
	p.l.o.Store.Update(reportRequest(record))
	return datavolume.WriteLeader(p.l.o.Volume, record)
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
