package dashboards

func postgresql() Dashboard {
	return Dashboard{
		File: "postgresql", Title: "Holdfast / PostgreSQL", About: "One PostgresCluster and its members.",
		Variables: memberVariables("holdfast_pg_lease_held"), selectors: memberSelectors("PostgresCluster"),
		Rows: []Row{
			{"Health", append([]Panel{
				number("Primary", "", "The member that holds the primary's Lease.", nil,
					Query{`max by (pod) (holdfast_pg_lease_held{<all>}) == 1`, "{{pod}}"}).
					withAlerts("HoldfastPostgresNoLeader").named(),
				number("Databases that answer", "short", "Members whose database answers queries.", lowerIsWorse(1, 2),
					Query{`sum(pg_up{<all>})`, ""}),
				scrapedPanel(),
				number("Connections used", "percentunit", "Used part of max_connections, of the member where it is the largest.", higherIsWorse(0.7, 0.85),
					Query{`max(sum by (pod) (pg_stat_activity_count{<member>}) / max by (pod) (pg_settings_max_connections{<member>}))`, ""}).
					withAlerts("HoldfastPostgresConnectionsNearLimit"),
				volumePanel(), certificatePanel(),
			}, conditionPanels()...)},
			{"Load", postgresLoad()},
			{"Replication", postgresReplication()},
			{"Election", postgresElection()},
			{"Checkpoints and storage", postgresStorage()},
			{"Settings and agents", append([]Panel{
				chart("Settings", "short", "Settings that wait for a restart, and whether the database refuses what is declared.",
					Query{`max by (pod) (holdfast_pg_settings_pending_restart{<member>})`, "{{pod}} wait for a restart"},
					Query{`max by (pod) (holdfast_pg_config_error{<member>})`, "{{pod}} refuses"}),
				chart("Parts of scrapes that failed", "short", "1 where the database has not answered a part of the scrape. The metrics of that part are missing.",
					Query{`max by (pod, part) (holdfast_pg_scrape_error{<member>})`, "{{pod}} {{part}}"}).
					withSteps(anyIsBad("red")).withAlerts("HoldfastPostgresMetricsMissing"),
				chart("Starts of the database", "short", "Starts of each member's database in the last hour.",
					Query{`max by (pod) (changes(pg_postmaster_start_time_seconds{<member>}[1h]))`, "{{pod}}"}).
					withSteps(anyIsBadFrom(3)).withAlerts("HoldfastPostgresRestarts"),
			}, agentPanels()...)},
		},
	}
}

func postgresLoad() []Panel {
	return []Panel{
		chart("Transactions", "ops", "Transactions that were committed, and rolled back.",
			Query{`sum by (pod) (rate(pg_stat_database_xact_commit{<member>}[$__rate_interval]))`, "{{pod}} commits"},
			Query{`sum by (pod) (rate(pg_stat_database_xact_rollback{<member>}[$__rate_interval]))`, "{{pod}} rollbacks"}),
		chart("Rows written", "ops", "Rows inserted, updated and deleted.",
			Query{`sum(rate(pg_stat_database_tup_inserted{<member>}[$__rate_interval]))`, "inserted"},
			Query{`sum(rate(pg_stat_database_tup_updated{<member>}[$__rate_interval]))`, "updated"},
			Query{`sum(rate(pg_stat_database_tup_deleted{<member>}[$__rate_interval]))`, "deleted"}),
		chart("Rows read", "ops", "Rows that scans read, and rows that index scans fetched.",
			Query{`sum by (pod) (rate(pg_stat_database_tup_returned{<member>}[$__rate_interval]))`, "{{pod}} read"},
			Query{`sum by (pod) (rate(pg_stat_database_tup_fetched{<member>}[$__rate_interval]))`, "{{pod}} fetched"}),
		chart("Connections", "short", "Client connections by their state.",
			Query{`sum by (pod, state) (pg_stat_activity_count{<member>})`, "{{pod}} {{state}}"},
			Query{`max by (pod) (pg_settings_max_connections{<member>})`, "{{pod}} limit"}).
			withAlerts("HoldfastPostgresConnectionsNearLimit"),
		chart("Blocks found in shared buffers", "percentunit", "Part of the blocks that were in shared buffers. The others may still be in the machine's cache.",
			Query{`sum by (pod) (rate(pg_stat_database_blks_hit{<member>}[$__rate_interval])) / (sum by (pod) (rate(pg_stat_database_blks_hit{<member>}[$__rate_interval])) + sum by (pod) (rate(pg_stat_database_blks_read{<member>}[$__rate_interval])))`, "{{pod}}"}),
		chart("Temporary files", "Bps", "Bytes that were written to temporary files, since work_mem did not suffice.",
			Query{`sum by (pod) (rate(pg_stat_database_temp_bytes{<member>}[$__rate_interval]))`, "{{pod}}"}),
		chart("Deadlocks and conflicts", "short", "Deadlocks, and statements of replicas that were canceled for what is replayed.",
			Query{`sum by (pod) (increase(pg_stat_database_deadlocks{<member>}[$__rate_interval]))`, "{{pod}} deadlocks"},
			Query{`sum by (pod) (increase(pg_stat_database_conflicts{<member>}[$__rate_interval]))`, "{{pod}} conflicts"}).
			withAlerts("HoldfastPostgresDeadlocks"),
		chart("Failed logins", "short", "Connections that were refused because their login failed.",
			Query{`sum by (pod) (increase(holdfast_pg_login_failures_total{<member>}[$__rate_interval]))`, "{{pod}}"}).
			withAlerts("HoldfastPostgresLoginsFail"),
		chart("Time of statements", "short", "Sessions that are busy with a statement on average, by its query ID: the ten that take the most time. The extension pg_stat_statements counts them.",
			Query{`topk(10, sum by (queryid) (rate(pg_stat_statements_seconds_total{<member>}[$__rate_interval])))`, "{{queryid}}"}),
		chart("Sessions by database", "short", "Sessions of each database.",
			Query{`sum by (datname) (pg_stat_database_numbackends{<member>})`, "{{datname}}"}),
	}
}

func postgresReplication() []Panel {
	return []Panel{
		chart("Lag", "s", "Lag of each replica behind its primary. A replica above its limit serves no reads.",
			Query{`max by (pod) (holdfast_pg_replication_lag_seconds{<member>})`, "{{pod}}"}).
			withSteps(higherIsWorse(1, 60)).withAlerts("HoldfastPostgresReplicationLag"),
		chart("WAL not replayed", "bytes", "WAL that each replica has not replayed yet, as the primary measures it.",
			Query{`max by (application_name) (pg_stat_replication_pg_wal_lsn_diff{<all>})`, "{{application_name}}"}),
		chart("WAL", "Bps", "WAL that the primary flushes, and replicas replay.",
			Query{`max by (pod) (rate(holdfast_pg_wal_position_bytes{<member>}[$__rate_interval]))`, "{{pod}}"}),
		chart("WAL kept by slots", "bytes", "WAL that each replication slot keeps.",
			Query{`max by (pod, slot_name) (pg_replication_slots_pg_wal_lsn_diff{<member>})`, "{{pod}} {{slot_name}}"}).
			withAlerts("HoldfastPostgresSlotKeepsWAL"),
		chart("Slots", "short", "Whether each replication slot is in use, and the state of the WAL that it needs.",
			Query{`max by (pod, slot_name) (pg_replication_slot_slot_is_active{<member>})`, "{{pod}} {{slot_name}} in use"},
			Query{`max by (pod, slot_name, wal_status) (pg_replication_slot_wal_status{<member>})`, "{{pod}} {{slot_name}} {{wal_status}}"}).
			withAlerts("HoldfastPostgresSlotKeepsWAL", "HoldfastPostgresSlotLosesWAL"),
		chart("Synchronous standbys", "short", "Standbys that a commit may wait for, and how many are declared. None is declared without synchronous mode.",
			Query{`max(holdfast_pg_synchronous_standbys_streaming{<all>})`, "stream"},
			Query{`max(holdfast_pg_synchronous_standbys_wanted{<all>}) or vector(0)`, "declared"}).
			withAlerts("HoldfastPostgresSynchronousDegraded"),
	}
}

func postgresElection() []Panel {
	return []Panel{
		chart("Term", "short", "Term of the primary's Lease. Each change of the primary begins one.",
			Query{`max by (pod) (holdfast_pg_term{<member>})`, "{{pod}}"}).
			withAlerts("HoldfastPostgresLeaderFlapping"),
		chart("Lease renewed", "s", "Time since the primary has sent its last successful renewal of the Lease.",
			Query{`max by (pod) (holdfast_pg_lease_renewed_seconds{<all>})`, "{{pod}}"}),
		chart("Candidacies", "short", "Candidacies that were won and lost.",
			Query{`sum by (pod) (increase(holdfast_pg_elections_won_total{<member>}[$__rate_interval]))`, "{{pod}} won"},
			Query{`sum by (pod) (increase(holdfast_pg_elections_lost_total{<member>}[$__rate_interval]))`, "{{pod}} lost"}),
		chart("Fenced", "short", "How often a database was stopped by force, as its Lease was not renewed in time.",
			Query{`sum by (pod) (increase(holdfast_pg_fences_total{<member>}[$__rate_interval]))`, "{{pod}}"}).
			withAlerts("HoldfastPostgresFenced"),
		chart("Rejoins", "short", "How often a member's data was rewound, or copied again.",
			Query{`sum by (pod, by) (increase(holdfast_pg_rejoins_total{<member>}[$__rate_interval]))`, "{{pod}} {{by}}"}),
		chart("Members that do not rejoin", "short", "Members whose data is held, or whose disk is full, until a person decides.",
			Query{`count(holdfast_pg_held{<all>}) or vector(0)`, "held"}).
			withSteps(anyIsBad("red")).withAlerts("HoldfastPostgresRejoinHeld"),
	}
}

func postgresStorage() []Panel {
	return []Panel{
		chart("Checkpoints", "short", "Checkpoints that were due, and those that the amount of WAL forced or a client requested.",
			Query{`sum by (pod) (increase(pg_stat_checkpointer_num_timed_total{<member>}[$__rate_interval])) or sum by (pod) (increase(pg_stat_bgwriter_checkpoints_timed_total{<member>}[$__rate_interval]))`, "{{pod}} due"},
			Query{`sum by (pod) (increase(pg_stat_checkpointer_num_requested_total{<member>}[$__rate_interval])) or sum by (pod) (increase(pg_stat_bgwriter_checkpoints_req_total{<member>}[$__rate_interval]))`, "{{pod}} forced"}).
			withAlerts("HoldfastPostgresForcedCheckpoints"),
		chart("Time of checkpoints", "ms", "Time in which checkpoints wrote and synced files.",
			Query{`sum by (pod) (increase(pg_stat_checkpointer_write_time_total{<member>}[$__rate_interval])) or sum by (pod) (increase(pg_stat_bgwriter_checkpoint_write_time_total{<member>}[$__rate_interval]))`, "{{pod}} write"},
			Query{`sum by (pod) (increase(pg_stat_checkpointer_sync_time_total{<member>}[$__rate_interval])) or sum by (pod) (increase(pg_stat_bgwriter_checkpoint_sync_time_total{<member>}[$__rate_interval]))`, "{{pod}} sync"}),
		volumeChart(),
		chart("Databases", "bytes", "Size of each database.",
			Query{`max by (datname) (pg_database_size_bytes{<all>})`, "{{datname}}"}),
		chart("WAL on the volume", "bytes", "Size of the WAL on each volume.",
			Query{`max by (pod) (pg_wal_size_bytes{<member>})`, "{{pod}}"}),
		chart("Transactions not frozen", "short", "Age of the oldest transaction and multitransaction that is not frozen. At about two billion, PostgreSQL refuses writes.",
			Query{`max by (datname) (pg_database_wraparound_age_datfrozenxid_seconds{<all>})`, "{{datname}}"},
			Query{`max by (datname) (pg_database_wraparound_age_datminmxid_seconds{<all>})`, "{{datname}} multi"}).
			withSteps(higherIsWorse(500e6, 1e9)).withAlerts("HoldfastPostgresWraparound"),
	}
}
