//go:build e2e && soak

package e2e

import "testing"

// TestSoakFailover has each event of the table of failovers happen many times.
func TestSoakFailover(t *testing.T) { measureFailovers(t, failoverRuns(t, 10)) }
