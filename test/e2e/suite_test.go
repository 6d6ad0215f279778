//go:build e2e

package e2e

import (
	"slices"
	"testing"
)

// The kinds that a test is run with.
var (
	onBoth     = kindsTogether()
	onPostgres = []*kind{postgres}
	onEtcd     = []*kind{etcd}
)

// kindTest is a test that is the same for several kinds. The end-to-end tests run it on
// some of them, the soak tests on the others.
type kindTest struct {
	name string
	run  func(*testing.T, *kind)
	on   []*kind
}

// ofEveryKind are the tests that hold for every kind of cluster. They leave the
// operator alone. What the code shared by all kinds promises is tried with one
// kind here, which takes turns, and with every kind by the soak tests. With MySQL there
// is one here that starts no server: FluxIdleSyncs has a group of it.
var ofEveryKind = []kindTest{
	{"Truth", truthOfStatus, onEtcd},
	{"Drift", driftReverted, onPostgres},
	{"DriftModes", driftModes, onPostgres},
	{"DriftContested", driftContested, onEtcd},
	{"Retain", deletionRetains, onPostgres},
	{"GivenUp", recreatedWithoutVolumes, onPostgres},
	{"Delete", deletionDeletes, onEtcd},
	{"KeptVolumes", keptVolumes, onPostgres},
	{"BadInputRefused", badInputRefused, []*kind{etcd, mysql}},
	{"BadInputLiving", badInputLiving, onPostgres},
	{"BadStorageClass", badStorageClass, onEtcd},
	{"FixedVolume", fixedVolume, onPostgres},
	{"NameConflict", nameConflict, onEtcd},
	{"Quota", quotaExceeded, onEtcd},
	{"Admission", admissionLeft, onPostgres},
}

// ofEveryBackup are the tests that hold for every kind that Holdfast makes backups of.
var ofEveryBackup = []kindTest{
	{"Backups", testBackups, onPostgres},
	{"BackupsFail", backupsFail, onEtcd},
	{"Restores", testRestores, onBoth},
	{"RestoresFromStore", restoresFromStore, onPostgres},
	{"RestoresFail", restoresFail, onEtcd},
	{"StoreRefuses", storeRefuses, onPostgres},
	{"StoreDamaged", storeDamaged, onEtcd},
	{"StoreShared", storeShared, onPostgres},
	{"DestinationRemoved", destinationRemoved, onEtcd},
	{"BackupDrill", backupDrill, onPostgres},
}

// ofPostgres are those of PostgreSQL alone.
var ofPostgres = []part{
	{"SeedManifest", seedManifest},
	{"DatabaseSeed", databaseSeed},
	{"Failover", testFailover},
	{"Synchronous", testSynchronous},
	{"FailoverFaults", testFailoverFaults},
	{"Chaos", shortChaos},
	{"Scale", func(t *testing.T) { scaleUnderWrites(t, 5) }},
	{"FrozenPrimary", func(t *testing.T) { frozenPrimaryKeepsVolumes(t, 2) }},
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
	{"MinorUpgrade", func(t *testing.T) { minorUpgrade(t, 2) }},
	{"MovingTag", movingTag},
	{"VolumeGrows", volumeGrows},
	{"VolumesGrowThemselves", volumesGrowThemselves},
	{"FullVolume", fullVolume},
	{"TLS", clientsUseTLS},
	{"OwnCertificate", certificateOfOnesOwn},
	{"OwnCA", caOfOnesOwn},
	{"Examples", testExamples},
	{"Plugin", testPlugin},
	{"Plan", testPlan},
	{"Insights", testInsights},
	{"UI", testUI},
	{"DocsRun", docsRun},
	{"RecoveryGuide", recoveryGuide},
	{"MigrateGuide", migrateGuide},
}

// ofEtcd are those of etcd alone.
var ofEtcd = []part{
	{"EtcdSeedManifest", func(t *testing.T) { etcdSeedManifest(t, newestEtcd("3.7")) }},
	{"EtcdScale", func(t *testing.T) { etcdScale(t, 3, 1) }},
	{"EtcdKilledPods", func(t *testing.T) { etcdKilledPods(t, 0, 1) }},
	{"EtcdUnreachable", etcdUnreachable},
	{"EtcdLostVolumes", func(t *testing.T) { etcdLostVolumes(t, 1, 0) }},      // the first member begins the group
	{"EtcdMajorityLost", func(t *testing.T) { etcdMajorityLost(t, 2, 0, 1) }}, // the first member is lost
	{"EtcdFull", etcdFull},
	{"EtcdPlugin", etcdPlugin},
}

// ofBackups are those of what backups are tested with.
var ofBackups = []part{
	{"StoreArchives", testArchives},
	{"SlowStore", slowStore},
	{"StoreInterrupted", storeInterrupted},
	{"BackupVolumeFull", backupVolumeFull},
	{"StorePointInTime", func(t *testing.T) { restoresToMoments(t, 1000) }},
	{"MySQLStorePointInTime", mysqlMoments},
}

// ofFlux are clusters that come from Git, by Flux's own controller.
var ofFlux = []part{
	{"FluxBadCommit", fluxBadCommit},
	{"FluxDatabase", fluxDatabase},
	{"FluxCommits", fluxCommits},
	{"FluxIdleSyncs", fluxIdleSyncs},
	{"FluxHandEdits", func(t *testing.T) { fluxHandEdits(t, quietMinute) }},
	{"FluxSuspend", fluxSuspend},
	{"FluxAutoscaler", fluxAutoscaler},
}

// TestTogether are the tests that leave the operator alone. They run side by
// side, each in namespaces of its own.
func TestTogether(t *testing.T) {
	parts := slices.Concat(partsOfKinds(isOn), ofPostgres, ofEtcd, ofBackups, ofFlux)
	if runsAll() {
		parts = slices.DeleteFunc(parts, func(p part) bool { return slices.Contains(leftToSoak, p.name) })
	}
	runTogether(t, parts)
}

// isOn says whether the end-to-end tests run a test on a kind.
func isOn(k *kind, on []*kind) bool { return slices.Contains(on, k) }

// partsOfKinds are the tests of every kind, with the kinds that are chosen.
func partsOfKinds(choose func(k *kind, on []*kind) bool) []part {
	var parts []part
	for _, k := range allKinds() {
		parts = append(parts, partsOf(k, ofEveryKind, choose)...)
		if k.saves {
			parts = append(parts, partsOf(k, ofEveryBackup, choose)...)
		}
	}
	return parts
}

// partsOf are tests with a kind, where it is chosen.
func partsOf(k *kind, tests []kindTest, choose func(k *kind, on []*kind) bool) (parts []part) {
	for _, test := range tests {
		if choose(k, test.on) {
			parts = append(parts, part{k.prefix + test.name, func(t *testing.T) { test.run(t, k) }})
		}
	}
	return parts
}

// TestOperators are the tests that stop the operator, count its requests or
// install it another way. Meanwhile the installed one is stopped: each test has
// an operator of its own, for its own namespace, so they run side by side too.
func TestOperators(t *testing.T) {
	stopInstalled(t)
	node := reserveNode(t)
	parts := []part{
		{"Quiet", quietOperated},
		{"EtcdUpgrades", func(t *testing.T) { etcdUpgrades(t, "3.7") }},
		{"EtcdNodeStops", func(t *testing.T) { etcdNodeStops(t, node) }},
		{"StandbyTakesOver", standbyTakesOver},
		{"Installations", testInstallations},
	}
	for _, k := range allKinds() {
		parts = append(parts, partsOf(k, withoutOperator, isOn)...)
	}
	runTogether(t, parts)
}

// testInstallations are ways to install the operator. One after the other takes
// the place of the one that is installed.
func testInstallations(t *testing.T) {
	t.Run("Namespaced", namespacedOperator)
	t.Run("Sharded", shardedOperators)
	t.Run("FluxFromEmpty", fluxFromEmpty)
	t.Run("FluxUpgrades", fluxUpgrades)
	t.Run("Helm", helmInstallation)
}

// withoutOperator are the tests that stop the operator of a kind's clusters. An
// operation that is cut short is every kind's own.
var withoutOperator = []kindTest{
	{"TruthThroughRestart", truthThroughRestart, onPostgres},
	{"DriftWhileDown", driftWhileDown, onEtcd},
	{"CrashAtEachStep", crashAtEachStep, onBoth},
	{"NamespaceEndsWithoutOperator", namespaceEndsWithoutOperator, onPostgres},
}
