package gitops

import "testing"

// member is a series of a member of a cluster.
func member(metric, pod, labels, values string) string {
	cluster := pod[:len(pod)-2]
	return metric + `{namespace="shop",cluster="` + cluster + `",pod="` + pod + `"` + labels + `} ` + values
}

// view is what a member sees of another one.
func view(pod, id, state, values string) string {
	return member("mysql_perf_schema_replication_group_member_info", pod, `,member_id="`+id+`",member_state="`+state+`"`, values)
}

var mysqlEvaluations = []evaluation{
	{
		name: "one member leads", alert: "HoldfastMySQLNoPrimary", at: "10m",
		series: []string{member("holdfast_mysql_role", "orders-0", `,role="primary"`, "1x10"), member("holdfast_mysql_role", "orders-1", `,role="primary"`, "0x10")},
	},
	{
		name: "no member leads, beside a cluster where one does", alert: "HoldfastMySQLNoPrimary", at: "10m",
		series: []string{
			member("holdfast_mysql_role", "orders-0", `,role="primary"`, "1x5 0x5"), member("holdfast_mysql_role", "orders-1", `,role="primary"`, "0x10"),
			member("holdfast_mysql_role", "orders-1", `,role="replica"`, "1x10"), member("holdfast_mysql_role", "carts-0", `,role="primary"`, "1x10"),
		},
		want: []string{`{cluster="orders", namespace="shop"} 0`},
	},
	{
		name: "one member is isolated", alert: "HoldfastMySQLMajorityLost", at: "10m",
		series: []string{
			member("holdfast_mysql_has_majority", "orders-0", "", "0x10"), member("mysql_up", "orders-0", "", "1x10"),
			member("holdfast_mysql_has_majority", "orders-1", "", "1x10"), member("mysql_up", "orders-1", "", "1x10"),
		},
	},
	{
		name: "no server runs", alert: "HoldfastMySQLMajorityLost", at: "10m",
		series: []string{member("holdfast_mysql_has_majority", "orders-0", "", "0x10"), member("mysql_up", "orders-0", "", "0x10")},
	},
	{
		name: "all are", alert: "HoldfastMySQLMajorityLost", at: "10m",
		series: []string{
			member("holdfast_mysql_has_majority", "orders-0", "", "0x10"), member("mysql_up", "orders-0", "", "0x10"),
			member("holdfast_mysql_has_majority", "orders-1", "", "1x5 0x5"), member("mysql_up", "orders-1", "", "1x10"),
		},
		want: []string{`{cluster="orders", namespace="shop"} 0`},
	},
	{
		name: "all are online, and an isolated cluster of one", alert: "HoldfastMySQLMembersMissing", at: "10m",
		series: []string{
			member("holdfast_mysql_members_declared", "orders-0", "", "3x10"), view("orders-0", "a", "ONLINE", "1x10"), view("orders-0", "b", "ONLINE", "1x10"), view("orders-0", "c", "ONLINE", "1x10"),
			member("holdfast_mysql_members_declared", "carts-0", "", "1x10"), view("carts-0", "d", "ONLINE", "1x10"),
		},
	},
	{
		name: "the missing one is held", alert: "HoldfastMySQLMembersMissing", at: "10m",
		series: []string{
			member("holdfast_mysql_members_declared", "orders-0", "", "3x10"), view("orders-0", "a", "ONLINE", "1x10"), view("orders-0", "b", "ONLINE", "1x10"),
			member("holdfast_mysql_members_declared", "orders-2", "", "3x10"), member("holdfast_mysql_held", "orders-2", `,hold="DataDiverged"`, "1x10"),
		},
	},
	{
		name: "one more than is held, a removed one, and what an isolated member sees", alert: "HoldfastMySQLMembersMissing", at: "10m",
		series: []string{
			member("holdfast_mysql_members_declared", "orders-0", "", "5x10"), view("orders-0", "a", "ONLINE", "1x10"), view("orders-0", "b", "ONLINE", "1x10"), view("orders-0", "c", "ONLINE", "1x10"),
			view("orders-0", "d", "RECOVERING", "1x10"),
			member("holdfast_mysql_held", "orders-4", `,hold="DataMissing"`, "1x10"), member("holdfast_mysql_held", "orders-5", `,hold="Removed"`, "1x10"),
			view("orders-3", "d", "ONLINE", "1x10"), view("orders-3", "a", "UNREACHABLE", "1x10"),
		},
		want: []string{`{cluster="orders", namespace="shop"} 1`},
	},
	{
		name: "no member is held any more", alert: "HoldfastMySQLMemberHeld", at: "20m",
		series: []string{member("holdfast_mysql_held", "orders-1", `,hold="DataDiverged"`, "1x5")},
	},
	{
		name: "two are, for two reasons", alert: "HoldfastMySQLMemberHeld", at: "10m",
		series: []string{member("holdfast_mysql_held", "orders-1", `,hold="DataDiverged"`, "1x10"), member("holdfast_mysql_held", "orders-2", `,hold="VolumeFull"`, "1x10")},
		want:   []string{`{hold="DataDiverged", namespace="shop", pod="orders-1"} 1`, `{hold="VolumeFull", namespace="shop", pod="orders-2"} 1`},
	},
	{
		name: "a restart, and a network that failed once", alert: "HoldfastMySQLMemberFlapping", at: "60m",
		series: []string{member("holdfast_mysql_has_majority", "orders-1", "", "1x10 _x5 0x2 1x10 0x3 1x30")},
	},
	{
		name: "a member that is expelled again and again", alert: "HoldfastMySQLMemberFlapping", at: "60m",
		series: []string{member("holdfast_mysql_has_majority", "orders-1", "", "1x30 0x1 1x5 0x1 1x5 0x1 1x15"), member("holdfast_mysql_has_majority", "orders-0", "", "1x60")},
		want:   []string{`{namespace="shop", pod="orders-1"} 6`},
	},
	{
		name: "a rolling restart", alert: "HoldfastMySQLPrimaryFlapping", at: "20m",
		series: []string{member("holdfast_mysql_role", "orders-0", `,role="primary"`, "1x10 0x1 _x2 0x7"), member("holdfast_mysql_role", "orders-1", `,role="primary"`, "0x10 1x10")},
	},
	{
		name: "three changes", alert: "HoldfastMySQLPrimaryFlapping", at: "20m",
		series: []string{member("holdfast_mysql_role", "orders-0", `,role="primary"`, "1x10 0x3 1x3 0x4"), member("holdfast_mysql_role", "orders-1", `,role="primary"`, "0x10 1x3 0x3 1x4")},
		want:   []string{`{cluster="orders", namespace="shop"} 6`},
	},
	{
		name: "two restarts", alert: "HoldfastMySQLRestarts", at: "60m",
		series: []string{member("mysql_global_status_uptime", "orders-0", "", "0+60x20 5+60x10 _x3 5+60x27")},
	},
	{
		name: "three restarts", alert: "HoldfastMySQLRestarts", at: "60m",
		series: []string{member("mysql_global_status_uptime", "orders-0", "", "0+60x20 5+60x10 _x3 5+60x10 5+60x17"), member("mysql_global_status_uptime", "orders-1", "", "0+60x60")},
		want:   []string{`{namespace="shop", pod="orders-0"} 3`},
	},
	{
		name: "a member that cloned twice", alert: "HoldfastMySQLCopiesRepeat", at: "360m",
		series: []string{member("holdfast_mysql_data_copies_total", "orders-2", "", "0x100 1x100 2x160")},
	},
	{
		name: "a member that clones again and again, in new pods", alert: "HoldfastMySQLCopiesRepeat", at: "360m",
		series: []string{member("holdfast_mysql_data_copies_total", "orders-2", "", "0x100 1x100 0x5 1x50 0x5 1x97")},
		want:   []string{`{namespace="shop", pod="orders-2"} 3`},
	},
	{
		name: "a lag of a second, and one of before", alert: "HoldfastMySQLReplicationLag", at: "10m",
		series: []string{member("holdfast_mysql_replication_lag_seconds", "orders-1", "", "90x5 1x5"), member("holdfast_mysql_replication_lag_seconds", "orders-0", "", "0x10")},
	},
	{
		name: "a replica that is behind", alert: "HoldfastMySQLReplicationLag", at: "10m",
		series: []string{member("holdfast_mysql_replication_lag_seconds", "orders-1", "", "0+10x10")},
		want:   []string{`{namespace="shop", pod="orders-1"} 100`},
	},
	{
		name: "queues below the limits", alert: "HoldfastMySQLWritesThrottled", at: "10m",
		series: append(limits("orders-1"), member("mysql_perf_schema_transactions_remote_in_applier_queue", "orders-1", "", "24000x10"), member("mysql_perf_schema_transactions_in_queue", "orders-1", "", "0x10")),
	},
	{
		name: "a queue of each kind", alert: "HoldfastMySQLWritesThrottled", at: "10m",
		series: append(append(limits("orders-1"), limits("orders-2")...),
			member("mysql_perf_schema_transactions_remote_in_applier_queue", "orders-1", "", "25000x10"), member("mysql_perf_schema_transactions_in_queue", "orders-1", "", "0x10"),
			member("mysql_perf_schema_transactions_remote_in_applier_queue", "orders-2", "", "0x10"), member("mysql_perf_schema_transactions_in_queue", "orders-2", "", "30000x10")),
		want: []string{`{namespace="shop", pod="orders-1"} 2.5e+04`, `{namespace="shop", pod="orders-2"} 3e+04`},
	},
	{
		name: "a few after a failover", alert: "HoldfastMySQLConflicts", at: "60m",
		series: []string{member("mysql_perf_schema_conflicts_detected_total", "orders-1", "", "500x50 505x10")},
	},
	{
		name: "many", alert: "HoldfastMySQLConflicts", at: "60m",
		series: []string{member("mysql_perf_schema_conflicts_detected_total", "orders-1", "", "0+2x60"), member("mysql_perf_schema_conflicts_detected_total", "orders-0", "", "0+2x60")},
		want:   []string{`{cluster="orders", namespace="shop"} 30`},
	},
	{
		name: "enough connections", alert: "HoldfastMySQLConnectionsNearLimit", at: "10m",
		series: []string{member("mysql_global_status_threads_connected", "orders-0", "", "100x10"), member("mysql_global_variables_max_connections", "orders-0", "", "151x10")},
	},
	{
		name: "too few on one member", alert: "HoldfastMySQLConnectionsNearLimit", at: "10m",
		series: []string{
			member("mysql_global_status_threads_connected", "orders-0", "", "90x10"), member("mysql_global_variables_max_connections", "orders-0", "", "100x10"),
			member("mysql_global_status_threads_connected", "orders-1", "", "90x10"), member("mysql_global_variables_max_connections", "orders-1", "", "1000x10"),
		},
		want: []string{`{namespace="shop", pod="orders-0"} 0.9`},
	},
	{
		name: "other errors, and those of before", alert: "HoldfastMySQLConnectionsRefused", at: "20m",
		series: []string{
			member("mysql_global_status_connection_errors_total", "orders-0", `,error="peer_address"`, "0+1x20"), member("mysql_global_status_connection_errors_total", "orders-0", `,error="max_connections"`, "0+1x5 5x15"),
		},
	},
	{
		name: "refused now", alert: "HoldfastMySQLConnectionsRefused", at: "20m",
		series: []string{member("mysql_global_status_connection_errors_total", "orders-0", `,error="max_connections"`, "0+1x20")},
		want:   []string{`{namespace="shop", pod="orders-0"} 5`},
	},
	{
		name: "all settings are taken", alert: "HoldfastMySQLSettingsRefused", at: "10m",
		series: []string{member("holdfast_mysql_config_error", "orders-0", "", "1x5 0x5")},
	},
	{
		name: "one member refuses one", alert: "HoldfastMySQLSettingsRefused", at: "10m",
		series: []string{member("holdfast_mysql_config_error", "orders-0", "", "0x10"), member("holdfast_mysql_config_error", "orders-1", "", "1x10")},
		want:   []string{`{cluster="orders", namespace="shop"} 1`},
	},
	{
		name: "none waits", alert: "HoldfastMySQLRestartPending", at: "10m",
		series: []string{member("holdfast_mysql_settings_pending_restart", "orders-0", "", "2x5 0x5")},
	},
	{
		name: "two wait", alert: "HoldfastMySQLRestartPending", at: "10m",
		series: []string{member("holdfast_mysql_settings_pending_restart", "orders-0", "", "0x10"), member("holdfast_mysql_settings_pending_restart", "orders-1", "", "2x10")},
		want:   []string{`{cluster="orders", namespace="shop"} 2`},
	},
	{
		name: "a primary that takes writes, and a replica", alert: "HoldfastMySQLWritesBlocked", at: "10m",
		series: append(writes("orders-0", "1x10", "0x10", "0x10"), writes("orders-1", "0x10", "1x10", "0x10")...),
	},
	{
		name: "read-only and offline primaries", alert: "HoldfastMySQLWritesBlocked", at: "10m",
		series: append(writes("orders-0", "1x10", "1x10", "0x10"), writes("carts-0", "1x10", "0x10", "1x10")...),
		want:   []string{`{cluster="orders", namespace="shop", pod="orders-0"} 1`, `{cluster="carts", namespace="shop", pod="carts-0"} 1`},
	},
	{
		name: "a server that answers all", alert: "HoldfastMySQLMetricsMissing", at: "10m",
		series: []string{member("holdfast_mysql_scrape_error", "orders-0", `,part="status"`, "1x5 0x5")},
	},
	{
		name: "a part is missing", alert: "HoldfastMySQLMetricsMissing", at: "10m",
		series: []string{member("holdfast_mysql_scrape_error", "orders-0", `,part="status"`, "1x10"), member("holdfast_mysql_scrape_error", "orders-0", `,part="members"`, "0x10")},
		want:   []string{`{namespace="shop", part="status", pod="orders-0"} 1`},
	},
}

// limits are those of flow control.
func limits(pod string) []string {
	return []string{
		member("mysql_global_variables_group_replication_flow_control_applier_threshold", pod, "", "25000x10"),
		member("mysql_global_variables_group_replication_flow_control_certifier_threshold", pod, "", "25000x10"),
	}
}

// writes says whether a member leads and who may write.
func writes(pod, leads, readOnly, offline string) []string {
	return []string{
		member("holdfast_mysql_role", pod, `,role="primary"`, leads),
		member("mysql_global_variables_read_only", pod, "", readOnly), member("mysql_global_variables_offline_mode", pod, "", offline),
	}
}

// Alerts about MySQL are raised for what they say, and for nothing else.
func TestMySQLAlertsAreEvaluated(t *testing.T) {
	checkEvaluations(t, "HoldfastMySQL", mysqlEvaluations)
}

// Alerts about members of every kind are as well.
func TestMemberAlertsAreEvaluated(t *testing.T) {
	checkEvaluations(t, "HoldfastVolume", []evaluation{
		{
			name: "a fifth is free", alert: "HoldfastVolumeNearlyFull", at: "10m",
			series: []string{member("holdfast_volume_available_bytes", "orders-0", "", "20x10"), member("holdfast_volume_size_bytes", "orders-0", "", "100x10")},
		},
		{
			name: "a twentieth is, of one of two", alert: "HoldfastVolumeNearlyFull", at: "10m",
			series: []string{
				member("holdfast_volume_available_bytes", "orders-0", "", "5x10"), member("holdfast_volume_size_bytes", "orders-0", "", "100x10"),
				member("holdfast_volume_available_bytes", "orders-1", "", "50x10"), member("holdfast_volume_size_bytes", "orders-1", "", "100x10"),
			},
			want: []string{`{namespace="shop", pod="orders-0"} 0.05`},
		},
	})
	checkEvaluations(t, "HoldfastCertificate", []evaluation{
		{
			name: "eight days", alert: "HoldfastCertificateExpires", at: "10m",
			series: []string{member("holdfast_certificate_expiry_timestamp_seconds", "orders-0", "", "691800x10")},
		},
		{
			name: "a day", alert: "HoldfastCertificateExpires", at: "10m",
			series: []string{member("holdfast_certificate_expiry_timestamp_seconds", "orders-0", "", "87000x10")},
			want:   []string{`{namespace="shop", pod="orders-0"} 8.64e+04`},
		},
	})
}
