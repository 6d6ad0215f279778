package metrics

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// query yields rows of label values, as text, followed by one number for each
// of its families.
type query struct {
	sql      string
	labels   int
	Families []Family
}

// Queries are what a member asks its database for metrics.
var Queries = []query{
	{`select state, count(*)::float8 from (
		select coalesce(state, 'none') as state from pg_stat_activity where backend_type = 'client backend') s group by state`, 1,
		[]Family{NewGauge("pg_connections", "Client connections by state.", "state")}},
	{`select current_setting('max_connections')::float8, extract(epoch from pg_postmaster_start_time())::float8`, 0,
		[]Family{
			NewGauge("pg_max_connections", "Connections that the database admits."),
			NewGauge("pg_start_time_seconds", "When the database started."),
		}},
	{`select (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_flush_lsn() end - '0/0')::float8,
		coalesce((pg_last_wal_receive_lsn() - '0/0')::float8, 0)`, 0,
		[]Family{
			NewCounter("pg_wal_position_bytes", "WAL position: flushed by a primary, replayed by a replica."),
			NewCounter("pg_wal_received_bytes", "WAL position that a replica has received; 0 on a primary."),
		}},
	{`select sum(size)::float8, count(*)::float8 from pg_ls_waldir()`, 0,
		[]Family{
			NewGauge("pg_wal_size_bytes", "Size of the WAL on the volume."),
			NewGauge("pg_wal_segments", "WAL files on the volume."),
		}},
	{`select slot_name, active::int::float8, coalesce(wal_status = 'lost', false)::int::float8,
		coalesce((case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end - restart_lsn)::float8, 0)
		from pg_replication_slots`, 1,
		[]Family{
			NewGauge("pg_replication_slot_active", "Whether a replication slot is in use.", "slot"),
			NewGauge("pg_replication_slot_lost", "Whether a replication slot has lost WAL that it needs.", "slot"),
			NewGauge("pg_replication_slot_retained_bytes", "WAL that a replication slot keeps, in bytes.", "slot"),
		}},
	{`select regexp_replace(application_name, '_[A-Z2-7]{16}$', ''), coalesce((pg_current_wal_lsn() - replay_lsn)::float8, 0)
		from pg_stat_replication where not pg_is_in_recovery()`, 1,
		[]Family{NewGauge("pg_replication_lag_bytes", "WAL that a replica has not replayed yet, as its primary measures it.", "replica")}},
	{`select count(*) filter (where state = 'streaming' and sync_state in ('sync', 'quorum'))::float8
		from pg_stat_replication having not pg_is_in_recovery()`, 0,
		[]Family{NewGauge("pg_synchronous_standbys_streaming", "Standbys that stream and whose flush a commit may wait for; only of a primary.")}},
	{`select datname, pg_database_size(datname)::float8, xact_commit::float8, xact_rollback::float8,
		deadlocks::float8, temp_bytes::float8, blks_read::float8, blks_hit::float8
		from pg_stat_database where datname is not null and datname not in ('template0', 'template1')`, 1,
		[]Family{
			NewGauge("pg_database_size_bytes", "Size of a database.", "database"),
			NewCounter("pg_transactions_committed_total", "Transactions committed.", "database"),
			NewCounter("pg_transactions_rolled_back_total", "Transactions rolled back.", "database"),
			NewCounter("pg_deadlocks_total", "Deadlocks.", "database"),
			NewCounter("pg_temporary_bytes_total", "Bytes written to temporary files.", "database"),
			NewCounter("pg_blocks_read_total", "Blocks read from the volume or the machine's cache.", "database"),
			NewCounter("pg_blocks_hit_total", "Blocks found in shared buffers.", "database"),
		}},
}

func (q query) CollectFamilies(send func(Family, float64, ...string)) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, q.sql)
		if err != nil {
			return err
		}
		defer rows.Close()
		labels, values := make([]string, q.labels), make([]float64, len(q.Families))
		var into []any
		for i := range labels {
			into = append(into, &labels[i])
		}
		for i := range values {
			into = append(into, &values[i])
		}
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				return err
			}
			for i, f := range q.Families {
				send(f, values[i], labels...)
			}
		}
		return rows.Err()
	}
}
