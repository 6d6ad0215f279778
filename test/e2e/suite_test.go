//go:build e2e

package e2e

import (
	"slices"
	"testing"
)

// ofEveryKind are the tests that hold for every kind of cluster. They leave the
// operator alone.
var ofEveryKind = []struct {
	name string
	run  func(*testing.T, *kind)
}{
	{"Truth", truthOfStatus},
	{"Drift", driftReverted},
	{"DriftModes", driftModes},
	{"DriftContested", driftContested},
	{"Retain", deletionRetains},
	{"GivenUp", recreatedWithoutVolumes},
	{"Delete", deletionDeletes},
	{"KeptVolumes", keptVolumes},
	{"BadInputRefused", badInputRefused},
	{"BadInputLiving", badInputLiving},
	{"BadStorageClass", badStorageClass},
	{"FixedVolume", fixedVolume},
	{"NameConflict", nameConflict},
	{"Quota", quotaExceeded},
	{"Backups", backups},
	{"BackupsFail", backupsFail},
	{"Restores", restores},
	{"RestoresFromStore", restoresFromStore},
	{"RestoresFail", restoresFail},
	{"StoreRefuses", storeRefuses},
	{"StoreDamaged", storeDamaged},
	{"StoreShared", storeShared},
	{"DestinationRemoved", destinationRemoved},
	{"BackupDrill", backupDrill},
}

// ofPostgres are those of PostgreSQL alone.
var ofPostgres = []part{
	{"SeedManifest", seedManifest},
	{"Scale", scaleUnderWrites},
	{"FrozenPrimary", frozenPrimaryKeepsVolumes},
	{"FailedBackupsLetGo", failedBackupsLetGo},
	{"Lag", laggingReplicaLeaves},
	{"AgentDies", agentDies},
	{"OutdatedPrimaryCrashes", outdatedPrimaryCrashes},
	{"HungServer", hungServer},
	{"OlderData", olderData},
	{"RetainOtherNames", recreatedWithOtherNames},
	{"OtherMajorAdopted", otherMajorAdopted},
	{"Secrecy", secretsStaySecret},
	{"Settings", settings},
	{"MinorUpgrade", minorUpgrade},
	{"MovingTag", movingTag},
	{"VolumeGrows", volumeGrows},
	{"VolumesGrowThemselves", volumesGrowThemselves},
	{"FullVolume", fullVolume},
	{"TLS", clientsUseTLS},
	{"OwnCertificate", certificateOfOnesOwn},
	{"OwnCA", caOfOnesOwn},
	{"Examples", examples},
	{"Plugin", plugin},
	{"DocsRun", docsRun},
}

// ofEtcd are those of etcd alone.
var ofEtcd = []part{
	{"EtcdSeedManifest", etcdSeedManifest},
	{"EtcdScale", etcdScale},
	{"EtcdKilledPods", etcdKilledPods},
	{"EtcdUnreachable", etcdUnreachable},
	{"EtcdLostVolumes", etcdLostVolumes},
	{"EtcdMajorityLost", etcdMajorityLost},
	{"EtcdFull", etcdFull},
	{"EtcdPlugin", etcdPlugin},
}

// ofBackups are those of what backups are tested with.
var ofBackups = []part{
	{"Store", storeKeeps},
	{"WriteTimes", writesHaveTimes},
	{"StoreArchives", archives},
	{"SlowStore", slowStore},
	{"StoreInterrupted", storeInterrupted},
	{"BackupVolumeFull", backupVolumeFull},
	{"StorePointInTime", restoresToMoments},
}

// TestTogether are the tests that leave the operator alone. They run side by
// side, each in namespaces of its own.
func TestTogether(t *testing.T) {
	var parts []part
	for _, k := range kinds() {
		for _, test := range ofEveryKind {
			parts = append(parts, part{k.prefix + test.name, func(t *testing.T) { test.run(t, k) }})
		}
	}
	together(t, slices.Concat(parts, ofPostgres, ofEtcd, ofBackups))
}

// part of a test.
type part struct {
	name string
	run  func(*testing.T)
}

// together runs parts side by side.
func together(t *testing.T, parts []part) {
	t.Helper()
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.run(t)
		})
	}
}

// TestWithOperator are the tests that count what the operator does, or stop
// it. They run after the others and one by one.
func TestWithOperator(t *testing.T) {
	waitForNamespacesToEnd(t)
	t.Run("Quiet", func(t *testing.T) { quiet(t, 10, quietMinute, kinds()...) })
	for _, k := range kinds() {
		withoutOperator(t, k)
	}
	t.Run("EtcdUpgrades", etcdUpgrades)
	t.Run("EtcdNodeStops", etcdNodeStops)
	t.Run("StandbyTakesOver", standbyTakesOver)
	t.Run("FluxUpgrades", fluxUpgrades)
	t.Run("FluxFromEmpty", fluxFromEmpty)
	t.Run("Namespaced", namespacedOperator)
}

// withoutOperator are the tests that stop the operator of a kind's clusters.
func withoutOperator(t *testing.T, k *kind) {
	t.Helper()
	t.Run(k.prefix+"TruthThroughRestart", func(t *testing.T) { truthThroughRestart(t, k) })
	t.Run(k.prefix+"DriftWhileDown", func(t *testing.T) { driftWhileDown(t, k) })
	t.Run(k.prefix+"CrashAtEachStep", func(t *testing.T) { crashAtEachStep(t, k) })
	t.Run(k.prefix+"NamespaceEndsWithoutOperator", func(t *testing.T) { namespaceEndsWithoutOperator(t, k) })
}
