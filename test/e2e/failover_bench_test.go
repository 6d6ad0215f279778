//go:build e2e && soak && bench

package e2e

import (
	"slices"
	"testing"
)

// TestBenchFailover measures each event of the table of failovers a few times. No time
// is asserted.
func TestBenchFailover(t *testing.T) { measureFailovers(t, failoverRuns(t, 3)) }

// mysqlBenched are the rows of MySQL's table that make bench measures: those of the primary,
// with the operator. The soak test measures all.
var mysqlBenched = []string{"Switchover", "RollingRestart", "PodDeleted", "ServerKilled", "NodeCutOff"}

// TestBenchMySQLFailover does the same with MySQL.
func TestBenchMySQLFailover(t *testing.T) {
	needKind(t, mysql)
	measureMySQLFailovers(t, failoverRuns(t, 3), slices.DeleteFunc(mysqlEvents(), func(e measuredEvent) bool {
		return !slices.Contains(mysqlBenched, e.name)
	}))
}
