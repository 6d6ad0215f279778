package mysql

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/logarchive"
	"github.com/holdfast-db/holdfast/internal/mysqlversion"
	"github.com/holdfast-db/holdfast/internal/restore"
	"github.com/holdfast-db/holdfast/internal/store"
)

// A backup goes to no older server, and to no other series.
func TestCheckFit(t *testing.T) {
	const size = 1 << 30
	cases := []struct{ name, backup, image, says string }{
		{"the same version", "9.7.4", "9.7.4", ""},
		{"a newer patch", "9.7.4", "9.7.12", ""},
		{"a distribution's mark", "9.7.4-2", "9.7.4", ""},
		{"an older patch", "9.7.4", "9.7.3", `set it to "9.7.4" or newer`},
		{"the next series", "8.4.11", "9.7.4", `set it to "8.4"`},
		{"the series before", "9.7.4", "8.4.11", `set it to "9.7"`},
		{"no version", "", "9.7.4", "unknown version"},
	}
	for _, c := range cases {
		version, ok := mysqlversion.Parse(c.image)
		if !ok {
			t.Fatal(c.image)
		}
		need, err := (&Engine{Version: version}).CheckFit(t.Context(), backup.Manifest{Version: c.backup, DataSize: size})
		switch {
		case c.says == "" && (err != nil || need <= size):
			t.Errorf("%s: %d, %v", c.name, need, err)
		case c.says != "" && (!backup.InVain(err) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestCheckEnd(t *testing.T) {
	const set = "5b8f3c1e-0000-5000-8000-000000000001:1-9"
	cases := []struct{ name, data, manifest, says string }{
		{"the same", set, set, ""},
		{"the same in another form", "5B8F3C1E-0000-5000-8000-000000000001:1-4:5-9", set, ""},
		{"less", "5b8f3c1e-0000-5000-8000-000000000001:1-8", set, "lacks the transactions"},
		{"more", "5b8f3c1e-0000-5000-8000-000000000001:1-10", set, "has beside them"},
		{"a manifest that is none", set, "x", "in the manifest"},
	}
	for _, c := range cases {
		if err := checkEnd(c.data, c.manifest); (err == nil) != (c.says == "") || err != nil && (!backup.InVain(err) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Without an archive beside the backup a target is refused, as it is beside another group's.
func TestTargetWithoutAnArchive(t *testing.T) {
	s, err := store.Open(t.Context(), store.Location{URL: "file://" + t.TempDir()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := backup.Manifest{Namespace: "shop", Cluster: "orders", ClusterUID: "c", Backup: "nightly", SystemIdentifier: "g"}
	target := v1alpha1.RestoreTarget{Latest: true}
	if err := (&Engine{}).CheckArchive(t.Context(), s, m, target); !backup.InVain(err) || !strings.Contains(err.Error(), "without spec.backup.continuous") {
		t.Error(err)
	}
	if err := archiveOf(s, m).ClaimArchive(t.Context(), logarchive.Owner{SystemIdentifier: "h"}); err != nil {
		t.Fatal(err)
	}
	if err := (&Engine{}).CheckArchive(t.Context(), s, m, target); !backup.InVain(err) || !strings.Contains(err.Error(), "is of the group h, and the backup nightly of g") {
		t.Error(err)
	}
}

// A server that exits by itself does not run on the data, and the backup is bad. One that
// was killed says nothing of the data: memory was short, or the pod ends.
func TestAServerThatEnds(t *testing.T) {
	cases := []struct {
		name, script string
		vain         bool
	}{
		{"it fails", "echo '2026-01-01T00:00:00.000000Z 0 [ERROR] [MY-012224] [InnoDB] page is corrupt'; exit 1", true},
		{"it is killed", "kill -9 $$", false},
		{"it is asked to end", "exit 0", false},
	}
	for _, c := range cases {
		programs := server.Programs{Programs: process.Programs{Dir: t.TempDir(), Processes: process.NewProcesses()}}
		if err := os.WriteFile(filepath.Join(programs.Dir, "mysqld"), []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		lock, err := volumelock.LockVolume(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close() //nolint:errcheck // the test ends
		e := &Engine{Programs: programs, RunDir: t.TempDir()}
		if _, err := e.RecoverCopy(t.Context(), restore.Recovery{Dir: t.TempDir(), Lock: lock}); err == nil || backup.InVain(err) != c.vain {
			t.Errorf("%s: a restore: %v", c.name, err)
		}
		if _, err := e.CheckData(t.Context(), lock, t.TempDir()); err == nil || backup.InVain(err) != c.vain {
			t.Errorf("%s: a drill: %v", c.name, err)
		}
	}
}
