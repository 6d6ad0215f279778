//go:build e2e

package e2e

import "testing"

// testFailover: the primary is lost in one way after the other, on one cluster under a
// client that writes. Faults are those of single pods: other tests do not notice.
func testFailover(t *testing.T) {
	needLocalCluster(t)
	f := newFailover(newCluster(t, failoverMembers))
	f.followStatus()
	f.runPart(t, "PodDeleted", func(f *failover) { podDeleted(&f.trial) })
	f.runPart(t, "PostmasterKilled", func(f *failover) { postmasterKilled(&f.trial) })
	f.runPart(t, "PodForced", func(f *failover) { podForced(&f.trial) })
	f.runPart(t, "PrimaryCutOff", func(f *failover) { primaryCutOff(&f.trial) })
	f.runPart(t, "PrimaryFrozen", func(f *failover) { primaryFrozen(&f.trial) })
	f.runPart(t, "Switchover", func(f *failover) { switchover(&f.trial) })
	f.runPart(t, "APIServerUnreachable", func(f *failover) { apiServerUnreachable(f) })
	f.report()
}

// testFailoverFaults are faults that are no loss of the primary, or more than that, on a
// second cluster beside the one of testFailover.
func testFailoverFaults(t *testing.T) {
	needLocalCluster(t)
	f := newFailover(newCluster(t, failoverMembers))
	f.runPart(t, "PrimaryCutFromAPI", func(f *failover) { primaryCutFromAPI(f) })
	f.runPart(t, "LeaseLost", func(f *failover) { leaseLost(f) })
	f.runPart(t, "SuccessorLost", func(f *failover) { successorLost(f) })
	f.runPart(t, "SlotsExhausted", func(f *failover) { slotsExhausted(f) })
	f.report()
}

// TestFailoverAlone are outages that every cluster notices: of a node's network, of the
// operator, and of the API server. It runs beside no other test, and last of them the
// one after which all watches are new.
func TestFailoverAlone(t *testing.T) {
	needLocalCluster(t)
	f := newFailover(newUnwatched(t, failoverMembers))
	f.runPart(t, "NodeDrained", func(f *failover) { nodeDrained(&f.trial) })
	f.runPart(t, "NodeCutOff", func(f *failover) { nodeCutOff(&f.trial) })
	f.runPart(t, "OperatorAway", func(f *failover) { operatorAway(&f.trial) })
	f.runPart(t, "APIServerStopped", func(f *failover) { apiServerStopped(&f.trial) })
	f.report()
}
