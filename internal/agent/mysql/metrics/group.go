package metrics

// largestGroup is how many members a group may have.
const largestGroup = 9

// memberMetric has a label for each of memberColumns, by its name in lower case.
var (
	memberMetric = newServerGauge("perf_schema_replication_group_member_info", "The group's members as this member sees them: 1 for each.",
		"channel_name", "member_id", "member_host", "member_port", "member_state", "member_role", "member_version", "member_communication_stack")
	memberColumns = []string{
		"CHANNEL_NAME", "MEMBER_ID", "MEMBER_HOST", "MEMBER_PORT", "MEMBER_STATE", "MEMBER_ROLE", "MEMBER_VERSION", "MEMBER_COMMUNICATION_STACK",
	}
)

// statisticsColumns are those of this member's row, each with a family.
var statisticsColumns = []struct {
	column string
	Family
}{
	{"COUNT_TRANSACTIONS_IN_QUEUE", newServerGauge("perf_schema_transactions_in_queue", "Transactions that wait to be checked for conflicts.")},
	{"COUNT_TRANSACTIONS_CHECKED", newServerCounter("perf_schema_transactions_checked_total", "Transactions that were checked for conflicts.")},
	{"COUNT_CONFLICTS_DETECTED", newServerCounter("perf_schema_conflicts_detected_total", "Transactions that the group has refused for a conflict.")},
	{"COUNT_TRANSACTIONS_ROWS_VALIDATING", newServerCounter("perf_schema_transactions_rows_validating_total", "Rows that transactions are checked against. It falls as well, and is a counter as the exporter has it.")},
	{"COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE", newServerGauge("perf_schema_transactions_remote_in_applier_queue", "Transactions that were received from the group and wait to be applied.")},
	{"COUNT_TRANSACTIONS_REMOTE_APPLIED", newServerCounter("perf_schema_transactions_remote_applied_total", "Transactions that were received from the group and applied.")},
	{"COUNT_TRANSACTIONS_LOCAL_PROPOSED", newServerCounter("perf_schema_transactions_local_proposed_total", "Transactions of this member that were sent to the group.")},
	{"COUNT_TRANSACTIONS_LOCAL_ROLLBACK", newServerCounter("perf_schema_transactions_local_rollback_total", "Transactions of this member that the group has refused.")},
}
