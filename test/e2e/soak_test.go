//go:build soak

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestSoak are long runs of what the end-to-end tests try once.
func TestSoak(t *testing.T) {
	waitForNamespacesToEnd(t)
	t.Run("TenClustersQuietForTenMinutes", func(t *testing.T) { testQuiet(t, installed, newNamespace(t, ""), kindsTogether(), 10, 10*time.Minute) })
	t.Run("FluxQuietForFiveMinutes", func(t *testing.T) { fluxHandEdits(t, 5*time.Minute) })
	t.Run("Agent", agentOnEachMajor)
	t.Run("TenMomentsOfAGibibyte", tenMoments)
	t.Run("TwentyMinutesOfEveryMinute", func(t *testing.T) { everyMinute(t, 20*time.Minute) })
	t.Run("BackupThroughTroubles", backupThroughTroubles)
	t.Run("OlderDataAtRandom", func(t *testing.T) { olderDataAtRandom(t, olderDataPeriod(t)) })
	t.Run("EtcdVolumesGrow", etcdVolumesGrow)
	for _, k := range kindsTogether() {
		t.Run(k.prefix+"TwentyKillsAtEachStep", func(t *testing.T) {
			stopInstalled(t)
			for range 20 {
				t.Run("Life", func(t *testing.T) { crashAtEachStep(t, k) })
			}
		})
	}
}

// waitForNamespacesToEnd lets earlier tests' clusters go, whose end the
// operator would still be busy with.
func waitForNamespacesToEnd(t *testing.T) {
	t.Helper()
	eventually(t, goneTimeout, "the namespaces of other tests end", func(ctx context.Context) error {
		var list corev1.NamespaceList
		if err := env.client.List(ctx, &list, client.MatchingLabels{namespaceLabel: "true"}); err != nil {
			return err
		}
		for _, ns := range list.Items {
			if ns.DeletionTimestamp != nil {
				return fmt.Errorf("%s is still ending", ns.Name)
			}
		}
		return nil
	})
}
