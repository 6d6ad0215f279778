package metrics

var (
	// UpMetric is 1 while the database answers queries.
	UpMetric = Gauge("pg_up", "Whether the database answers queries.")
)
