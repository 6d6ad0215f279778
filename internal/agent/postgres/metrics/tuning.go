package metrics

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agent/tuning"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// tuningCounters are columns of one row, in the order of tuningNames, and three of
// checkpointSample. WAL requests a checkpoint after half of max_wal_size at the earliest, of
// which a segment is lost to rounding, and another one since only whole segments count.
// The agent's own transactions are in its database, and are no load. A session that reads no
// table reports nothing, and its time only once it ends: load is counted in transactions.
const tuningCounters = `select d.*, w.wal_bytes::float8, c.requested, c.timed, k.* from (
	select sum(blks_read)::float8, sum(blks_hit)::float8, sum(temp_files)::float8, sum(temp_bytes)::float8,
		coalesce(sum(xact_commit + xact_rollback) filter (where datname <> '` + settings.AgentDatabase + `'), 0)::float8 from pg_stat_database) d, pg_stat_wal w,
	(select %s::float8 as requested, %s::float8 as timed from %s) c,
	(select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8, pg_wal_lsn_diff(redo_lsn, '0/0')::float8,
		(pg_size_bytes(current_setting('max_wal_size')) / 2 - 2 * pg_size_bytes(current_setting('wal_segment_size')))::float8 from pg_control_checkpoint()) k`

var tuningNames = []string{
	agentapi.TuningBlocksRead, agentapi.TuningBlocksHit, agentapi.TuningTempFiles, agentapi.TuningTempBytes, agentapi.TuningTransactions,
	agentapi.TuningWALBytes, agentapi.TuningCheckpointsRequested, agentapi.TuningCheckpointsTimed,
}

// tuningLevels are client connections and the size of all data.
const tuningLevels = `select
	(select count(*)::float8 from pg_stat_activity where backend_type = 'client backend'),
	(select sum(pg_database_size(oid))::float8 from pg_database)`

// tuningSettings are names and values, sizes in bytes.
const tuningSettings = `select name, case
		when unit in ('B', 'kB', '8kB', 'MB') then pg_size_bytes(current_setting(name))::float8
		else setting::float8 end
	from pg_settings where name in ('max_wal_size', 'work_mem', 'shared_buffers', 'maintenance_work_mem', 'autovacuum_max_workers')`

// MeasureTuning asks a primary for what recommendations about its settings rest on.
func MeasureTuning(ctx context.Context, c *pgx.Conn, major int, asked *AskedCheckpoints) (*tuning.Sample, error) {
	s := &tuning.Sample{Counters: map[string]float64{}, Levels: map[string]float64{}, Settings: map[string]float64{}}
	checkpoints := []any{"checkpoints_req", "checkpoints_timed", "pg_stat_bgwriter"}
	if major >= 17 {
		checkpoints = []any{"num_requested", "num_timed", "pg_stat_checkpointer"}
	}
	values, into := make([]float64, len(tuningNames)), make([]any, len(tuningNames))
	for i := range values {
		into[i] = &values[i]
	}
	var now checkpointSample
	into = append(into, &now.at, &now.redo, &now.least)
	if err := c.QueryRow(ctx, fmt.Sprintf(tuningCounters, checkpoints...)).Scan(into...); err != nil {
		return nil, fmt.Errorf("read the counters: %w", err)
	}
	for i, name := range tuningNames {
		s.Counters[name] = values[i]
	}
	now.requested, now.timed = s.Counters[agentapi.TuningCheckpointsRequested], s.Counters[agentapi.TuningCheckpointsTimed]
	s.Counters[agentapi.TuningCheckpointsAsked] = asked.Count(now)
	var connections, size float64
	if err := c.QueryRow(ctx, tuningLevels).Scan(&connections, &size); err != nil {
		return nil, fmt.Errorf("read the levels: %w", err)
	}
	s.Levels[agentapi.TuningConnections], s.Levels[agentapi.TuningDataSize] = connections, size
	rows, err := c.Query(ctx, tuningSettings)
	if err != nil {
		return nil, fmt.Errorf("read the settings: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var value float64
		if err := rows.Scan(&name, &value); err != nil {
			return nil, fmt.Errorf("read the settings: %w", err)
		}
		s.Settings[name] = value
	}
	return s, rows.Err()
}
