package mysql

import (
	"context"
	"database/sql"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

// scrapeLimit bounds what a scrape may take: what the server has not answered by then is
// missing from it.
const scrapeLimit = 3 * time.Second

func newGauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("holdfast_"+name, help, labels, nil)
}

func newCounter(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("holdfast_"+name, help, nil, nil)
}

var (
	upMetric          = newGauge("mysql_up", "Whether clients may be sent to the member.")
	roleMetric        = newGauge("mysql_role", "The member's role: 1 for the one that it has.", "role")
	stateMetric       = newGauge("mysql_member_state", "The state of the group's members as this member sees them: 1 for each.", "member", "state")
	majorityMetric    = newGauge("mysql_has_majority", "Whether the member is in a group and reaches a majority of it.")
	lagMetric         = newGauge("mysql_replication_lag_seconds", "How long the oldest transaction has waited that a replica has received and not applied; missing while it is unknown.")
	heldMetric        = newGauge("mysql_held", "Whether the agent does not let the data into the group.", "hold")
	pendingMetric     = newGauge("mysql_settings_pending_restart", "Settings that wait for a restart.")
	configErrorMetric = newGauge("mysql_config_error", "Whether MySQL refuses declared parameters.")
	sizeMetric        = newGauge("mysql_data_size_bytes", "Size of the data on the volume, without binlogs.")
	queueMetric       = newGauge("mysql_group_queue_transactions", "Transactions that wait in the member's queues.", "queue")
	conflictsMetric   = newGauge("mysql_group_conflicts", "Transactions that the group has refused for a conflict, since the server started.")
	connectionsMetric = newGauge("mysql_connections", "Connections of clients.")
	limitMetric       = newGauge("mysql_connections_limit", "Limit of the connections.")
	expiryMetric      = newGauge("certificate_expiry_timestamp_seconds", "When the member's certificate expires.")
	volumeSizeMetric  = newGauge("volume_size_bytes", "Size of the member's volume.")
	volumeFreeMetric  = newGauge("volume_available_bytes", "Free space on the member's volume.")

	archiveLagMetric       = newGauge("archive_lag_seconds", "How long the oldest binlog has waited for the store; 0 if none waits.")
	archiveWaitingMetric   = newGauge("archive_waiting_files", "Binlogs that wait for the store.")
	archiveGapMetric       = newGauge("archive_gap", "Whether the archive has a gap, now or as last recorded.")
	archiveArchivedMetric  = newCounter("archive_archived_total", "Binlogs that the store has accepted.")
	archiveFailuresMetric  = newCounter("archive_failures_total", "Failed attempts to archive.")
	archiveDiscardedMetric = newCounter("archive_discarded_total", "Binlogs that were discarded because the budget was used up.")
)

// collector answers a scrape from what the agent knows, and asks the server for the rest.
type collector struct {
	agent *mysqlAgent
	db    *sql.DB // nil where no session can be prepared
}

func newCollector(a *mysqlAgent) *collector {
	db, err := server.OpenSocket(a.o.socket())
	if err != nil {
		a.o.Log.Warn("metrics of the server are missing", "error", err.Error())
		return &collector{agent: a}
	}
	db.SetMaxOpenConns(1)
	return &collector{agent: a, db: db}
}

func (c *collector) close() {
	if c.db != nil {
		_ = c.db.Close()
	}
}

func (c *collector) handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2})
}

// Describe announces every metric.
func (c *collector) Describe(into chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{upMetric, roleMetric, stateMetric, majorityMetric, lagMetric, heldMetric, pendingMetric, configErrorMetric, sizeMetric,
		queueMetric, conflictsMetric, connectionsMetric, limitMetric, expiryMetric, volumeSizeMetric, volumeFreeMetric,
		archiveLagMetric, archiveWaitingMetric, archiveGapMetric, archiveArchivedMetric, archiveFailuresMetric, archiveDiscardedMetric} {
		into <- d
	}
}

type sendFunc func(d *prometheus.Desc, value float64, labels ...string)

// Collect reports the member's status, and what the server answers.
func (c *collector) Collect(into chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, value float64, labels ...string) {
		into <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	s := c.agent.Store.Get()
	report := readReport(s)
	send(upMetric, boolValue(s.Serving))
	for _, role := range []string{v1alpha1.RolePrimary, v1alpha1.RoleReplica, v1alpha1.RoleMember} {
		send(roleMetric, boolValue(s.Role == role), role)
	}
	for _, m := range report.View {
		send(stateMetric, 1, m.Address, m.State)
	}
	send(majorityMetric, boolValue(report.HasMajority()))
	if s.Lag >= 0 {
		send(lagMetric, s.Lag)
	}
	if s.Hold != "" {
		send(heldMetric, 1, string(s.Hold))
	}
	send(pendingMetric, float64(len(s.PendingRestart)))
	send(configErrorMetric, boolValue(s.ConfigError != ""))
	if s.DataSize > 0 {
		send(sizeMetric, float64(s.DataSize))
	}
	if !s.CertificateExpiry.IsZero() {
		send(expiryMetric, float64(s.CertificateExpiry.Unix()))
	}
	if space := c.agent.measureSpace(); space.Total > 0 {
		send(volumeSizeMetric, float64(space.Total))
		send(volumeFreeMetric, float64(space.Free))
	}
	c.sendArchive(into, send)
	if report.Phase == mysqlapi.PhaseInGroup && c.db != nil {
		c.askServer(report.ServerUUID, send)
	}
}

// sendArchive reports the archive, of a member that archives.
func (c *collector) sendArchive(into chan<- prometheus.Metric, send sendFunc) {
	status := c.agent.archiver.ReadStatus()
	if status == nil {
		return
	}
	lag := 0.0
	if !status.Oldest.IsZero() {
		lag = max(0, time.Since(status.Oldest).Seconds())
	}
	send(archiveLagMetric, lag)
	send(archiveWaitingMetric, float64(status.Waiting))
	send(archiveGapMetric, boolValue(status.Gap != nil))
	n := c.agent.archiver.ReadCounts()
	for metric, value := range map[*prometheus.Desc]float64{archiveArchivedMetric: n.Archived, archiveFailuresMetric: n.Failures, archiveDiscardedMetric: n.Discarded} {
		into <- prometheus.MustNewConstMetric(metric, prometheus.CounterValue, value)
	}
}

func (c *collector) askServer(uuid string, send sendFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	var certify, apply, conflicts, connections, limit float64
	err := c.db.QueryRowContext(ctx, `SELECT COUNT_TRANSACTIONS_IN_QUEUE, COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE, COUNT_CONFLICTS_DETECTED
		FROM performance_schema.replication_group_member_stats WHERE MEMBER_ID = ?`, uuid).Scan(&certify, &apply, &conflicts)
	if err == nil {
		send(queueMetric, certify, "certify")
		send(queueMetric, apply, "apply")
		send(conflictsMetric, conflicts)
		err = c.db.QueryRowContext(ctx, `SELECT VARIABLE_VALUE, @@GLOBAL.max_connections
			FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Threads_connected'`).Scan(&connections, &limit)
	}
	if err != nil {
		c.agent.o.Log.Info("a scrape is incomplete", "error", err.Error())
		return
	}
	send(connectionsMetric, connections)
	send(limitMetric, limit)
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
