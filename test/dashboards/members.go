package dashboards

import "fmt"

// memberSelectors are those of dashboards of one cluster: <member> for metrics of chosen
// members, <all> for those of every member, <cluster> for what the operator reports.
func memberSelectors(kind string) map[string]string {
	return map[string]string{
		"member":  `namespace="$namespace", holdfast_cluster="$holdfast_cluster", pod=~"$member"`,
		"all":     `namespace="$namespace", holdfast_cluster="$holdfast_cluster"`,
		"cluster": fmt.Sprintf(`kind=%q, cluster_namespace="$namespace", holdfast_cluster="$holdfast_cluster"`, kind),
	}
}

// memberVariables choose a cluster, and some of its members, by a metric that every member
// of the kind has at all times.
func memberVariables(metric string) []Variable {
	return []Variable{
		{Name: "namespace", Label: "Namespace", Metric: metric, Value: "namespace"},
		{Name: "holdfast_cluster", Label: "Cluster", Metric: metric + `{namespace="$namespace"}`, Value: "holdfast_cluster"},
		{Name: "member", Label: "Member", Metric: metric + `{namespace="$namespace", holdfast_cluster="$holdfast_cluster"}`, Value: "pod", Several: true},
	}
}

// conditions and availability of a cluster, as the operator reports them.
func conditionPanels() []Panel {
	conditions := chart("Conditions", "", "Conditions of the cluster. Reconciling, Stalled and Degraded are true when something is going on.",
		Query{`max by (type) (holdfast_cluster_condition{<cluster>})`, "{{type}}"}).
		withAlerts("HoldfastNotReady", "HoldfastDegraded")
	conditions.Form, conditions.Width = stateTimeline, 16
	available := chart("Availability", "percentunit", "Part of the time that was observed in which the read-write endpoint served.",
		Query{`sum(increase(holdfast_cluster_available_seconds_total{<cluster>}[$__range])) / sum(increase(holdfast_cluster_observed_seconds_total{<cluster>}[$__range]))`, "in the time range"}).
		withSteps(lowerIsWorse(0.99, 0.999)).
		withAlerts("HoldfastWriteBudgetBurnsFast", "HoldfastWriteBudgetBurns", "HoldfastWriteBudgetBurnsSlowly")
	available.Form = stat
	return []Panel{conditions, available}
}

// certificatePanel shows when the first certificate of a member expires.
func certificatePanel() Panel {
	return number("Certificates expire in", "s", "Time until the first certificate of a member expires. Holdfast renews them at two thirds of their time.", lowerIsWorse(7*day, 14*day),
		Query{`min(holdfast_certificate_expiry_timestamp_seconds{<member>}) - time()`, ""}).
		withAlerts("HoldfastCertificateExpires")
}

const day = 86400

// volumePanel shows how full the fullest volume is.
func volumePanel() Panel {
	return number("Volume used", "percentunit", "Used part of the fullest volume.", higherIsWorse(0.8, 0.9),
		Query{`max(1 - holdfast_volume_available_bytes{<member>} / holdfast_volume_size_bytes{<member>})`, ""}).
		withAlerts("HoldfastVolumeNearlyFull", "HoldfastVolumeFullSoon")
}

// scrapedPanel shows whether Prometheus reads every member.
func scrapedPanel() Panel {
	return number("Members not scraped", "short", "Members whose metrics Prometheus cannot read. Their panels and alerts are silent.", anyIsBad("red"),
		Query{`count(up{<all>} == 0) or vector(0)`, ""}).
		withAlerts("HoldfastMemberUnscraped")
}

// volumeChart shows free space over time.
func volumeChart() Panel {
	return chart("Volumes", "bytes", "Free space and size of each volume.",
		Query{`max by (pod) (holdfast_volume_available_bytes{<member>})`, "{{pod}} free"},
		Query{`max by (pod) (holdfast_volume_size_bytes{<member>})`, "{{pod}} size"}).
		withAlerts("HoldfastVolumeNearlyFull", "HoldfastVolumeFullSoon")
}

// agentPanels are about the agents' processes, and the memory of the pods.
func agentPanels() []Panel {
	return []Panel{
		chart("Starts of agents", "short", "Starts of each member's agent in the last hour. An agent starts with its container.",
			Query{`max by (pod) (changes(process_start_time_seconds{<member>}[1h]))`, "{{pod}}"}).
			withSteps(anyIsBadFrom(3)).withAlerts("HoldfastMemberRestarts"),
		chart("Killed for lack of memory", "short", "1 for 15 minutes after a container of a member was killed for lack of memory.",
			Query{`max(time() - holdfast_cluster_oom_kill_timestamp_seconds{<cluster>} < bool 900) or vector(0)`, "killed"}).
			withSteps(anyIsBad("red")).withAlerts("HoldfastMemberOutOfMemory"),
		chart("Memory of agents", "bytes", "Resident memory of each member's agent, without the database.",
			Query{`max by (pod) (process_resident_memory_bytes{<member>})`, "{{pod}}"}),
	}
}

// anyIsBadFrom colours values from a number on.
func anyIsBadFrom(number float64) []Step {
	return []Step{{Colour: "green"}, {Colour: "red", From: number}}
}
