package metrics

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/anomalies"
)

// signals are the columns of anomaly.PostgresSignals but the lag, which the agent measures
// itself; and when the server started, and whether a backup or a joining member copies.
const signals = `select d.*,
		(case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end - '0/0')::float8,
		a.*, extract(epoch from pg_postmaster_start_time())::float8, exists(select from pg_stat_progress_basebackup)
	from (select sum(xact_commit)::float8, sum(xact_rollback)::float8, sum(tup_returned + tup_fetched)::float8,
			sum(tup_inserted + tup_updated + tup_deleted)::float8, sum(blks_read)::float8, sum(temp_bytes)::float8
		from pg_stat_database) d,
		(select count(*)::float8, count(*) filter (where state = 'active')::float8, count(*) filter (where wait_event_type = 'Lock')::float8,
			coalesce(extract(epoch from max(clock_timestamp() - xact_start)), 0)::float8
		from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()) a`

// signalColumns is how many of them are signals.
const signalColumns = 11

// MeasureSignals asks a member for what is compared with what is usual.
func MeasureSignals(ctx context.Context, c *pgx.Conn, lag float64) (*anomalies.Sample, error) {
	s, columns := &anomalies.Sample{}, make([]*float64, signalColumns)
	var into []any
	for i := range columns {
		into = append(into, &columns[i])
	}
	if err := c.QueryRow(ctx, signals).Scan(append(into, &s.Started, &s.Copying)...); err != nil {
		return nil, fmt.Errorf("measure the signals: %w", err)
	}
	for _, value := range columns {
		if value == nil {
			s.Values = append(s.Values, math.NaN())
			continue
		}
		s.Values = append(s.Values, *value)
	}
	if lag < 0 {
		lag = math.NaN()
	}
	s.Values = append(s.Values, lag)
	return s, nil
}
