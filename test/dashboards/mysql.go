package dashboards

func mysql() Dashboard {
	return Dashboard{
		File: "mysql", Title: "Holdfast / MySQL", About: "One MySQLCluster and its members.",
		Variables: memberVariables("holdfast_mysql_serving"), selectors: memberSelectors("MySQLCluster"),
		Rows: []Row{
			{"Health", append([]Panel{
				number("Primary", "", "The member that takes writes.", nil,
					Query{`max by (pod) (holdfast_mysql_role{<all>, member_role="primary"}) == 1`, "{{pod}}"}).
					withAlerts("HoldfastMySQLNoPrimary", "HoldfastMySQLPrimaryFlapping", "HoldfastMySQLWritesBlocked").named(),
				number("Members that serve", "short", "Members that clients may be sent to.", lowerIsWorse(1, 2),
					Query{`sum(holdfast_mysql_serving{<all>})`, ""}),
				scrapedPanel(),
				number("Connections used", "percentunit", "Used part of max_connections, of the member where it is the largest.", higherIsWorse(0.7, 0.85),
					Query{`max(mysql_global_status_threads_connected{<member>} / mysql_global_variables_max_connections{<member>})`, ""}).
					withAlerts("HoldfastMySQLConnectionsNearLimit"),
				volumePanel(), certificatePanel(),
			}, conditionPanels()...)},
			{"Load", mysqlLoad()},
			{"Group", mysqlGroup()},
			{"Storage", mysqlStorage()},
			{"Settings and agents", append([]Panel{
				chart("Settings", "short", "Settings that wait for a restart, and whether MySQL refuses what is declared.",
					Query{`max by (pod) (holdfast_mysql_settings_pending_restart{<member>})`, "{{pod}} wait for a restart"},
					Query{`max by (pod) (holdfast_mysql_config_error{<member>})`, "{{pod}} refuses"}).
					withAlerts("HoldfastMySQLSettingsRefused", "HoldfastMySQLRestartPending"),
				chart("Parts of scrapes that failed", "short", "1 where the server has not answered a part of the scrape. The metrics of that part are missing.",
					Query{`max by (pod, part) (holdfast_mysql_scrape_error{<member>})`, "{{pod}} {{part}}"}).
					withSteps(anyIsBad("red")).withAlerts("HoldfastMySQLMetricsMissing"),
				chart("Time since the server started", "s", "Time since each server started.",
					Query{`max by (pod) (mysql_global_status_uptime{<member>})`, "{{pod}}"}).
					withAlerts("HoldfastMySQLRestarts"),
			}, agentPanels()...)},
		},
	}
}

func mysqlLoad() []Panel {
	return []Panel{
		chart("Statements", "ops", "Statements that clients sent.",
			Query{`sum by (pod) (rate(mysql_global_status_questions{<member>}[$__rate_interval]))`, "{{pod}}"}),
		chart("Commands", "ops", "The ten commands that are sent most.",
			Query{`topk(10, sum by (command) (rate(mysql_global_status_commands_total{<member>}[$__rate_interval])))`, "{{command}}"}),
		chart("Rows", "ops", "Operations on rows of InnoDB.",
			Query{`sum by (operation) (rate(mysql_global_status_innodb_row_ops_total{<member>}[$__rate_interval]))`, "{{operation}}"}),
		chart("Connections", "short", "Open connections, those that run a statement, and the limit.",
			Query{`max by (pod) (mysql_global_status_threads_connected{<member>})`, "{{pod}} open"},
			Query{`max by (pod) (mysql_global_status_threads_running{<member>})`, "{{pod}} running"},
			Query{`max by (pod) (mysql_global_variables_max_connections{<member>})`, "{{pod}} limit"}).
			withAlerts("HoldfastMySQLConnectionsNearLimit"),
		chart("Connections that failed", "short", "Connections that ended before the login, and those that the server refused or broke.",
			Query{`sum by (pod) (increase(mysql_global_status_aborted_connects{<member>}[$__rate_interval]))`, "{{pod}} before the login"},
			Query{`sum by (pod, error) (increase(mysql_global_status_connection_errors_total{<member>}[$__rate_interval]))`, "{{pod}} {{error}}"}).
			withAlerts("HoldfastMySQLLoginsFail", "HoldfastMySQLConnectionsRefused"),
		chart("Slow statements", "ops", "Statements that took longer than long_query_time.",
			Query{`sum by (pod) (rate(mysql_global_status_slow_queries{<member>}[$__rate_interval]))`, "{{pod}}"}),
		chart("Deadlocks and waits for locks", "short", "Deadlocks, and waits for a row lock that took too long.",
			Query{`sum by (pod) (increase(mysql_info_schema_innodb_metrics_lock_lock_deadlocks_total{<member>}[$__rate_interval]))`, "{{pod}} deadlocks"},
			Query{`sum by (pod) (increase(mysql_info_schema_innodb_metrics_lock_lock_timeouts_total{<member>}[$__rate_interval]))`, "{{pod}} timeouts"}).
			withAlerts("HoldfastMySQLDeadlocks"),
		chart("Time of statements", "short", "Sessions that are busy with a statement on average, by its digest: the ten that take the most time.",
			Query{`topk(10, sum by (digest) (rate(mysql_perf_schema_events_statements_seconds_total{<member>}[$__rate_interval])))`, "{{digest}}"}),
		chart("Temporary tables on disk", "ops", "Temporary tables that did not fit into memory.",
			Query{`sum by (pod) (rate(mysql_global_status_created_tmp_disk_tables{<member>}[$__rate_interval]))`, "{{pod}}"}),
		chart("Traffic", "Bps", "Bytes received from clients, and sent to them.",
			Query{`sum by (pod) (rate(mysql_global_status_bytes_received{<member>}[$__rate_interval]))`, "{{pod}} received"},
			Query{`sum by (pod) (rate(mysql_global_status_bytes_sent{<member>}[$__rate_interval]))`, "{{pod}} sent"}),
	}
}

func mysqlGroup() []Panel {
	return []Panel{
		chart("Members", "short", "Members that are declared, and that are online as each member sees the group.",
			Query{`max(holdfast_mysql_members_declared{<all>})`, "declared"},
			Query{`max(count by (pod) (mysql_perf_schema_replication_group_member_info{<all>, member_state="ONLINE"}))`, "online"}).
			withAlerts("HoldfastMySQLMembersMissing"),
		chart("Majority", "short", "Whether each member is in a group and reaches a majority of it.",
			Query{`max by (pod) (holdfast_mysql_has_majority{<member>})`, "{{pod}}"}).
			withAlerts("HoldfastMySQLMajorityLost", "HoldfastMySQLMemberFlapping"),
		chart("Members that do not join", "short", "Members whose data the agent does not let into the group.",
			Query{`count(holdfast_mysql_held{<all>}) or vector(0)`, "held"}).
			withSteps(anyIsBad("red")).withAlerts("HoldfastMySQLMemberHeld"),
		chart("Lag", "s", "How long the oldest transaction has waited that a replica has received and not applied.",
			Query{`max by (pod) (holdfast_mysql_replication_lag_seconds{<member>})`, "{{pod}}"}).
			withSteps(higherIsWorse(1, 60)).withAlerts("HoldfastMySQLReplicationLag"),
		chart("Transactions that wait", "short", "Transactions that wait to be checked for conflicts, and to be applied. From a threshold on, commits of the group are slowed down.",
			Query{`max by (pod) (mysql_perf_schema_transactions_in_queue{<member>})`, "{{pod}} to be checked"},
			Query{`max by (pod) (mysql_perf_schema_transactions_remote_in_applier_queue{<member>})`, "{{pod}} to be applied"},
			Query{`min(mysql_global_variables_group_replication_flow_control_applier_threshold{<member>})`, "threshold"}).
			withAlerts("HoldfastMySQLWritesThrottled"),
		chart("Transactions of the group", "ops", "Transactions that members sent to the group, and that they applied from it.",
			Query{`sum by (pod) (rate(mysql_perf_schema_transactions_local_proposed_total{<member>}[$__rate_interval]))`, "{{pod}} sent"},
			Query{`sum by (pod) (rate(mysql_perf_schema_transactions_remote_applied_total{<member>}[$__rate_interval]))`, "{{pod}} applied"}),
		chart("Conflicts", "short", "Transactions that the group has refused for a conflict.",
			Query{`max(increase(mysql_perf_schema_conflicts_detected_total{<member>}[$__rate_interval]))`, "refused"}).
			withAlerts("HoldfastMySQLConflicts"),
		chart("Copies of data", "short", "Copies of another member's data that were put in place in the last six hours.",
			Query{`max by (pod) (increase(holdfast_mysql_data_copies_total{<member>}[6h]))`, "{{pod}}"}).
			withSteps(anyIsBadFrom(3)).withAlerts("HoldfastMySQLCopiesRepeat"),
		chart("Read-only and offline", "short", "Whether each member refuses writes, and clients.",
			Query{`max by (pod) (mysql_global_variables_read_only{<member>})`, "{{pod}} read-only"},
			Query{`max by (pod) (mysql_global_variables_offline_mode{<member>})`, "{{pod}} offline"}).
			withAlerts("HoldfastMySQLWritesBlocked"),
	}
}

func mysqlStorage() []Panel {
	return []Panel{
		chart("Pages found in the buffer pool", "percentunit", "Part of the reads of pages that were in the buffer pool.",
			Query{`1 - sum by (pod) (rate(mysql_global_status_innodb_buffer_pool_reads{<member>}[$__rate_interval])) / sum by (pod) (rate(mysql_global_status_innodb_buffer_pool_read_requests{<member>}[$__rate_interval]))`, "{{pod}}"}),
		chart("Buffer pool", "bytes", "Size of the buffer pool, and bytes in it that hold data.",
			Query{`max by (pod) (mysql_global_variables_innodb_buffer_pool_size{<member>})`, "{{pod}} size"},
			Query{`max by (pod) (mysql_global_status_innodb_buffer_pool_bytes_data{<member>})`, "{{pod}} data"}),
		volumeChart(),
		chart("Data", "bytes", "Size of the data on each volume, without binlogs.",
			Query{`max by (pod) (holdfast_mysql_data_size_bytes{<member>})`, "{{pod}}"}),
		chart("Redo log", "Bps", "Bytes written to the redo log.",
			Query{`sum by (pod) (rate(mysql_global_status_innodb_os_log_written{<member>}[$__rate_interval]))`, "{{pod}}"}),
		chart("Files", "Bps", "Bytes that InnoDB reads from files and writes to them.",
			Query{`sum by (pod) (rate(mysql_global_status_innodb_data_read{<member>}[$__rate_interval]))`, "{{pod}} read"},
			Query{`sum by (pod) (rate(mysql_global_status_innodb_data_written{<member>}[$__rate_interval]))`, "{{pod}} written"}),
	}
}
