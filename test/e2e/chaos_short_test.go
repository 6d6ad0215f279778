//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/test/faultplan"
)

// shortChaos has faults of single pods strike for two minutes. The seed is always the
// same: another one is for make chaos.
func shortChaos(t *testing.T) {
	runChaos(t, chaosOptions{
		seed: 1, period: 2 * time.Minute,
		limits: faultplan.Limits{Shortest: 2 * time.Second, Longest: 15 * time.Second, Alone: aloneKinds()},
	})
}
