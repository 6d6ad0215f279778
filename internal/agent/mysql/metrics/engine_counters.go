package metrics

import "github.com/holdfast-db/holdfast/internal/agent/metricfamily"

// engineCounters are those of InnoDB that no status variable has. The server counts them
// by default; one that a parameter has turned off is missing.
var engineCounters = []variable{
	{"lock_deadlocks", metricfamily.NewCounter("mysql_info_schema_innodb_metrics_lock_lock_deadlocks_total", "Deadlocks between transactions.")},
	{"lock_timeouts", metricfamily.NewCounter("mysql_info_schema_innodb_metrics_lock_lock_timeouts_total", "Waits for a row lock that took too long.")},
}
