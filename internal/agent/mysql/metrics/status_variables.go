package metrics

import "github.com/holdfast-db/holdfast/internal/agent/metricfamily"

// statusVariables are those that dashboards and alerts read.
var statusVariables = []variable{
	// Connections.
	newStatus("uptime", "Seconds since the server started."),
	newStatus("threads_connected", "Open connections."),
	newStatus("threads_running", "Connections that run a statement."),
	newStatus("threads_cached", "Threads that wait for a connection."),
	newStatus("threads_created", "Threads that were made for connections."),
	newStatus("max_used_connections", "The most connections that were open at a time, since the server started."),
	newStatus("connections", "Attempts to connect."),
	newStatus("aborted_connects", "Attempts to connect that failed."),
	newStatus("aborted_clients", "Connections that ended without being closed by the client."),
	newStatus("bytes_received", "Bytes received from clients."),
	newStatus("bytes_sent", "Bytes sent to clients."),
	newStatus("prepared_stmt_count", "Prepared statements that exist."),
	// Statements.
	newStatus("queries", "Statements executed, with those of stored programs."),
	newStatus("questions", "Statements that clients sent."),
	newStatus("slow_queries", "Statements that took longer than long_query_time."),
	newStatus("select_full_join", "Joins without an index, which read whole tables."),
	newStatus("select_full_range_join", "Joins with a range search on the other table."),
	newStatus("select_range", "Joins with a range of the first table."),
	newStatus("select_range_check", "Joins without a key that check for one at each row."),
	newStatus("select_scan", "Joins that read the whole first table."),
	newStatus("sort_merge_passes", "Merge passes of sorts."),
	newStatus("sort_range", "Sorts of ranges."),
	newStatus("sort_rows", "Rows sorted."),
	newStatus("sort_scan", "Sorts of whole tables."),
	newStatus("created_tmp_tables", "Temporary tables that the server made."),
	newStatus("created_tmp_disk_tables", "Temporary tables on the volume that the server made."),
	newStatus("created_tmp_files", "Temporary files."),
	newStatus("table_locks_immediate", "Table locks that were free."),
	newStatus("table_locks_waited", "Table locks that had to be waited for."),
	// Open tables and files.
	newStatus("open_tables", "Tables that are open."),
	newStatus("opened_tables", "Tables that were opened."),
	newStatus("open_table_definitions", "Table definitions in the cache."),
	newStatus("opened_table_definitions", "Table definitions that were read into the cache."),
	newStatus("table_open_cache_hits", "Lookups of open tables that found one."),
	newStatus("table_open_cache_misses", "Lookups of open tables that found none."),
	newStatus("table_open_cache_overflows", "Tables that were closed since the cache was full."),
	newStatus("open_files", "Files that are open, without those of storage engines."),
	newStatus("opened_files", "Files that were opened."),
	// Binlog.
	newStatus("binlog_cache_use", "Transactions that used the binlog cache."),
	newStatus("binlog_cache_disk_use", "Transactions that did not fit into the binlog cache."),
	newStatus("binlog_stmt_cache_use", "Statements outside of transactions that used the binlog cache."),
	newStatus("binlog_stmt_cache_disk_use", "Statements outside of transactions that did not fit into the binlog cache."),
	// InnoDB.
	newStatus("innodb_page_size", "Size of a page in bytes."),
	newStatus("innodb_num_open_files", "Files that InnoDB has open."),
	newStatus("innodb_buffer_pool_read_requests", "Reads of pages."),
	newStatus("innodb_buffer_pool_reads", "Reads of pages that were not in the buffer pool."),
	newStatus("innodb_buffer_pool_read_ahead", "Pages read ahead."),
	newStatus("innodb_buffer_pool_read_ahead_evicted", "Pages read ahead that were evicted unused."),
	newStatus("innodb_buffer_pool_write_requests", "Writes to pages."),
	newStatus("innodb_buffer_pool_wait_free", "Waits for a free page."),
	newStatus("innodb_buffer_pool_bytes_data", "Bytes of the buffer pool that hold data."),
	newStatus("innodb_buffer_pool_bytes_dirty", "Bytes of the buffer pool that are to be written."),
	newStatus("innodb_data_reads", "Reads of files."),
	newStatus("innodb_data_writes", "Writes of files."),
	newStatus("innodb_data_read", "Bytes read from files."),
	newStatus("innodb_data_written", "Bytes written to files."),
	newStatus("innodb_data_fsyncs", "Syncs of files."),
	newStatus("innodb_data_pending_fsyncs", "Syncs of files that have not ended."),
	newStatus("innodb_os_log_written", "Bytes written to the redo log."),
	newStatus("innodb_os_log_fsyncs", "Syncs of the redo log."),
	newStatus("innodb_log_waits", "Waits for a log buffer that was too small."),
	newStatus("innodb_log_write_requests", "Requests to write to the redo log."),
	newStatus("innodb_log_writes", "Writes of the redo log."),
	newStatus("innodb_pages_created", "Pages made."),
	newStatus("innodb_pages_read", "Pages read."),
	newStatus("innodb_pages_written", "Pages written."),
	newStatus("innodb_row_lock_current_waits", "Row locks that are waited for."),
	newStatus("innodb_row_lock_waits", "Row locks that had to be waited for."),
	newStatus("innodb_row_lock_time", "Milliseconds of waits for row locks."),
	newStatus("innodb_row_lock_time_avg", "Mean wait for a row lock, in milliseconds."),
	newStatus("innodb_row_lock_time_max", "Longest wait for a row lock, in milliseconds."),
	{"innodb_buffer_pool_pages_dirty", metricfamily.NewGauge("mysql_global_status_buffer_pool_dirty_pages", "Pages of the buffer pool that are to be written.")},
}

// variableGroup are status variables that are one family: the rest of the name is the
// label.
type variableGroup struct {
	prefix string
	metricfamily.Family
	labels []string
}

var statusGroups = []variableGroup{
	{"com_", metricfamily.NewCounter("mysql_global_status_commands_total", "Statements by command; a chosen set of them.", "command"), []string{
		"alter_table", "begin", "call_procedure", "change_db", "commit", "create_index", "create_table", "delete", "delete_multi",
		"drop_index", "drop_table", "flush", "insert", "insert_select", "kill", "load", "lock_tables", "optimize", "replace",
		"replace_select", "rollback", "select", "set_option", "stmt_close", "stmt_execute", "stmt_prepare", "truncate", "update", "update_multi",
	}},
	{"handler_", metricfamily.NewCounter("mysql_global_status_handlers_total", "Calls of storage engines by handler.", "handler"), []string{
		"commit", "delete", "discover", "external_lock", "mrr_init", "prepare", "read_first", "read_key", "read_last", "read_next", "read_prev",
		"read_rnd", "read_rnd_next", "rollback", "savepoint", "savepoint_rollback", "update", "write",
	}},
	{"connection_errors_", metricfamily.NewCounter("mysql_global_status_connection_errors_total", "Connections refused, by error.", "error"), []string{
		"accept", "internal", "max_connections", "peer_address", "select", "tcpwrap",
	}},
	{"innodb_rows_", metricfamily.NewCounter("mysql_global_status_innodb_row_ops_total", "Operations on rows of InnoDB.", "operation"), []string{
		"deleted", "inserted", "read", "updated",
	}},
	{"innodb_buffer_pool_pages_", metricfamily.NewGauge("mysql_global_status_buffer_pool_pages", "Pages of the buffer pool by state.", "state"), []string{
		"data", "free", "misc",
	}},
	{"innodb_buffer_pool_pages_", metricfamily.NewCounter("mysql_global_status_buffer_pool_page_changes_total", "Changes of pages of the buffer pool.", "operation"), []string{
		"flushed",
	}},
}
