package metrics

import "github.com/holdfast-db/holdfast/internal/agent/metricfamily"

// systemVariables are those that dashboards and alerts compare with, or divide by.
var systemVariables = []variable{
	newVariable("binlog_cache_size", "Size of the binlog cache of a connection in bytes."),
	newVariable("binlog_expire_logs_seconds", "Age at which the server removes a binlog."),
	newVariable("group_replication_flow_control_applier_threshold", "Transactions in the applier's queue from which on commits are slowed down."),
	newVariable("group_replication_flow_control_certifier_threshold", "Transactions in the certifier's queue from which on commits are slowed down."),
	newVariable("innodb_buffer_pool_size", "Size of the buffer pool in bytes."),
	newVariable("innodb_flush_log_at_trx_commit", "When the redo log is flushed: 1 for each commit."),
	newVariable("innodb_io_capacity", "Operations per second for work in the background."),
	newVariable("innodb_io_capacity_max", "Most operations per second for work in the background."),
	newVariable("innodb_lock_wait_timeout", "Seconds that a transaction waits for a row lock."),
	newVariable("innodb_log_buffer_size", "Size of InnoDB's log buffer in bytes."),
	newVariable("innodb_redo_log_capacity", "Size of the redo log in bytes."),
	newVariable("join_buffer_size", "Size of a join buffer in bytes."),
	newVariable("key_buffer_size", "Size of the key buffer of MyISAM in bytes."),
	newVariable("long_query_time", "Seconds from which on a statement is slow."),
	newVariable("max_allowed_packet", "Most bytes of one packet."),
	newVariable("max_connections", "Connections that the server admits."),
	newVariable("max_heap_table_size", "Most bytes of a table in memory."),
	newVariable("max_prepared_stmt_count", "Prepared statements that the server admits."),
	newVariable("max_user_connections", "Connections that the server admits for one account; 0 for no limit."),
	newVariable("offline_mode", "Whether the server refuses clients without the privilege CONNECTION_ADMIN."),
	newVariable("open_files_limit", "Files that the server may open."),
	newVariable("performance_schema", "Whether the performance schema is on."),
	newVariable("read_buffer_size", "Size of the buffer of a sequential read in bytes."),
	newVariable("read_only", "Whether clients without the privilege CONNECTION_ADMIN may not write."),
	newVariable("read_rnd_buffer_size", "Size of the buffer of a sorted read in bytes."),
	newVariable("replica_parallel_workers", "Workers that apply what is received."),
	newVariable("server_id", "ID of the server in the binlog."),
	newVariable("slow_query_log", "Whether slow statements are logged."),
	newVariable("sort_buffer_size", "Size of a sort buffer in bytes."),
	newVariable("super_read_only", "Whether no client may write."),
	newVariable("sync_binlog", "When the binlog is synced: 1 for each commit."),
	newVariable("table_definition_cache", "Table definitions that the cache may hold."),
	newVariable("table_open_cache", "Tables that the cache may hold."),
	newVariable("thread_cache_size", "Threads that may wait for a connection."),
	newVariable("tmp_table_size", "Most bytes of a temporary table in memory."),
	newVariable("wait_timeout", "Seconds after which an idle connection is closed."),
}

// versionMetric has the labels of these system variables.
var (
	versionMetric = metricfamily.NewGauge("mysql_version_info", "Version of the server: 1.", "innodb_version", "version", "version_comment")
	versionLabels = []string{"innodb_version", "version", "version_comment"}
)
