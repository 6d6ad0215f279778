package metrics

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
)

// MaxSeries bounds the series of a member, whatever its users create.
const MaxSeries = 400

// Query yields rows of label values, as text, followed by one number for each of its
// families. A number that is null is not sent.
type Query struct {
	Name     string
	Families []metricfamily.Family
	sql      string
	labels   int
	// from and until are the majors that have what is asked for; 0 for any.
	from, until int
}

// namedDatabases is a subquery: the oldest databases have their names, and the rest
// counts together, so that a thousand databases make no more series than ten.
const namedDatabases = `(select oid, case when row_number() over (order by oid) <= 9 then datname::text else 'other' end as datname
	from pg_database where datname <> 'template0') d`

// mostSlots are reported of a member: users make some, too.
const mostSlots = "12"

// mostStandbys are reported of a primary.
const mostStandbys = "12"

// queries are what a member asks its database for metrics. What postgres_exporter offers
// as well has its names and types.
var queries = []Query{
	{Name: "activity", labels: 2, sql: `select coalesce(d.datname, ''), coalesce(a.state, 'none'), count(*)::float8
		from pg_stat_activity a left join ` + namedDatabases + ` on d.oid = a.datid where a.backend_type = 'client backend' group by 1, 2`,
		Families: []metricfamily.Family{
			metricfamily.NewGauge("pg_stat_activity_count", "Client connections by database and state.", "datname", "state"),
		}},
	{Name: "server", sql: `select current_setting('max_connections')::float8, extract(epoch from pg_postmaster_start_time())::float8, pg_is_in_recovery()::int::float8`,
		Families: []metricfamily.Family{
			metricfamily.NewGauge("pg_settings_max_connections", "Connections that the database admits."),
			metricfamily.NewGauge("pg_postmaster_start_time_seconds", "When the database started."),
			metricfamily.NewGauge("pg_replication_is_replica", "Whether the database is in recovery, as a replica is."),
		}},
	{Name: "position", sql: `select (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_flush_lsn() end - '0/0')::float8,
		coalesce((pg_last_wal_receive_lsn() - '0/0')::float8, 0)`,
		Families: []metricfamily.Family{
			metricfamily.NewCounter("holdfast_pg_wal_position_bytes", "WAL position: flushed by a primary, replayed by a replica."),
			metricfamily.NewCounter("holdfast_pg_wal_received_bytes", "WAL position that a replica has received; 0 on a primary."),
		}},
	{Name: "wal", sql: `select sum(size)::float8, count(*)::float8 from pg_ls_waldir()`,
		Families: []metricfamily.Family{
			metricfamily.NewGauge("pg_wal_size_bytes", "Size of the WAL on the volume."),
			metricfamily.NewGauge("pg_wal_segments", "WAL files on the volume."),
		}},
	{Name: "slots", labels: 2, sql: `select slot_name::text, slot_type, active::int::float8, safe_wal_size::float8
		from pg_replication_slots order by slot_name limit ` + mostSlots,
		Families: []metricfamily.Family{
			metricfamily.NewGauge("pg_replication_slot_slot_is_active", "Whether a replication slot is in use.", "slot_name", "slot_type"),
			metricfamily.NewGauge("pg_replication_slot_safe_wal_size_bytes", "WAL that can be written before a replication slot may lose what it needs; missing where there is no limit.", "slot_name", "slot_type"),
		}},
	{Name: "slot_status", labels: 3, sql: `select slot_name::text, slot_type, wal_status, 1::float8
		from pg_replication_slots where wal_status is not null order by slot_name limit ` + mostSlots,
		Families: []metricfamily.Family{
			metricfamily.NewGauge("pg_replication_slot_wal_status", "State of the WAL that a replication slot needs: 1 for the one that it has.", "slot_name", "slot_type", "wal_status"),
		}},
	{Name: "slot_wal", labels: 1, sql: `select slot_name::text, (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end - restart_lsn)::float8
		from pg_replication_slots order by slot_name limit ` + mostSlots,
		Families: []metricfamily.Family{
			metricfamily.NewGauge("pg_replication_slots_pg_wal_lsn_diff", "WAL that a replication slot keeps, in bytes.", "slot_name"),
		}},
	// A name may be there twice while a replica connects again.
	{Name: "standbys", labels: 1, sql: `select regexp_replace(application_name, '_[A-Z2-7]{16}$', ''), max(coalesce((pg_current_wal_lsn() - replay_lsn)::float8, 0))
		from pg_stat_replication where not pg_is_in_recovery() group by 1 order by 1 limit ` + mostStandbys,
		Families: []metricfamily.Family{
			metricfamily.NewGauge("pg_stat_replication_pg_wal_lsn_diff", "WAL that a replica has not replayed yet, as its primary measures it, in bytes.", "application_name"),
		}},
	{Name: "synchronous", sql: `select count(*) filter (where state = 'streaming' and sync_state in ('sync', 'quorum'))::float8
		from pg_stat_replication having not pg_is_in_recovery()`,
		Families: []metricfamily.Family{
			metricfamily.NewGauge("holdfast_pg_synchronous_standbys_streaming", "Standbys that stream and whose flush a commit may wait for; only of a primary."),
		}},
	{Name: "databases", labels: 1, sql: `select d.datname, sum(pg_database_size(d.oid))::float8, ` + sumColumns(
		"numbackends", "xact_commit", "xact_rollback", "blks_read", "blks_hit", "tup_returned", "tup_fetched", "tup_inserted", "tup_updated", "tup_deleted",
		"conflicts", "temp_files", "temp_bytes", "deadlocks") + `
		from pg_stat_database s join ` + namedDatabases + ` on d.oid = s.datid where d.datname <> 'template1' group by 1`,
		Families: []metricfamily.Family{
			metricfamily.NewGauge("pg_database_size_bytes", "Size of a database.", "datname"),
			metricfamily.NewGauge("pg_stat_database_numbackends", "Sessions of a database.", "datname"),
			metricfamily.NewCounter("pg_stat_database_xact_commit", "Transactions committed.", "datname"),
			metricfamily.NewCounter("pg_stat_database_xact_rollback", "Transactions rolled back.", "datname"),
			metricfamily.NewCounter("pg_stat_database_blks_read", "Blocks read from the volume or the machine's cache.", "datname"),
			metricfamily.NewCounter("pg_stat_database_blks_hit", "Blocks found in shared buffers.", "datname"),
			metricfamily.NewCounter("pg_stat_database_tup_returned", "Rows that scans read.", "datname"),
			metricfamily.NewCounter("pg_stat_database_tup_fetched", "Rows that index scans fetched.", "datname"),
			metricfamily.NewCounter("pg_stat_database_tup_inserted", "Rows inserted.", "datname"),
			metricfamily.NewCounter("pg_stat_database_tup_updated", "Rows updated.", "datname"),
			metricfamily.NewCounter("pg_stat_database_tup_deleted", "Rows deleted.", "datname"),
			metricfamily.NewCounter("pg_stat_database_conflicts", "Statements of a replica that were canceled for what it replays.", "datname"),
			metricfamily.NewCounter("pg_stat_database_temp_files", "Temporary files.", "datname"),
			metricfamily.NewCounter("pg_stat_database_temp_bytes", "Bytes written to temporary files.", "datname"),
			metricfamily.NewCounter("pg_stat_database_deadlocks", "Deadlocks.", "datname"),
		}},
	{Name: "wraparound", labels: 1, sql: `select d.datname, max(age(p.datfrozenxid))::float8, max(mxid_age(p.datminmxid))::float8
		from pg_database p join ` + namedDatabases + ` on d.oid = p.oid group by 1`,
		Families: []metricfamily.Family{
			metricfamily.NewGauge("pg_database_wraparound_age_datfrozenxid_seconds", "Transactions since the oldest one that is not frozen. It is no time; the exporter's name says so.", "datname"),
			metricfamily.NewGauge("pg_database_wraparound_age_datminmxid_seconds", "Multitransactions since the oldest one that is not frozen. It is no time; the exporter's name says so.", "datname"),
		}},
	{Name: "checkpoints", until: 16, sql: `select checkpoints_timed::float8, checkpoints_req::float8, checkpoint_write_time, checkpoint_sync_time, buffers_checkpoint::float8 from pg_stat_bgwriter`,
		Families: []metricfamily.Family{
			metricfamily.NewCounter("pg_stat_bgwriter_checkpoints_timed_total", "Checkpoints that were due; up to PostgreSQL 16."),
			metricfamily.NewCounter("pg_stat_bgwriter_checkpoints_req_total", "Checkpoints that were requested, or forced by the amount of WAL; up to PostgreSQL 16."),
			metricfamily.NewCounter("pg_stat_bgwriter_checkpoint_write_time_total", "Milliseconds in which checkpoints wrote files; up to PostgreSQL 16."),
			metricfamily.NewCounter("pg_stat_bgwriter_checkpoint_sync_time_total", "Milliseconds in which checkpoints synced files; up to PostgreSQL 16."),
			metricfamily.NewCounter("pg_stat_bgwriter_buffers_checkpoint_total", "Buffers that checkpoints wrote; up to PostgreSQL 16."),
		}},
	{Name: "checkpoints", from: 17, sql: `select num_timed::float8, num_requested::float8, restartpoints_timed::float8, restartpoints_req::float8, restartpoints_done::float8,
		write_time, sync_time, buffers_written::float8 from pg_stat_checkpointer`,
		Families: []metricfamily.Family{
			metricfamily.NewCounter("pg_stat_checkpointer_num_timed_total", "Checkpoints that were due; from PostgreSQL 17."),
			metricfamily.NewCounter("pg_stat_checkpointer_num_requested_total", "Checkpoints that were requested, or forced by the amount of WAL; from PostgreSQL 17."),
			metricfamily.NewCounter("pg_stat_checkpointer_restartpoints_timed_total", "Restartpoints of a replica that were due; from PostgreSQL 17."),
			metricfamily.NewCounter("pg_stat_checkpointer_restartpoints_req_total", "Restartpoints of a replica that were requested; from PostgreSQL 17."),
			metricfamily.NewCounter("pg_stat_checkpointer_restartpoints_done_total", "Restartpoints of a replica that were made; from PostgreSQL 17."),
			metricfamily.NewCounter("pg_stat_checkpointer_write_time_total", "Milliseconds in which checkpoints wrote files; from PostgreSQL 17."),
			metricfamily.NewCounter("pg_stat_checkpointer_sync_time_total", "Milliseconds in which checkpoints synced files; from PostgreSQL 17."),
			metricfamily.NewCounter("pg_stat_checkpointer_buffers_written_total", "Buffers that checkpoints wrote; from PostgreSQL 17."),
		}},
}

// sumColumns sums columns of the databases that have one name.
func sumColumns(names ...string) string {
	var sums []string
	for _, name := range names {
		sums = append(sums, "sum(s."+name+")::float8")
	}
	return strings.Join(sums, ", ")
}

// Queries are those that a major of PostgreSQL answers.
func Queries(major int) []Query {
	var answered []Query
	for _, q := range queries {
		if (q.from == 0 || major >= q.from) && (q.until == 0 || major <= q.until) {
			answered = append(answered, q)
		}
	}
	return answered
}

// CollectFamilies returns what asks the database over a connection, and sends the answer.
func (q Query) CollectFamilies(send metricfamily.Send) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, q.sql)
		if err != nil {
			return err
		}
		defer rows.Close()
		labels, values := make([]string, q.labels), make([]*float64, len(q.Families))
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
				if values[i] != nil {
					send(f, *values[i], labels...)
				}
			}
		}
		return rows.Err()
	}
}
