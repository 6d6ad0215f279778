package postgres

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/archive"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/metrics"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/statements"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
)

// scrapeLimit bounds what a scrape may take: the part that is not answered by
// then is missing from it.
const scrapeLimit = 3 * time.Second

// What the agent knows without asking the database.
var (
	roleMetric        = metricfamily.NewGauge("holdfast_pg_role", "The member's role: 1 for the one that it has.", "member_role")
	lagMetric         = metricfamily.NewGauge("holdfast_pg_replication_lag_seconds", "Lag of a replica behind its primary; missing while it is unknown.")
	timelineMetric    = metricfamily.NewGauge("holdfast_pg_timeline", "Timeline of the data.")
	pendingMetric     = metricfamily.NewGauge("holdfast_pg_settings_pending_restart", "Settings that wait for a restart.")
	configErrorMetric = metricfamily.NewGauge("holdfast_pg_config_error", "Whether the database refuses the declared parameters.")
	leaseMetric       = metricfamily.NewGauge("holdfast_pg_lease_held", "Whether the member holds the primary's Lease.")
	rejoinMetric      = metricfamily.NewCounter("holdfast_pg_rejoins_total", "How often the member's data was rewound, or copied again, since its agent started.", "by")
)

// collector answers a scrape from what is true at that moment.
type collector struct {
	log   *slog.Logger
	store *statusserver.Store
	leads func() bool
	// election is the member's part in it, without its hold.
	election func() metrics.Election
	space    func() diskspace.Space
	archive  *archive.Archiver
	scrape   *server.Session
	rejoin   *rejoin
	logins   *metrics.LoginFailures
	// statements go on counting from one scrape to the next.
	statements *metrics.Statements
	// major of the database.
	major int
}

func (c collector) newHandler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2})
}

// Describe announces every family.
func (c collector) Describe(into chan<- *prometheus.Desc) {
	metricfamily.Describe(into, metrics.UpMetric, metrics.ErrorMetric, metrics.LoginFailuresMetric, roleMetric, lagMetric, timelineMetric, pendingMetric,
		configErrorMetric, leaseMetric, rejoinMetric, metricfamily.CertificateExpiry, metricfamily.VolumeSize, metricfamily.VolumeFree)
	metricfamily.Describe(into, slices.Concat(metricfamily.ArchiveFamilies, metrics.ElectionFamilies, metrics.StatementFamilies)...)
	for _, q := range metrics.Queries(c.major) {
		metricfamily.Describe(into, q.Families...)
	}
}

// Collect reports the member's status, and asks the database for the rest.
func (c collector) Collect(into chan<- prometheus.Metric) {
	status := c.store.Get()
	send, sent := metricfamily.CountSent(metricfamily.SendTo(into))
	for _, role := range []string{v1alpha1.RolePrimary, v1alpha1.RoleReplica, v1alpha1.RoleMember} {
		send(roleMetric, metricfamily.BoolValue(status.Role == role), role)
	}
	send(leaseMetric, metricfamily.BoolValue(c.leads()))
	send(timelineMetric, float64(readReplication(status).Timeline))
	send(pendingMetric, float64(len(status.PendingRestart)))
	send(configErrorMetric, metricfamily.BoolValue(status.ConfigError != ""))
	send(rejoinMetric, float64(c.rejoin.rewound.Load()), "rewind")
	send(rejoinMetric, float64(c.rejoin.copied.Load()), "copy")
	if status.Lag >= 0 {
		send(lagMetric, status.Lag)
	}
	if !status.CertificateExpiry.IsZero() {
		send(metricfamily.CertificateExpiry, float64(status.CertificateExpiry.Unix()))
	}
	if volume := c.space(); volume.Total > 0 {
		send(metricfamily.VolumeSize, float64(volume.Total))
		send(metricfamily.VolumeFree, float64(volume.Free))
	}
	for i, value := range c.archive.ReadMetrics(time.Now()) {
		send(metricfamily.ArchiveFamilies[i], value)
	}
	election := c.election()
	election.Hold = string(status.Hold)
	election.CollectElection(send)
	send(metrics.LoginFailuresMetric, float64(c.logins.Count()))
	send(metrics.UpMetric, metricfamily.BoolValue(status.Serving))
	if status.Serving {
		c.askDatabase(send, sent)
	}
}

// askDatabase asks for one part after the other. One that fails does not keep the others
// back. Statements are last: they have the series that the others leave.
func (c collector) askDatabase(send metricfamily.Send, sent *int) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	for _, q := range metrics.Queries(c.major) {
		c.askPart(ctx, send, q.Name, q.CollectFamilies(send))
	}
	free := metrics.MaxSeries - metricfamily.OtherSeries - *sent
	c.askPart(ctx, send, metrics.StatementsPart, c.statements.CollectFamilies(send, statements.Limit(free)))
}

func (c collector) askPart(ctx context.Context, send metricfamily.Send, part string, ask func(context.Context, *pgx.Conn) error) {
	err := c.scrape.Do(ctx, ask)
	if err != nil {
		c.log.Info("a scrape is incomplete", "part", part, "error", err.Error())
	}
	send(metrics.ErrorMetric, metricfamily.BoolValue(err != nil), part)
}
