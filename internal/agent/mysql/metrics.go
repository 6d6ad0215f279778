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
	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/metrics"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/statements"
)

// scrapeLimit bounds what a scrape may take: what the server has not answered by then is
// missing from it.
const scrapeLimit = 3 * time.Second

// What the agent knows without asking the server.
var (
	servingMetric     = metricfamily.NewGauge("holdfast_mysql_serving", "Whether clients may be sent to the member.")
	roleMetric        = metricfamily.NewGauge("holdfast_mysql_role", "The member's role: 1 for the one that it has.", "member_role")
	majorityMetric    = metricfamily.NewGauge("holdfast_mysql_has_majority", "Whether the member is in a group and reaches a majority of it.")
	declaredMetric    = metricfamily.NewGauge("holdfast_mysql_members_declared", "Members that the cluster has, as declared.")
	lagMetric         = metricfamily.NewGauge("holdfast_mysql_replication_lag_seconds", "How long the oldest transaction has waited that a replica has received and not applied; missing while it is unknown.")
	heldMetric        = metricfamily.NewGauge("holdfast_mysql_held", "Whether the agent does not let the data into the group.", "hold")
	pendingMetric     = metricfamily.NewGauge("holdfast_mysql_settings_pending_restart", "Settings that wait for a restart.")
	configErrorMetric = metricfamily.NewGauge("holdfast_mysql_config_error", "Whether MySQL refuses declared parameters.")
	sizeMetric        = metricfamily.NewGauge("holdfast_mysql_data_size_bytes", "Size of the data on the volume, without binlogs.")
	copiesMetric      = metricfamily.NewCounter("holdfast_mysql_data_copies_total", "Copies of another member's data that were put in place.")
)

var memberFamilies = append([]metricfamily.Family{
	servingMetric, roleMetric, majorityMetric, declaredMetric, lagMetric, heldMetric, pendingMetric, configErrorMetric, sizeMetric, copiesMetric,
	metricfamily.CertificateExpiry, metricfamily.VolumeSize, metricfamily.VolumeFree,
}, metricfamily.ArchiveFamilies...)

// collector answers a scrape from what the agent knows, and asks the server for the rest.
type collector struct {
	agent *mysqlAgent
	db    *sql.DB // nil where no session can be prepared
	// statements go on counting from one scrape to the next.
	statements metrics.Statements
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
	families := slices.Concat(memberFamilies, []metricfamily.Family{metrics.UpMetric, metrics.ErrorMetric})
	for _, p := range metrics.Parts {
		families = append(families, p.Families...)
	}
	metricfamily.Describe(into, append(families, metrics.StatementFamilies...)...)
}

// Collect reports the member's status, and what the server answers.
func (c *collector) Collect(into chan<- prometheus.Metric) {
	send, sent := metricfamily.CountSent(metricfamily.SendTo(into))
	c.sendStatus(send)
	if space := c.agent.measureSpace(); space.Total > 0 {
		send(metricfamily.VolumeSize, float64(space.Total))
		send(metricfamily.VolumeFree, float64(space.Free))
	}
	c.sendArchive(send)
	c.askServer(send, sent)
}

// sendArchive reports the archive, of a member that archives.
func (c *collector) sendArchive(send metricfamily.Send) {
	status := c.agent.archiver.ReadStatus()
	if status == nil {
		return
	}
	lag := 0.0
	if !status.Oldest.IsZero() {
		lag = max(0, time.Since(status.Oldest).Seconds())
	}
	send(metricfamily.ArchiveLag, lag)
	send(metricfamily.ArchiveWaiting, float64(status.Waiting))
	send(metricfamily.ArchiveGap, metricfamily.BoolValue(status.Gap != nil))
	n := c.agent.archiver.ReadCounts()
	send(metricfamily.ArchiveArchived, n.Archived)
	send(metricfamily.ArchiveFailures, n.Failures)
	send(metricfamily.ArchiveDiscarded, n.Discarded)
}

func (c *collector) sendStatus(send metricfamily.Send) {
	s := c.agent.Store.Get()
	report := readReport(s)
	send(servingMetric, metricfamily.BoolValue(s.Serving))
	for _, role := range []string{v1alpha1.RolePrimary, v1alpha1.RoleReplica, v1alpha1.RoleMember} {
		send(roleMetric, metricfamily.BoolValue(s.Role == role), role)
	}
	send(majorityMetric, metricfamily.BoolValue(report.HasMajority()))
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
	send(configErrorMetric, metricfamily.BoolValue(s.ConfigError != ""))
	if s.DataSize > 0 {
		send(sizeMetric, float64(s.DataSize))
	}
	send(copiesMetric, float64(c.agent.copies.Load()))
	if !s.CertificateExpiry.IsZero() {
		send(metricfamily.CertificateExpiry, float64(s.CertificateExpiry.Unix()))
	}
}

// askServer asks a server that answers, in a group or not. A part that fails does not keep
// the others back, nor does the last one while it is not answered. Statements have the series
// that all others leave.
func (c *collector) askServer(send metricfamily.Send, sent *int) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	up := c.db != nil && c.db.PingContext(ctx) == nil
	send(metrics.UpMetric, metricfamily.BoolValue(up))
	if !up {
		return
	}
	last := len(metrics.Parts) - 1
	for i, p := range metrics.Parts {
		if i == last {
			free := metrics.MaxSeries - metricfamily.OtherSeries - *sent - len(p.Families)
			c.reportPart(send, metrics.StatementsPart, c.statements.Collect(ctx, c.db, send, statements.Limit(free)))
		}
		c.reportPart(send, p.Name, p.Collect(ctx, c.db, send))
	}
}

func (c *collector) reportPart(send metricfamily.Send, part string, err error) {
	if err != nil {
		c.agent.o.Log.Info("a scrape is incomplete", "part", part, "error", err.Error())
	}
	send(metrics.ErrorMetric, metricfamily.BoolValue(err != nil), part)
}
