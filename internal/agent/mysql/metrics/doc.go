// Package metrics describes the metrics of a member, and reads those that the server
// answers. What mysqld_exporter offers as well has the exporter's name, type and labels,
// as its collectors global_status, global_variables, info_schema.innodb_metrics,
// perf_schema.replication_group_members, perf_schema.replication_group_member_stats and
// perf_schema.eventsstatements give them: https://github.com/prometheus/mysqld_exporter.
// Only the text of statements is no label. Of what those offer, this is the part that
// dashboards and alerts read, so that a member has a bounded number of series whatever its
// server counts.
package metrics
