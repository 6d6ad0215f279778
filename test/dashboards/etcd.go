package dashboards

func etcd() Dashboard {
	return Dashboard{
		File: "etcd", Title: "Holdfast / etcd", About: "One EtcdCluster and its members.",
		Variables: memberVariables("holdfast_etcd_up"), selectors: memberSelectors("EtcdCluster"),
		Rows: []Row{
			{"Health", append([]Panel{
				number("Leading member", "", "The member that leads.", nil,
					Query{`max by (pod) (etcd_server_is_leader{<all>}) == 1`, "{{pod}}"}).named(),
				number("Members that serve", "short", "Members that have a vote and a leader, and answer clients.", lowerIsWorse(1, 2),
					Query{`sum(holdfast_etcd_up{<all>})`, ""}),
				scrapedPanel(),
				number("Quota used", "percentunit", "Size of the database in parts of the quota. At the quota, etcd refuses writes.", higherIsWorse(0.7, 0.8),
					Query{`max(etcd_mvcc_db_total_size_in_bytes{<member>} / etcd_server_quota_backend_bytes{<member>})`, ""}).
					withAlerts("HoldfastEtcdQuotaNearlyUsed"),
				volumePanel(), certificatePanel(),
			}, conditionPanels()...)},
			{"Load", etcdLoad()},
			{"Storage", etcdStorage()},
			{"Agents", agentPanels()},
		},
	}
}

func etcdLoad() []Panel {
	return []Panel{
		chart("Requests", "reqps", "Requests that each member answered, by method.",
			Query{`sum by (pod, grpc_method) (rate(grpc_server_handled_total{<member>, grpc_type="unary"}[$__rate_interval]))`, "{{pod}} {{grpc_method}}"}),
		chart("Writes", "ops", "Writes that were proposed and committed.",
			Query{`sum by (pod) (rate(etcd_server_proposals_committed_total{<member>}[$__rate_interval]))`, "{{pod}}"}),
		chart("Writes that wait or failed", "short", "Writes that wait for the group, and writes that it has refused.",
			Query{`max by (pod) (etcd_server_proposals_pending{<member>})`, "{{pod}} wait"},
			Query{`sum by (pod) (increase(etcd_server_proposals_failed_total{<member>}[$__rate_interval]))`, "{{pod}} failed"}).
			withAlerts("HoldfastEtcdProposalsFail"),
		chart("Leader", "short", "Whether each member knows a leader, and the changes of the leader that it has seen in the last 15 minutes.",
			Query{`max by (pod) (etcd_server_has_leader{<member>})`, "{{pod}} has a leader"},
			Query{`max by (pod) (increase(etcd_server_leader_changes_seen_total{<member>}[15m]))`, "{{pod}} changes"}).
			withAlerts("HoldfastEtcdNoLeader", "HoldfastEtcdLeaderFlapping"),
		chart("Alarms", "short", "Alarms that are raised.",
			Query{`count(holdfast_etcd_alarm{<all>}) or vector(0)`, "raised"}).
			withSteps(anyIsBad("red")).withAlerts("HoldfastEtcdAlarm"),
		chart("Round trip between members", "s", "99 of 100 round trips between members are shorter. A cluster of one member has none.",
			Query{`max(histogram_quantile(0.99, sum by (pod, le) (rate(etcd_network_peer_round_trip_time_seconds_bucket{<member>}[$__rate_interval])))) or vector(0)`, "slowest"}),
	}
}

func etcdStorage() []Panel {
	return []Panel{
		chart("Syncs of the Raft log", "s", "99 of 100 syncs are shorter.",
			Query{`histogram_quantile(0.99, sum by (pod, le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket{<member>}[$__rate_interval])))`, "{{pod}}"}).
			withSteps(higherIsWorse(0.1, 0.5)).withAlerts("HoldfastEtcdSlowSync"),
		chart("Writes of the database", "s", "99 of 100 writes are shorter.",
			Query{`histogram_quantile(0.99, sum by (pod, le) (rate(etcd_disk_backend_commit_duration_seconds_bucket{<member>}[$__rate_interval])))`, "{{pod}}"}).
			withSteps(higherIsWorse(0.1, 0.25)).withAlerts("HoldfastEtcdSlowCommit"),
		volumeChart(),
		chart("Database", "bytes", "Size of the database, the part of it that holds data, and the quota.",
			Query{`max by (pod) (holdfast_etcd_data_size_bytes{<member>})`, "{{pod}} size"},
			Query{`max by (pod) (holdfast_etcd_data_in_use_bytes{<member>})`, "{{pod}} in use"},
			Query{`max(holdfast_etcd_quota_bytes{<member>})`, "quota"}),
		chart("Starts of etcd", "short", "Starts of etcd in the last hour, beside the first.",
			Query{`max by (pod) (resets(etcd_disk_wal_fsync_duration_seconds_count{<member>}[1h]))`, "{{pod}}"}).
			withSteps(anyIsBadFrom(3)).withAlerts("HoldfastEtcdRestarts"),
		chart("Settings", "short", "Settings that wait for a restart, and whether etcd refuses what is declared.",
			Query{`max by (pod) (holdfast_etcd_settings_pending_restart{<member>})`, "{{pod}} wait for a restart"},
			Query{`max by (pod) (holdfast_etcd_config_error{<member>})`, "{{pod}} refuses"}),
	}
}
