package dashboards

// fleetSelectors are those of dashboards of many clusters: <cluster> for what the operator
// reports, <members> for metrics of their members.
func fleetSelectors() map[string]string {
	return map[string]string{
		"cluster": `cluster_namespace=~"$namespace", holdfast_cluster=~"$holdfast_cluster"`,
		"members": `namespace=~"$namespace", holdfast_cluster=~"$holdfast_cluster"`,
		// The operator's process has the metric of its election, and no other process has it.
		"operator": `and on (namespace, pod) leader_election_master_status{name="holdfast-leader"}`,
	}
}

// fleetVariables choose clusters.
func fleetVariables() []Variable {
	return []Variable{
		{Name: "namespace", Label: "Namespace", Metric: "holdfast_cluster_info", Value: "cluster_namespace", Several: true},
		{Name: "holdfast_cluster", Label: "Cluster", Metric: `holdfast_cluster_info{cluster_namespace=~"$namespace"}`, Value: "holdfast_cluster", Several: true},
	}
}

// perCluster groups what the operator reports of each cluster.
const perCluster = "kind, cluster_namespace, holdfast_cluster"

func operator() Dashboard {
	return Dashboard{
		File: "operator", Title: "Holdfast / Operator", About: "All clusters at a glance, and the work of the operator.",
		Variables: fleetVariables(), selectors: fleetSelectors(),
		Rows: []Row{
			{"Clusters", fleetPanels()},
			{"Reconciling", reconcilePanels()},
			{"Process", []Panel{
				chart("Memory", "bytes", "Resident memory of each process of the operator.",
					Query{`process_resident_memory_bytes <operator>`, "{{pod}}"}),
				chart("CPU", "short", "Processors that each process of the operator uses.",
					Query{`rate(process_cpu_seconds_total[$__rate_interval]) <operator>`, "{{pod}}"}),
				chart("Goroutines", "short", "Goroutines of each process of the operator.",
					Query{`go_goroutines <operator>`, "{{pod}}"}),
			}},
		},
	}
}

func fleetPanels() []Panel {
	versions := chart("Versions", "", "Clusters with the version that their members run.",
		Query{`max by (` + perCluster + `, version, suspended) (holdfast_cluster_info{<cluster>})`, ""})
	versions.Form, versions.Width = table, 12
	notReady := chart("Conditions that are not as they should be", "", "Clusters that are not Ready, Available, Synced or BackedUp, and those that are Reconciling, Stalled or Degraded. A row without a cluster is always there.",
		Query{`(max by (` + perCluster + `, type) (holdfast_cluster_condition{<cluster>, type=~"Ready|Available|Synced|BackedUp"}) == 0) or (max by (` + perCluster + `, type) (holdfast_cluster_condition{<cluster>, type=~"Reconciling|Stalled|Degraded"}) == 1) or vector(0)`, ""}).
		withAlerts("HoldfastNotReady", "HoldfastDegraded")
	notReady.Form, notReady.Width = table, 12
	return []Panel{
		number("Clusters", "short", "Clusters by kind.", nil,
			Query{`count by (kind) (max by (` + perCluster + `) (holdfast_cluster_info{<cluster>}))`, "{{kind}}"}),
		number("Leaders", "short", "Operators that lead. One does, and the others wait.", []Step{{Colour: "red"}, {Colour: "green", From: 1}, {Colour: "red", From: 2}},
			Query{`sum(leader_election_master_status{name="holdfast-leader"})`, ""}).
			withAlerts("HoldfastNoLeader"),
		number("Not Ready", "short", "Clusters that are not Ready.", anyIsBad("orange"),
			Query{`count(max by (` + perCluster + `) (holdfast_cluster_condition{<cluster>, type="Ready"}) == 0) or vector(0)`, ""}).
			withAlerts("HoldfastNotReady"),
		number("Stalled", "short", "Clusters that wait for a person.", anyIsBad("red"),
			Query{`count(max by (` + perCluster + `) (holdfast_cluster_stalled{<cluster>})) or vector(0)`, ""}).
			withAlerts("HoldfastStalled"),
		number("Degraded", "short", "Clusters that serve with something broken.", anyIsBad("orange"),
			Query{`count(max by (` + perCluster + `) (holdfast_cluster_condition{<cluster>, type="Degraded"}) == 1) or vector(0)`, ""}).
			withAlerts("HoldfastDegraded"),
		number("Suspended", "short", "Clusters that are observed, and not changed.", nil,
			Query{`count(max by (` + perCluster + `) (holdfast_cluster_info{<cluster>, suspended="true"})) or vector(0)`, ""}),
		versions, notReady,
		chart("Stalled by reason", "short", "Clusters that wait for a person, by reason.",
			Query{`count by (reason) (max by (` + perCluster + `, reason) (holdfast_cluster_stalled{<cluster>})) or label_replace(vector(0), "reason", "none", "", "")`, "{{reason}}"}).
			withAlerts("HoldfastStalled"),
		chart("Time without service", "percentunit", "Part of the time that was observed in which the read-write endpoint did not serve.",
			Query{`1 - sum by (` + perCluster + `) (rate(holdfast_cluster_available_seconds_total{<cluster>}[$__rate_interval])) / sum by (` + perCluster + `) (rate(holdfast_cluster_observed_seconds_total{<cluster>}[$__rate_interval]))`, "{{cluster_namespace}}/{{holdfast_cluster}}"}).
			withAlerts("HoldfastWriteBudgetBurnsFast", "HoldfastWriteBudgetBurns", "HoldfastWriteBudgetBurnsSlowly"),
		chart("Members not scraped", "short", "Members whose metrics Prometheus cannot read.",
			Query{`count by (namespace, holdfast_cluster) (up{<members>} == 0) or vector(0)`, "{{namespace}}/{{holdfast_cluster}}"}).
			withAlerts("HoldfastMemberUnscraped"),
	}
}

func reconcilePanels() []Panel {
	return []Panel{
		chart("Passes", "ops", "Passes of each controller, by result.",
			Query{`sum by (controller, result) (rate(controller_runtime_reconcile_total[$__rate_interval]) <operator>)`, "{{controller}} {{result}}"}),
		chart("Passes that failed", "ops", "Passes of each controller that ended with an error.",
			Query{`sum by (controller) (rate(controller_runtime_reconcile_errors_total[$__rate_interval]) <operator>)`, "{{controller}}"}).
			withSteps(anyIsBadFrom(0.05)).withAlerts("HoldfastReconcileErrors"),
		chart("Time of a pass", "s", "99 of 100 passes are shorter.",
			Query{`histogram_quantile(0.99, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket[$__rate_interval]) <operator>)) >= 0`, "{{controller}}"}),
		chart("Queue", "short", "Clusters that wait for their pass.",
			Query{`sum by (name) (workqueue_depth <operator>)`, "{{name}}"}),
		chart("Requests to the API server", "reqps", "Requests of the operator, by method and code. Clusters at rest cause none but the renewals of the Lease.",
			Query{`sum by (method, code) (rate(rest_client_requests_total[$__rate_interval]) <operator>)`, "{{method}} {{code}}"}),
		chart("Applies", "ops", "Server-side applies of owned objects by result. Clusters at rest cause none but the hourly check.",
			Query{`sum by (result) (rate(holdfast_apply_total[$__rate_interval]))`, "{{result}}"}).
			withAlerts("HoldfastApplyErrors"),
	}
}
