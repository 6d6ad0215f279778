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
		seed: readSeed(t), period: 30 * time.Minute, wide: true, freezable: true,
		limits: faultplan.Limits{Shortest: 5 * time.Second, Longest: time.Minute, Alone: aloneKinds()},
	}
	if text := os.Getenv("CHAOS"); text != "" {
		var err error
		options.period, err = time.ParseDuration(text)
		must(t, err, "read CHAOS")
	}
	t.Logf("SEED=%d CHAOS=%s", options.seed, options.period)
	t.Run("Asynchronous", func(t *testing.T) { runChaosOnDisks(t, options) })
	options.synchronous = true
	t.Run("Synchronous", func(t *testing.T) { runChaosOnDisks(t, options) })
}

// readSeed is SEED, or a new one.
func readSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("SEED")
	if text == "" {
		return uint64(time.Now().UnixNano()) //nolint:gosec // any number is a seed
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	must(t, err, "read SEED")
	return seed
}

func runChaosOnDisks(t *testing.T, options chaosOptions) {
	t.Helper()
	needLocalCluster(t)
	options.edits = append(options.edits, onDisks(t, failoverMembers))
	runChaos(t, options)
}
