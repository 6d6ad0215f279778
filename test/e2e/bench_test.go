//go:build e2e && bench

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestBenchCreate measures the time from creation to Ready, with images on the
// nodes. It asserts nothing: these machines are noisy.
func TestBenchCreate(t *testing.T) {
	const runs = 5
	report := "\n| create → Ready | min | median | max |\n|---|---|---|---|\n"
	for _, replicas := range []int32{1, 3} {
		var took []time.Duration
		for range runs {
			began := time.Now()
			newCluster(t, replicas).waitReady()
			took = append(took, time.Since(began).Round(100*time.Millisecond))
		}
		slices.Sort(took)
		report += fmt.Sprintf("| %d members | %s | %s | %s |\n", replicas, took[0], took[runs/2], took[runs-1])
	}
	t.Log(report)
}
