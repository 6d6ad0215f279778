//go:build mysql

package mysql

import (
	"strings"
	"testing"
)

// A table whose tablespace a person discarded has no file, which keeps no backup from being
// whole and no drill from passing. After a restore it is as it was.
func TestRealBackupWithDiscardedTablespaces(t *testing.T) {
	w := newWorld(t)
	w.primary.Exec("CREATE DATABASE `a b`", "CREATE TABLE `a b`.`x/é#y` (id INT PRIMARY KEY)", "CREATE TABLE app.gone (id INT PRIMARY KEY)",
		"ALTER TABLE `a b`.`x/é#y` DISCARD TABLESPACE", "ALTER TABLE app.gone DISCARD TABLESPACE", "ALTER TABLE app.parts DISCARD PARTITION p1 TABLESPACE",
		// A tablespace with a name like those of MySQL's own files.
		"CREATE TABLESPACE relayed ADD DATAFILE 'relay_data.ibd'", "CREATE TABLE app.relayed (id INT PRIMARY KEY) TABLESPACE relayed", "INSERT INTO app.relayed VALUES (1)")
	if taken := w.backup(t); taken.Source != w.secondary.Pod {
		t.Errorf("%+v", taken)
	}
	w.restoreInto(t, w.next, "c-2")
	if got := w.next.Query("SELECT COUNT(*) FROM app.t"); got != "40" {
		t.Errorf("%s rows", got)
	}
	if got := w.next.Query("SELECT COUNT(*) FROM app.relayed"); got != "1" {
		t.Errorf("%s rows in a tablespace of its own", got)
	}
	if err := w.next.Try("SELECT * FROM app.gone"); err == nil || !strings.Contains(err.Error(), "discarded") {
		t.Errorf("a table without a tablespace: %v", err)
	}
	drill, _ := w.restorer(t, t.TempDir(), "c-1/drill")
	report, err := drill.DrillBackup(t.Context())
	if says := strings.Join(report.Checked, "; "); err != nil || !strings.Contains(says, "3 tables were not checked") {
		t.Errorf("%s, %v", says, err)
	}
}
