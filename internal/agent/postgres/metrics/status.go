package metrics

import "github.com/holdfast-db/holdfast/internal/agent/metricfamily"

var (
	// UpMetric is 1 while the database answers queries.
	UpMetric = metricfamily.NewGauge("pg_up", "Whether the database answers queries.")
	// ErrorMetric says of each query of a scrape whether its answer is missing.
	ErrorMetric = metricfamily.NewGauge("holdfast_pg_scrape_error", "Whether the database has not answered a part of the scrape, whose metrics are missing; itself missing while pg_up is 0.", "part")
	// LoginFailuresMetric counts what LoginFailures has heard.
	LoginFailuresMetric = metricfamily.NewCounter("holdfast_pg_login_failures_total", "Connections that the database refused because their login failed, since its agent started.")
)
