package postgres

import (
	"context"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// scrapeLimit bounds what a scrape may take: the part that is not answered by
// then is missing from it.
const scrapeLimit = 3 * time.Second

// family is a metric that the agent offers.
type family struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gauge(name, help string, labels ...string) family {
	return family{prometheus.NewDesc("holdfast_"+name, help, labels, nil), prometheus.GaugeValue}
}

func counter(name, help string, labels ...string) family {
	return family{prometheus.NewDesc("holdfast_"+name, help, labels, nil), prometheus.CounterValue}
}

// What the agent knows without asking the database.
var (
	upMetric          = gauge("pg_up", "Whether the database answers queries.")
	roleMetric        = gauge("pg_role", "The member's role: 1 for the one that it has.", "role")
	lagMetric         = gauge("pg_replication_lag_seconds", "Lag of a replica behind its primary; missing while it is unknown.")
	timelineMetric    = gauge("pg_timeline", "Timeline of the data.")
	pendingMetric     = gauge("pg_settings_pending_restart", "Settings that wait for a restart.")
	configErrorMetric = gauge("pg_config_error", "Whether the database refuses the declared parameters.")
	leaseMetric       = gauge("pg_lease_held", "Whether the member holds the primary's Lease.")
	expiryMetric      = gauge("certificate_expiry_timestamp_seconds", "When the first of the certificates expires that the member serves.")
	volumeSizeMetric  = gauge("volume_size_bytes", "Size of the member's volume.")
	volumeFreeMetric  = gauge("volume_available_bytes", "Space that is left on the member's volume.")
)

// query yields rows of label values, as text, followed by one number for each
// of its families.
type query struct {
	sql      string
	labels   int
	families []family
}

var queries = []query{
	{`select state, count(*)::float8 from (
		select coalesce(state, 'none') as state from pg_stat_activity where backend_type = 'client backend') s group by state`, 1,
		[]family{gauge("pg_connections", "Client connections by state.", "state")}},
	{`select current_setting('max_connections')::float8, extract(epoch from pg_postmaster_start_time())::float8`, 0,
		[]family{
			gauge("pg_max_connections", "Connections that the database admits."),
			gauge("pg_start_time_seconds", "When the database started."),
		}},
	{`select (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_flush_lsn() end - '0/0')::float8,
		coalesce((pg_last_wal_receive_lsn() - '0/0')::float8, 0)`, 0,
		[]family{
			counter("pg_wal_position_bytes", "Position in the write-ahead log: flushed by a primary, replayed by a replica."),
			counter("pg_wal_received_bytes", "Position in the write-ahead log that a replica has received; 0 on a primary."),
		}},
	{`select sum(size)::float8, count(*)::float8 from pg_ls_waldir()`, 0,
		[]family{
			gauge("pg_wal_size_bytes", "Size of the write-ahead log on the volume."),
			gauge("pg_wal_segments", "Files of the write-ahead log on the volume."),
		}},
	{`select slot_name, active::int::float8, coalesce(wal_status = 'lost', false)::int::float8,
		coalesce((case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end - restart_lsn)::float8, 0)
		from pg_replication_slots`, 1,
		[]family{
			gauge("pg_replication_slot_active", "Whether a replication slot is in use.", "slot"),
			gauge("pg_replication_slot_lost", "Whether a replication slot has lost what it needs.", "slot"),
			gauge("pg_replication_slot_retained_bytes", "Write-ahead log that a replication slot keeps.", "slot"),
		}},
	{`select application_name, coalesce((pg_current_wal_lsn() - replay_lsn)::float8, 0)
		from pg_stat_replication where not pg_is_in_recovery()`, 1,
		[]family{gauge("pg_replication_lag_bytes", "What a replica has not replayed yet, as its primary sees it.", "replica")}},
	{`select datname, pg_database_size(datname)::float8, xact_commit::float8, xact_rollback::float8,
		deadlocks::float8, temp_bytes::float8, blks_read::float8, blks_hit::float8
		from pg_stat_database where datname is not null and datname not in ('template0', 'template1')`, 1,
		[]family{
			gauge("pg_database_size_bytes", "Size of a database.", "database"),
			counter("pg_transactions_committed_total", "Transactions committed.", "database"),
			counter("pg_transactions_rolled_back_total", "Transactions rolled back.", "database"),
			counter("pg_deadlocks_total", "Deadlocks.", "database"),
			counter("pg_temporary_bytes_total", "Bytes written to temporary files.", "database"),
			counter("pg_blocks_read_total", "Blocks read from the volume or the machine's cache.", "database"),
			counter("pg_blocks_hit_total", "Blocks found in shared buffers.", "database"),
		}},
}

// collector answers a scrape from what is true at that moment.
type collector struct{ *agent }

func (a *agent) metricsHandler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{a}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2})
}

// Describe announces every family.
func (c collector) Describe(into chan<- *prometheus.Desc) {
	for _, f := range []family{upMetric, roleMetric, lagMetric, timelineMetric, pendingMetric,
		configErrorMetric, leaseMetric, expiryMetric, volumeSizeMetric, volumeFreeMetric} {
		into <- f.desc
	}
	for _, f := range archiveMetrics {
		into <- f.desc
	}
	for _, q := range queries {
		for _, f := range q.families {
			into <- f.desc
		}
	}
}

// Collect reports the member's status, and asks the database for the rest.
func (c collector) Collect(into chan<- prometheus.Metric) {
	status := c.Store.Get()
	send := func(f family, value float64, labels ...string) {
		into <- prometheus.MustNewConstMetric(f.desc, f.kind, value, labels...)
	}
	for _, role := range []string{v1alpha1.RolePrimary, v1alpha1.RoleReplica, v1alpha1.RoleMember} {
		send(roleMetric, truth(status.Role == role), role)
	}
	held, _ := c.lease.Held()
	send(leaseMetric, truth(held))
	send(timelineMetric, float64(status.Timeline))
	send(pendingMetric, float64(len(status.PendingRestart)))
	send(configErrorMetric, truth(status.ConfigError != ""))
	if status.Lag >= 0 {
		send(lagMetric, status.Lag)
	}
	if !status.CertificateExpiry.IsZero() {
		send(expiryMetric, float64(status.CertificateExpiry.Unix()))
	}
	if volume := c.space(); volume.Total > 0 {
		send(volumeSizeMetric, float64(volume.Total))
		send(volumeFreeMetric, float64(volume.Free))
	}
	for i, value := range c.archive.measure(time.Now()) {
		send(archiveMetrics[i], value)
	}
	send(upMetric, truth(status.Serving))
	if status.Serving {
		c.ask(send)
	}
}

func (c collector) ask(send func(family, float64, ...string)) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	for _, q := range queries {
		if err := c.scrape.do(ctx, q.run(send)); err != nil {
			c.log.Info("a scrape is incomplete", "error", err.Error())
			return
		}
	}
}

func (q query) run(send func(family, float64, ...string)) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, q.sql)
		if err != nil {
			return err
		}
		defer rows.Close()
		labels, values := make([]string, q.labels), make([]float64, len(q.families))
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
			for i, f := range q.families {
				send(f, values[i], labels...)
			}
		}
		return rows.Err()
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
