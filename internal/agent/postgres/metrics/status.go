package metrics

var (
	// UpMetric is 1 while the database answers queries.
	UpMetric = NewGauge("pg_up", "Whether the database answers queries.")
)
