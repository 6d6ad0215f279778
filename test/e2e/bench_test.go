//go:build e2e && soak && bench

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
	for _, k := range allKinds() {
		needKind(t, k)
		for _, replicas := range []int32{1, 3} {
			var took []time.Duration
			for n := range runs {
				t.Run(fmt.Sprintf("%s/%d/%d", k.name, replicas, n+1), func(t *testing.T) {
					waitForNamespacesToEnd(t) // what others leave takes the processors
					began := time.Now()
					newSubject(t, k, replicas).waitReady()
					took = append(took, time.Since(began).Round(100*time.Millisecond))
				})
			}
			if t.Failed() {
				return
			}
			slices.Sort(took)
			report += fmt.Sprintf("| %s, %d members | %s | %s | %s |\n", k.name, replicas, took[0], took[runs/2], took[runs-1])
		}
	}
	t.Log(report)
}
