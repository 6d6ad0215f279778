//go:build soak

package e2e

import (
	"testing"
	"time"
)

// TestSoak are long runs of what the end-to-end tests try once.
func TestSoak(t *testing.T) {
	waitForNamespacesToEnd(t)
	t.Run("TenClustersQuietForTenMinutes", func(t *testing.T) { testQuiet(t, installed, newNamespace(t, ""), 10, 10*time.Minute) })
	t.Run("FluxQuietForFiveMinutes", func(t *testing.T) { fluxHandEdits(t, 5*time.Minute) })
	t.Run("Agent", agentOnEachMajor)
	t.Run("TenMomentsOfAGibibyte", tenMoments)
	t.Run("TwentyMinutesOfEveryMinute", func(t *testing.T) { everyMinute(t, 20*time.Minute) })
	t.Run("BackupThroughTroubles", backupThroughTroubles)
	t.Run("OlderDataAtRandom", func(t *testing.T) { olderDataAtRandom(t, olderDataPeriod(t)) })
	t.Run("EtcdVolumesGrow", etcdVolumesGrow)
	for _, k := range allKinds() {
		t.Run(k.prefix+"TwentyKillsAtEachStep", func(t *testing.T) {
			stopInstalled(t)
			for range 20 {
				t.Run("Life", func(t *testing.T) { crashAtEachStep(t, k) })
			}
		})
	}
}
