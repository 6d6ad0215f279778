//go:build e2e && soak

package e2e

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/test/faultplan"
)

// TestChaos has faults of every kind strike for the time CHAOS, from the seed SEED or a
// new one, once with asynchronous and once with synchronous replication.
func TestChaos(t *testing.T) {
	waitForNamespacesToEnd(t)
	options := chaosOptions{
		seed: uint64(time.Now().UnixNano()), period: 30 * time.Minute, wide: true, freezable: true, //nolint:gosec // any number is a seed
		limits: faultplan.Limits{Shortest: 5 * time.Second, Longest: time.Minute, Alone: aloneKinds()},
	}
	var err error
	if text := os.Getenv("CHAOS"); text != "" {
		options.period, err = time.ParseDuration(text)
		must(t, err, "read CHAOS")
	}
	if text := os.Getenv("SEED"); text != "" {
		options.seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err, "read SEED")
	}
	t.Logf("SEED=%d CHAOS=%s", options.seed, options.period)
	t.Run("Asynchronous", func(t *testing.T) { runChaosOnDisks(t, options) })
	options.synchronous = true
	t.Run("Synchronous", func(t *testing.T) { runChaosOnDisks(t, options) })
}

func runChaosOnDisks(t *testing.T, options chaosOptions) {
	t.Helper()
	needLocalCluster(t)
	options.edits = append(options.edits, onDisks(t, failoverMembers))
	runChaos(t, options)
}
