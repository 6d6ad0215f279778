package dashboards

func drift() Dashboard {
	selectors := fleetSelectors()
	selectors["drift"] = `kind=~"$object_kind", manager=~"$manager"`
	byManager := chart("Changes by field manager", "", "Changes of owned objects since the operator started. A field manager is a name that the client chose.",
		Query{`sum by (manager, kind, action) (holdfast_drift_total{<drift>})`, ""}).
		withAlerts("HoldfastDrift", "HoldfastDriftContested")
	byManager.Form, byManager.Width = table, 12
	synced := chart("Synced", "", "Whether the owned objects of each cluster are as declared.",
		Query{`min by (` + perCluster + `) (holdfast_cluster_condition{<cluster>, type="Synced"})`, "{{cluster_namespace}}/{{holdfast_cluster}}"})
	synced.Form, synced.Width = stateTimeline, 12
	return Dashboard{
		File: "drift", Title: "Holdfast / Drift", About: "Changes that other clients made to owned objects. The operator counts them for all clusters together; status.drift of a cluster has its last ten.",
		Variables: append(fleetVariables(),
			Variable{Name: "object_kind", Label: "Kind of object", Metric: "holdfast_drift_total", Value: "kind", Several: true},
			Variable{Name: "manager", Label: "Field manager", Metric: `holdfast_drift_total{kind=~"$object_kind"}`, Value: "manager", Several: true}),
		selectors: selectors,
		Rows: []Row{
			{"Drift", []Panel{
				number("Not Synced", "short", "Clusters whose owned objects are not as declared.", anyIsBad("orange"),
					Query{`count(min by (` + perCluster + `) (holdfast_cluster_condition{<cluster>, type="Synced"}) == 0) or vector(0)`, ""}),
				number("Changes", "short", "Changes of owned objects since the operator started.", nil,
					Query{`sum(holdfast_drift_total{<drift>}) or vector(0)`, ""}).withAlerts("HoldfastDrift"),
				number("Contested", "short", "Changes since the operator started that another client made again.", anyIsBad("orange"),
					Query{`sum(holdfast_drift_total{<drift>, action="Contested"}) or vector(0)`, ""}).withAlerts("HoldfastDriftContested"),
				chart("Changes over time", "short", "Changes of owned objects by field manager.",
					Query{`sum by (manager, action) (increase(holdfast_drift_total{<drift>}[$__rate_interval]))`, "{{manager}} {{action}}"}).
					withAlerts("HoldfastDrift").of(12, 4),
			}},
			{"Who, and where", []Panel{byManager, synced}},
			{"Applies", []Panel{
				chart("Applies that changed something", "ops", "Server-side applies that changed an object, by its kind.",
					Query{`sum by (kind) (rate(holdfast_apply_total{result=~"created|changed"}[$__rate_interval]))`, "{{kind}}"}).of(12, 8),
				chart("Applies that failed", "ops", "Server-side applies that the API server refused.",
					Query{`sum by (kind) (rate(holdfast_apply_total{result="failed"}[$__rate_interval])) or vector(0)`, "{{kind}}"}).
					withAlerts("HoldfastApplyErrors").of(12, 8),
			}},
		},
	}
}
