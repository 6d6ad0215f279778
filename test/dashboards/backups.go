package dashboards

func backups() Dashboard {
	return Dashboard{
		File: "backups", Title: "Holdfast / Backups", About: "Backups, restore drills and archives of all clusters.",
		Variables: fleetVariables(), selectors: fleetSelectors(),
		Rows: []Row{
			{"Now", []Panel{
				number("With a schedule", "short", "Clusters with a backup schedule.", nil,
					Query{`count(max by (` + perCluster + `) (holdfast_backup_scheduled{<cluster>})) or vector(0)`, ""}),
				number("Without a good backup", "short", "Clusters with a backup schedule, and no good backup.", anyIsBad("red"),
					Query{`count(max by (` + perCluster + `) (holdfast_backup_scheduled{<cluster>}) unless on (` + perCluster + `) max by (` + perCluster + `) (holdfast_backup_last_success_timestamp_seconds{<cluster>})) or vector(0)`, ""}).
					withAlerts("HoldfastBackupMissing"),
				number("Failed", "short", "Clusters whose newest scheduled backup has failed.", anyIsBad("orange"),
					Query{`sum(max by (` + perCluster + `) (holdfast_backup_last_failed{<cluster>})) or vector(0)`, ""}).
					withAlerts("HoldfastBackupFailed"),
				number("Overdue", "short", "Clusters without a good backup from the last two slots of their schedule.", anyIsBad("red"),
					Query{`sum(max by (` + perCluster + `) (holdfast_backup_overdue{<cluster>})) or vector(0)`, ""}).
					withAlerts("HoldfastBackupOverdue"),
				number("Drills failed", "short", "Clusters whose last restore drill has failed.", anyIsBad("red"),
					Query{`sum(max by (` + perCluster + `) (holdfast_drill_last_failed{<cluster>})) or vector(0)`, ""}).
					withAlerts("HoldfastDrillFailed"),
				number("Drills overdue", "short", "Clusters without a passed drill in the last two slots of their drill schedule.", anyIsBad("orange"),
					Query{`sum(max by (` + perCluster + `) (holdfast_drill_overdue{<cluster>})) or vector(0)`, ""}).
					withAlerts("HoldfastDrillOverdue"),
			}},
			{"Backups", backupPanels()},
			{"Archives", archivePanels()},
		},
	}
}

func backupPanels() []Panel {
	newest := chart("Newest good backups", "dateTimeAsIso", "When the newest good backup of each cluster began.",
		Query{`1000 * max by (` + perCluster + `) (holdfast_backup_last_success_timestamp_seconds{<cluster>})`, ""})
	newest.Form, newest.Width = table, 12
	drills := chart("Restore drills that passed", "dateTimeAsIso", "When the last restore drill of each cluster that passed began.",
		Query{`1000 * max by (` + perCluster + `) (holdfast_drill_last_success_timestamp_seconds{<cluster>})`, ""})
	drills.Form, drills.Width = table, 12
	const named = "{{cluster_namespace}}/{{holdfast_cluster}}"
	return []Panel{
		chart("Age of the newest good backup", "s", "Time since the newest good backup of each cluster began.",
			Query{`time() - max by (` + perCluster + `) (holdfast_backup_last_success_timestamp_seconds{<cluster>})`, named}).
			withAlerts("HoldfastBackupMissing"),
		chart("Size", "bytes", "Stored size of the newest good backup.",
			Query{`max by (` + perCluster + `) (holdfast_backup_last_success_size_bytes{<cluster>})`, named}),
		chart("Duration", "s", "How long the newest good backup took, including verification.",
			Query{`max by (` + perCluster + `) (holdfast_backup_last_success_duration_seconds{<cluster>})`, named}),
		newest, drills,
		chart("Duration of restore drills", "s", "How long the last restore drill took.",
			Query{`max by (` + perCluster + `) (holdfast_drill_last_duration_seconds{<cluster>})`, named}),
	}
}

func archivePanels() []Panel {
	return []Panel{
		chart("Delay", "s", "How long the oldest WAL file or binlog has waited for the store.",
			Query{`max by (namespace, pod) (holdfast_archive_lag_seconds{<members>})`, "{{namespace}}/{{pod}}"}).
			withSteps(higherIsWorse(300, 900)).withAlerts("HoldfastArchiveDelayed"),
		chart("Files that wait", "short", "WAL files or binlogs that wait for the store.",
			Query{`max by (namespace, pod) (holdfast_archive_waiting_files{<members>})`, "{{namespace}}/{{pod}}"}),
		chart("Files archived", "ops", "WAL files or binlogs that the store has accepted, and attempts that failed.",
			Query{`sum by (namespace, pod) (rate(holdfast_archive_archived_total{<members>}[$__rate_interval]))`, "{{namespace}}/{{pod}} archived"},
			Query{`sum by (namespace, pod) (rate(holdfast_archive_failures_total{<members>}[$__rate_interval]))`, "{{namespace}}/{{pod}} failed"}),
		chart("Files discarded", "short", "WAL segments or binlogs that were discarded because the budget was used up.",
			Query{`sum by (namespace, pod) (increase(holdfast_archive_discarded_total{<members>}[$__rate_interval]))`, "{{namespace}}/{{pod}}"}).
			withAlerts("HoldfastArchiveGap"),
		chart("Gaps", "short", "Whether the archive has a gap, now or as last recorded.",
			Query{`max by (namespace, pod) (holdfast_archive_gap{<members>})`, "{{namespace}}/{{pod}}"}).
			withSteps(anyIsBad("red")),
	}
}
