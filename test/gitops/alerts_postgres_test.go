package gitops

import "testing"

var postgresEvaluations = []evaluation{
	{
		name: "a cluster of which one member leads", alert: "HoldfastPostgresNoLeader", at: "10m",
		series: []string{`holdfast_pg_lease_held{namespace="shop",cluster="orders",pod="orders-0"} 0x10`, `holdfast_pg_lease_held{namespace="shop",cluster="orders",pod="orders-1"} 1x10`},
	},
	{
		name: "a cluster without a leader beside one that has one", alert: "HoldfastPostgresNoLeader", at: "10m",
		series: []string{
			`holdfast_pg_lease_held{namespace="shop",cluster="orders",pod="orders-0"} 0x10`, `holdfast_pg_lease_held{namespace="shop",cluster="orders",pod="orders-1"} 1x5 0x5`,
			`holdfast_pg_lease_held{namespace="shop",cluster="carts",pod="carts-0"} 1x10`, `holdfast_pg_lease_held{namespace="other",cluster="orders",pod="orders-0"} 1x10`,
		},
		want: []string{`{cluster="orders", namespace="shop"} 0`},
	},
	{
		name: "fences of before", alert: "HoldfastPostgresFenced", at: "60m",
		series: []string{`holdfast_pg_fences_total{namespace="shop",pod="orders-0"} 0x10 1x50`},
	},
	{
		name: "a fence just now", alert: "HoldfastPostgresFenced", at: "60m",
		series: []string{`holdfast_pg_fences_total{namespace="shop",pod="orders-0"} 0x50 1x10`, `holdfast_pg_fences_total{namespace="shop",pod="orders-1"} 2x60`},
		want:   []string{`{namespace="shop", pod="orders-0"} 1`},
	},
	{
		name: "two changes of the leader, and many before", alert: "HoldfastPostgresLeaderFlapping", at: "60m",
		series: []string{`holdfast_pg_term{namespace="shop",cluster="orders",pod="orders-0"} 0+1x40 40x9 41x4 42x4`},
	},
	{
		name: "three changes, seen by the member that stayed, with terms that were skipped", alert: "HoldfastPostgresLeaderFlapping", at: "60m",
		series: []string{
			`holdfast_pg_term{namespace="shop",cluster="orders",pod="orders-0"} 3x50 4x2 _x3 9x3`,
			`holdfast_pg_term{namespace="shop",cluster="orders",pod="orders-1"} 3x50 4x2 6x3 9x3`,
			`holdfast_pg_term{namespace="shop",cluster="carts",pod="carts-0"} 3x50 9x10`,
		},
		want: []string{`{cluster="orders", namespace="shop"} 3`},
	},
	{
		name: "synchronous standbys that suffice, and a cluster in asynchronous mode", alert: "HoldfastPostgresSynchronousDegraded", at: "10m",
		series: []string{
			`holdfast_pg_synchronous_standbys_streaming{namespace="shop",cluster="orders",pod="orders-0"} 2x10`, `holdfast_pg_synchronous_standbys_wanted{namespace="shop",cluster="orders",pod="orders-0"} 1x10`,
			`holdfast_pg_synchronous_standbys_streaming{namespace="shop",cluster="carts",pod="carts-0"} 0x10`,
		},
	},
	{
		name: "too few synchronous standbys", alert: "HoldfastPostgresSynchronousDegraded", at: "10m",
		series: []string{
			`holdfast_pg_synchronous_standbys_streaming{namespace="shop",cluster="orders",pod="orders-0"} 2x5 1x5`, `holdfast_pg_synchronous_standbys_wanted{namespace="shop",cluster="orders",pod="orders-0"} 2x10`,
		},
		want: []string{`{cluster="orders", namespace="shop", pod="orders-0"} 1`},
	},
	{
		name: "a member that is held no more", alert: "HoldfastPostgresRejoinHeld", at: "20m",
		series: []string{`holdfast_pg_held{namespace="shop",pod="orders-0",reason="DataDiverged"} 1x10`},
	},
	{
		name: "a member that is held by its data, and one with a full volume", alert: "HoldfastPostgresRejoinHeld", at: "10m",
		series: []string{
			`holdfast_pg_held{namespace="shop",pod="orders-0",reason="DataDiverged"} 1x10`, `holdfast_pg_held{namespace="shop",pod="orders-1",reason="VolumeFull"} 1x10`,
		},
		want: []string{`{namespace="shop", pod="orders-0", reason="DataDiverged"} 1`},
	},
}

// Alerts about the leader of PostgreSQL are raised for what they say, and for nothing
// else.
func TestPostgresAlertsAreEvaluated(t *testing.T) {
	checkEvaluations(t, "HoldfastPostgres", postgresEvaluations)
}
