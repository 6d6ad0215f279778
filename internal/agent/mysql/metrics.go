package mysql

import (
	"context"
	"database/sql"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/metrics"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
)

// scrapeLimit bounds what a scrape may take: what the server has not answered by then is
// missing from it.
const scrapeLimit = 3 * time.Second

// What the agent knows without asking the server.
var (
	servingMetric     = metrics.NewGauge("mysql_serving", "Whether clients may be sent to the member.")
	roleMetric        = metrics.NewGauge("mysql_role", "The member's role: 1 for the one that it has.", "role")
	majorityMetric    = metrics.NewGauge("mysql_has_majority", "Whether the member is in a group and reaches a majority of it.")
	declaredMetric    = metrics.NewGauge("mysql_members_declared", "Members that the cluster has, as declared.")
	lagMetric         = metrics.NewGauge("mysql_replication_lag_seconds", "How long the oldest transaction has waited that a replica has received and not applied; missing while it is unknown.")
	heldMetric        = metrics.NewGauge("mysql_held", "Whether the agent does not let the data into the group.", "hold")
	pendingMetric     = metrics.NewGauge("mysql_settings_pending_restart", "Settings that wait for a restart.")
	configErrorMetric = metrics.NewGauge("mysql_config_error", "Whether MySQL refuses declared parameters.")
	sizeMetric        = metrics.NewGauge("mysql_data_size_bytes", "Size of the data on the volume, without binlogs.")
	copiesMetric      = metrics.NewCounter("mysql_data_copies_total", "Copies of another member's data that were put in place.")
	expiryMetric      = metrics.NewGauge("certificate_expiry_timestamp_seconds", "When the member's certificate expires.")
	volumeSizeMetric  = metrics.NewGauge("volume_size_bytes", "Size of the member's volume.")
	volumeFreeMetric  = metrics.NewGauge("volume_available_bytes", "Free space on the member's volume.")
)

// What the agent knows of the archive, of a member that archives.
var (
	archiveLagMetric       = metrics.NewGauge("archive_lag_seconds", "How long the oldest binlog has waited for the store; 0 if none waits.")
	archiveWaitingMetric   = metrics.NewGauge("archive_waiting_files", "Binlogs that wait for the store.")
	archiveGapMetric       = metrics.NewGauge("archive_gap", "Whether the archive has a gap, now or as last recorded.")
	archiveArchivedMetric  = metrics.NewCounter("archive_archived_total", "Binlogs that the store has accepted.")
	archiveFailuresMetric  = metrics.NewCounter("archive_failures_total", "Failed attempts to archive.")
	archiveDiscardedMetric = metrics.NewCounter("archive_discarded_total", "Binlogs that were discarded because the budget was used up.")
)

var memberFamilies = []metrics.Family{
	servingMetric, roleMetric, majorityMetric, declaredMetric, lagMetric, heldMetric, pendingMetric, configErrorMetric, sizeMetric, copiesMetric,
	expiryMetric, volumeSizeMetric, volumeFreeMetric,
	archiveLagMetric, archiveWaitingMetric, archiveGapMetric, archiveArchivedMetric, archiveFailuresMetric, archiveDiscardedMetric,
}

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
	families := slices.Concat(memberFamilies, []metrics.Family{metrics.UpMetric, metrics.ErrorMetric})
	for _, p := range metrics.Parts {
		families = append(families, p.Families...)
	}
	for _, f := range families {
		into <- f.Desc
	}
}

// Collect reports the member's status, and what the server answers.
func (c *collector) Collect(into chan<- prometheus.Metric) {
	send := func(f metrics.Family, value float64, labels ...string) {
		into <- prometheus.MustNewConstMetric(f.Desc, f.Kind, value, labels...)
	}
	c.sendStatus(send)
	if space := c.agent.measureSpace(); space.Total > 0 {
		send(volumeSizeMetric, float64(space.Total))
		send(volumeFreeMetric, float64(space.Free))
	}
	c.sendArchive(send)
	c.askServer(send)
}

// sendArchive reports the archive, of a member that archives.
func (c *collector) sendArchive(send metrics.Send) {
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
	send(archiveGapMetric, metrics.BoolValue(status.Gap != nil))
	n := c.agent.archiver.ReadCounts()
	send(archiveArchivedMetric, n.Archived)
	send(archiveFailuresMetric, n.Failures)
	send(archiveDiscardedMetric, n.Discarded)
}

func (c *collector) sendStatus(send metrics.Send) {
	s := c.agent.Store.Get()
	report := readReport(s)
	send(servingMetric, metrics.BoolValue(s.Serving))
	for _, role := range []string{v1alpha1.RolePrimary, v1alpha1.RoleReplica, v1alpha1.RoleMember} {
		send(roleMetric, metrics.BoolValue(s.Role == role), role)
	}
	send(majorityMetric, metrics.BoolValue(report.HasMajority()))
	if config := c.agent.currentConfig(); config != nil {
		send(declaredMetric, float64(len(config.Members)))
	}
	if s.Lag >= 0 {
		send(lagMetric, s.Lag)
	}
	if s.Hold != "" {
		send(heldMetric, 1, string(s.Hold))
	}
	send(pendingMetric, float64(len(s.PendingRestart)))
	send(configErrorMetric, metrics.BoolValue(s.ConfigError != ""))
	if s.DataSize > 0 {
		send(sizeMetric, float64(s.DataSize))
	}
	send(copiesMetric, float64(c.agent.copies.Load()))
	if !s.CertificateExpiry.IsZero() {
		send(expiryMetric, float64(s.CertificateExpiry.Unix()))
	}
}

// askServer asks a server that answers, in a group or not. A part that fails does not keep
// the others back.
func (c *collector) askServer(send metrics.Send) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	up := c.db != nil && c.db.PingContext(ctx) == nil
	send(metrics.UpMetric, metrics.BoolValue(up))
	if !up {
		return
	}
	for _, p := range metrics.Parts {
		err := p.Collect(ctx, c.db, send)
		if err != nil {
			c.agent.o.Log.Info("a scrape is incomplete", "part", p.Name, "error", err.Error())
		}
		send(metrics.ErrorMetric, metrics.BoolValue(err != nil), p.Name)
	}
}
