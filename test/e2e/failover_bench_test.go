//go:build e2e && bench

package e2e

import "testing"

// TestBenchFailover measures each event of the table of failovers a few times. No time
// is asserted.
func TestBenchFailover(t *testing.T) { measureFailovers(t, failoverRuns(t, 3)) }
