//go:build e2e

package e2e

import (
	"slices"
	"testing"
)

// The kinds that a test is run with.
var (
	onBoth     = allKinds()
	onPostgres = []*kind{postgres}
	onEtcd     = []*kind{etcd}
)

// ofEveryKind are the tests that hold for every kind of cluster. They leave the
// operator alone. What the code shared by all kinds promises is tried with one
// kind here, and with every kind by the soak tests.
var ofEveryKind = []struct {
	name string
	run  func(*testing.T, *kind)
	on   []*kind
}{
	{"Truth", truthOfStatus, onBoth},
	{"Drift", driftReverted, onBoth},
	{"DriftModes", driftModes, onPostgres},
	{"DriftContested", driftContested, onEtcd},
	{"Retain", deletionRetains, onBoth},
	{"GivenUp", recreatedWithoutVolumes, onPostgres},
	{"Delete", deletionDeletes, onBoth},
	{"KeptVolumes", keptVolumes, onPostgres},
	{"BadInputRefused", badInputRefused, onEtcd},
	{"BadInputLiving", badInputLiving, onPostgres},
	{"BadStorageClass", badStorageClass, onEtcd},
	{"FixedVolume", fixedVolume, onPostgres},
	{"NameConflict", nameConflict, onEtcd},
	{"Quota", quotaExceeded, onEtcd},
	{"Backups", testBackups, onBoth},
	{"BackupsFail", backupsFail, onEtcd},
	{"Restores", testRestores, onBoth},
	{"RestoresFromStore", restoresFromStore, onPostgres},
	{"RestoresFail", restoresFail, onEtcd},
	{"StoreRefuses", storeRefuses, onPostgres},
	{"StoreDamaged", storeDamaged, onEtcd},
	{"StoreShared", storeShared, onPostgres},
	{"Admission", admissionLeft, onPostgres},
	{"DestinationRemoved", destinationRemoved, onEtcd},
	{"BackupDrill", backupDrill, onBoth},
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
	{"Settings", testSettings},
	{"MinorUpgrade", minorUpgrade},
	{"MovingTag", movingTag},
	{"VolumeGrows", volumeGrows},
	{"VolumesGrowThemselves", volumesGrowThemselves},
	{"FullVolume", fullVolume},
	{"TLS", clientsUseTLS},
	{"OwnCertificate", certificateOfOnesOwn},
	{"OwnCA", caOfOnesOwn},
	{"Examples", testExamples},
	{"Plugin", testPlugin},
	{"DocsRun", docsRun},
	{"RecoveryGuide", recoveryGuide},
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
	{"StoreArchives", testArchives},
	{"SlowStore", slowStore},
	{"StoreInterrupted", storeInterrupted},
	{"BackupVolumeFull", backupVolumeFull},
	{"StorePointInTime", restoresToMoments},
}

// TestTogether are the tests that leave the operator alone. They run side by
// side, each in namespaces of its own.
func TestTogether(t *testing.T) {
	shared := partsOfKinds(func(k *kind, on []*kind) bool { return slices.Contains(on, k) })
	runTogether(t, slices.Concat(shared, ofPostgres, ofEtcd, ofBackups))
}

// partsOfKinds are the tests of every kind, with the kinds that are chosen.
func partsOfKinds(choose func(k *kind, on []*kind) bool) []part {
	var parts []part
	for _, k := range allKinds() {
		for _, test := range ofEveryKind {
			if choose(k, test.on) {
				parts = append(parts, part{k.prefix + test.name, func(t *testing.T) { test.run(t, k) }})
			}
		}
	}
	return parts
}

// part of a test.
type part struct {
	name string
	run  func(*testing.T)
}

// runTogether runs parts side by side.
func runTogether(t *testing.T, parts []part) {
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
	t.Run("Quiet", func(t *testing.T) { testQuiet(t, 10, quietMinute, allKinds()...) })
	for _, test := range withoutOperator {
		for _, k := range test.on {
			t.Run(k.prefix+test.name, func(t *testing.T) { test.run(t, k) })
		}
	}
	t.Run("EtcdUpgrades", etcdUpgrades)
	t.Run("EtcdNodeStops", etcdNodeStops)
	t.Run("StandbyTakesOver", standbyTakesOver)
	t.Run("FluxUpgrades", fluxUpgrades)
	t.Run("FluxFromEmpty", fluxFromEmpty)
	t.Run("Namespaced", namespacedOperator)
}

// withoutOperator are the tests that stop the operator of a kind's clusters. An
// operation that is cut short is every kind's own.
var withoutOperator = []struct {
	name string
	run  func(*testing.T, *kind)
	on   []*kind
}{
	{"TruthThroughRestart", truthThroughRestart, onPostgres},
	{"DriftWhileDown", driftWhileDown, onEtcd},
	{"CrashAtEachStep", crashAtEachStep, onBoth},
	{"NamespaceEndsWithoutOperator", namespaceEndsWithoutOperator, onPostgres},
}
