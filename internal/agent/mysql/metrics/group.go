package metrics

import "github.com/holdfast-db/holdfast/internal/agent/metricfamily"

// largestGroup is how many members a group may have.
const largestGroup = 9

// memberMetric has a label for each of memberColumns, by its name in lower case.
var (
	memberMetric = metricfamily.NewGauge("mysql_perf_schema_replication_group_member_info", "The group's members as this member sees them: 1 for each.",
		"channel_name", "member_id", "member_host", "member_port", "member_state", "member_role", "member_version", "member_communication_stack")
	memberColumns = []string{
		"CHANNEL_NAME", "MEMBER_ID", "MEMBER_HOST", "MEMBER_PORT", "MEMBER_STATE", "MEMBER_ROLE", "MEMBER_VERSION", "MEMBER_COMMUNICATION_STACK",
	}
)

// statisticsColumns are those of this member's row, each with a family.
var statisticsColumns = []variable{
	{"count_transactions_in_queue", metricfamily.NewGauge("mysql_perf_schema_transactions_in_queue", "Transactions that wait to be checked for conflicts.")},
	{"count_transactions_checked", metricfamily.NewCounter("mysql_perf_schema_transactions_checked_total", "Transactions that were checked for conflicts.")},
	{"count_conflicts_detected", metricfamily.NewCounter("mysql_perf_schema_conflicts_detected_total", "Transactions that the group has refused for a conflict.")},
	{"count_transactions_rows_validating", metricfamily.NewCounter("mysql_perf_schema_transactions_rows_validating_total", "Rows that transactions are checked against. It falls as well, and is a counter as the exporter has it.")},
	{"count_transactions_remote_in_applier_queue", metricfamily.NewGauge("mysql_perf_schema_transactions_remote_in_applier_queue", "Transactions that were received from the group and wait to be applied.")},
	{"count_transactions_remote_applied", metricfamily.NewCounter("mysql_perf_schema_transactions_remote_applied_total", "Transactions that were received from the group and applied.")},
	{"count_transactions_local_proposed", metricfamily.NewCounter("mysql_perf_schema_transactions_local_proposed_total", "Transactions of this member that were sent to the group.")},
	{"count_transactions_local_rollback", metricfamily.NewCounter("mysql_perf_schema_transactions_local_rollback_total", "Transactions of this member that the group has refused.")},
}
