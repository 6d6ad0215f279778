package postgres

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/archive"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/metrics"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
)

// scrapeLimit bounds what a scrape may take: the part that is not answered by
// then is missing from it.
const scrapeLimit = 3 * time.Second

// What the agent knows without asking the database.
var (
	roleMetric        = metrics.NewGauge("pg_role", "The member's role: 1 for the one that it has.", "role")
	lagMetric         = metrics.NewGauge("pg_replication_lag_seconds", "Lag of a replica behind its primary; missing while it is unknown.")
	timelineMetric    = metrics.NewGauge("pg_timeline", "Timeline of the data.")
	pendingMetric     = metrics.NewGauge("pg_settings_pending_restart", "Settings that wait for a restart.")
	configErrorMetric = metrics.NewGauge("pg_config_error", "Whether the database refuses the declared parameters.")
	leaseMetric       = metrics.NewGauge("pg_lease_held", "Whether the member holds the primary's Lease.")
	expiryMetric      = metrics.NewGauge("certificate_expiry_timestamp_seconds", "When the first of the member's certificates expires.")
	volumeSizeMetric  = metrics.NewGauge("volume_size_bytes", "Size of the member's volume.")
	rejoinMetric      = metrics.NewCounter("pg_rejoins_total", "How often the member's data was rewound, or copied again, since its agent started.", "by")
	volumeFreeMetric  = metrics.NewGauge("volume_available_bytes", "Free space on the member's volume.")
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
}

func (c collector) newHandler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2})
}

// Describe announces every family.
func (c collector) Describe(into chan<- *prometheus.Desc) {
	for _, f := range []metrics.Family{metrics.UpMetric, roleMetric, lagMetric, timelineMetric, pendingMetric,
		configErrorMetric, leaseMetric, expiryMetric, rejoinMetric, volumeSizeMetric, volumeFreeMetric} {
		into <- f.Desc
	}
	for _, f := range slices.Concat(archive.Families, metrics.ElectionFamilies) {
		into <- f.Desc
	}
	for _, q := range metrics.Queries {
		for _, f := range q.Families {
			into <- f.Desc
		}
	}
}

// Collect reports the member's status, and asks the database for the rest.
func (c collector) Collect(into chan<- prometheus.Metric) {
	status := c.store.Get()
	send := func(f metrics.Family, value float64, labels ...string) {
		into <- prometheus.MustNewConstMetric(f.Desc, f.Kind, value, labels...)
	}
	for _, role := range []string{v1alpha1.RolePrimary, v1alpha1.RoleReplica, v1alpha1.RoleMember} {
		send(roleMetric, metrics.BoolValue(status.Role == role), role)
	}
	send(leaseMetric, metrics.BoolValue(c.leads()))
	send(timelineMetric, float64(readReplication(status).Timeline))
	send(pendingMetric, float64(len(status.PendingRestart)))
	send(configErrorMetric, metrics.BoolValue(status.ConfigError != ""))
	send(rejoinMetric, float64(c.rejoin.rewound.Load()), "rewind")
	send(rejoinMetric, float64(c.rejoin.copied.Load()), "copy")
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
	for i, value := range c.archive.ReadMetrics(time.Now()) {
		send(archive.Families[i], value)
	}
	election := c.election()
	election.Hold = string(status.Hold)
	election.CollectElection(send)
	send(metrics.UpMetric, metrics.BoolValue(status.Serving))
	if status.Serving {
		c.askDatabase(send)
	}
}

func (c collector) askDatabase(send func(metrics.Family, float64, ...string)) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	for _, q := range metrics.Queries {
		if err := c.scrape.Do(ctx, q.CollectFamilies(send)); err != nil {
			c.log.Info("a scrape is incomplete", "error", err.Error())
			return
		}
	}
}
