//go:build e2e && soak

package e2e

import (
	"slices"
	"testing"
)

// TestSoakOtherKinds runs what every kind of cluster promises with the kinds
// that the end-to-end tests leave out. TestSoakMySQL does so with MySQL.
func TestSoakOtherKinds(t *testing.T) {
	leftOut := func(k *kind, on []*kind) bool { return !k.alone && !isOn(k, on) }
	t.Run("Together", func(t *testing.T) { runTogether(t, partsOfKinds(leftOut)) })
	t.Run("WithoutOperator", func(t *testing.T) {
		stopInstalled(t)
		parts := []part{{"EtcdUpgrades", func(t *testing.T) { etcdUpgrades(t, "3.5", "3.6", "3.7") }}}
		for _, k := range allKinds() {
			parts = append(parts, partsOf(k, withoutOperator, leftOut)...)
		}
		runTogether(t, parts)
	})
}

// TestSoakLeft runs what make e2e leaves to make soak.
func TestSoakLeft(t *testing.T) {
	parts := partsOfKinds(func(k *kind, on []*kind) bool { return slices.Contains(on, k) })
	parts = slices.Concat(parts, ofPostgres, ofEtcd, ofBackups, ofFlux)
	parts = slices.DeleteFunc(parts, func(p part) bool { return !slices.Contains(leftToSoak, p.name) })
	if len(parts) != len(leftToSoak) {
		t.Errorf("%d of %d parts are left", len(parts), len(leftToSoak))
	}
	runTogether(t, append(parts, part{"FluxIdleSyncs", fluxIdleSyncs}))
}

// TestSoakLongForms are the long forms of what the end-to-end tests try with
// fewer members, and the tests of what these tests themselves rely on.
func TestSoakLongForms(t *testing.T) {
	three := *postgres
	three.several = 3
	runTogether(t, []part{
		{"Scale", func(t *testing.T) { scaleUnderWrites(t, 3, 5) }},
		{"MinorUpgrade", func(t *testing.T) { minorUpgrade(t, 3) }},
		{"EtcdSeedManifest", func(t *testing.T) { etcdSeedManifest(t, oldEtcd, newestEtcd("3.7")) }},
		{"EtcdScale", func(t *testing.T) { etcdScale(t, 3, 5, 3, 1) }},
		{"EtcdKilledPods", func(t *testing.T) { etcdKilledPods(t, 0, 1, 2) }},
		{"EtcdLostVolumes", func(t *testing.T) { etcdLostVolumes(t, 2, 1, 0) }},
		{"EtcdMajorityLost", func(t *testing.T) { etcdMajorityLost(t, 0, 1, 2) }},
		{"FrozenPrimary", func(t *testing.T) { frozenPrimaryKeepsVolumes(t, 3) }},
		{"Backups", func(t *testing.T) { testBackups(t, &three) }},
		{"Restores", func(t *testing.T) { testRestores(t, &three) }},
		{"StorePointInTime", func(t *testing.T) { restoresToMoments(t, 2000) }},
		{"MySQLStorePointInTime", mysqlMoments},
		{"StoreTimelines", restoresAcrossTimelines},
		{"StoreArchiveInFlight", archiveInFlight},
		{"Store", storeKeeps},
		{"WriteTimes", writesHaveTimes},
	})
}
