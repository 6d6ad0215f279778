//go:build e2e && soak

package e2e

import (
	"testing"
	"time"
)

// TestSoakMySQLFailover has each event of MySQL's table happen several times.
func TestSoakMySQLFailover(t *testing.T) {
	needKind(t, mysql)
	measureMySQLFailovers(t, failoverRuns(t, 5), mysqlEvents())
}

// TestSoakMySQL is what MySQL's clusters live through, and what every kind of cluster
// promises, with MySQL: one after the other, for three servers occupy the machine.
func TestSoakMySQL(t *testing.T) {
	needKind(t, mysql)
	for _, p := range []struct {
		name string
		run  func(*trial)
	}{
		{"VolumeLostInOutage", volumeLostInOutage},
		{"LocalWrite", localWrite},
		{"BinlogsPurged", binlogsPurged},
		{"PasswordReplaced", mysqlPasswordReplaced},
	} {
		t.Run(p.name, func(t *testing.T) { p.run(newMySQLTrial(t, failoverMembers)) })
	}
	t.Run("MemoryLimit", func(t *testing.T) {
		memoryLimited(newMySQLTrial(t, failoverMembers, "resources: {limits: {memory: 1Gi}}", "storage: {size: 6Gi}"))
	})
	runAlone(t, []part{{"DatabaseSeed", mysqlDatabaseSeed}, {"CAReplaced", mysqlCAReplaced}, {"Quiet", func(t *testing.T) {
		testQuiet(t, installed, newNamespace(t, ""), []*kind{mysql}, 3, 5*time.Minute)
	}}})
	leftOut := func(k *kind, on []*kind) bool { return !isOn(k, on) }
	t.Run("Kind", func(t *testing.T) { runAlone(t, partsOf(mysql, ofEveryKind, leftOut)) })
	t.Run("Backups", func(t *testing.T) { runAlone(t, partsOf(mysql, ofEveryBackup, leftOut)) })
	t.Run("WithoutOperator", func(t *testing.T) {
		stopInstalled(t)
		runAlone(t, partsOf(mysql, withoutOperator, leftOut))
	})
}

// runAlone runs parts one after the other, each when the clusters of the one before have
// ended.
func runAlone(t *testing.T, parts []part) {
	t.Helper()
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			waitForNamespacesToEnd(t)
			p.run(t)
		})
	}
}
