//go:build mysql

package mysql

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/binlogarchive"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// awaitArchived waits until the archive reaches what a member has, without a gap from a set on.
func awaitArchived(t *testing.T, dir string, from mysqlgtid.Set, r *run) []binlogarchive.File {
	t.Helper()
	a, err := binlogarchive.Open(t.Context(), agentapi.BackupStore{URL: "file://" + dir}, "shop/orders/u/wal/", nil)
	if err != nil {
		t.Fatal(err)
	}
	executed := executedBy(t, r)
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		files, err := a.ListFiles(t.Context())
		way := binlogarchive.FindWay(files, from)
		if err == nil && way.Gap == nil && way.End.Contains(executed) {
			return files
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d files lead to %s of %s: %+v, %v; %+v", len(files), way.End, executed, way.Gap, err, r.Store.Get().Archive)
		}
	}
}

func executedBy(t *testing.T, r *run) mysqlgtid.Set {
	t.Helper()
	set, err := mysqlgtid.Parse(r.query("SELECT @@GLOBAL.gtid_executed"))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// The agent of the primary archives, and that of its successor goes on from there. The others know
// how far the archive goes, and no server purges by itself. What is turned off ends.
func TestRealAgentsArchive(t *testing.T) {
	w := newWorld(t, 3)
	runs := w.create()
	runs[0].exec(createTable)
	begun := executedBy(t, runs[0])
	dir := t.TempDir()
	w.configure(func(c *agentapi.ClusterConfig) {
		c.Archive = &agentapi.ArchiveConfig{Store: agentapi.BackupStore{URL: "file://" + dir}, Prefix: "shop/orders/u/wal/", Budget: 1 << 30}
	})
	runs[0].exec("INSERT INTO app_1.t (x) VALUES ('a')")
	first := runs[0].until("archiving", func(s agentapi.Status) bool { return s.Archive != nil && s.Archive.Last != "" })
	if !strings.HasPrefix(first.Archive.Last, runs[0].uuid()+"/binlog.") || first.Archive.Error != "" || first.Archive.Gap != nil || first.Archive.Position == "" {
		t.Errorf("%+v", first.Archive)
	}
	awaitArchived(t, dir, begun, runs[0])
	for i, r := range runs {
		if on := r.query("SELECT @@GLOBAL.binlog_expire_logs_auto_purge"); on != "0" {
			t.Errorf("%s purges by itself", r.o.Identity.Pod)
		}
		known := filepath.Join(w.volume(i), ".holdfast-archive.json")
		r.until("knowing the archive", func(agentapi.Status) bool {
			text, err := os.ReadFile(known)
			return err == nil && strings.Contains(string(text), first.Archive.Position)
		})
	}

	runs[0].exec("INSERT INTO app_1.t (x) VALUES ('not archived yet')")
	runs[0].killServer()
	next, _ := findPrimary(t, runs, runs[0])
	next.exec("INSERT INTO app_1.t (x) VALUES ('b')")
	files := awaitArchived(t, dir, begun, next)
	servers := map[string]bool{}
	for _, f := range files {
		servers[f.Server] = true
	}
	if len(servers) != 2 {
		t.Errorf("%d files of %v", len(files), servers)
	}
	if s := next.Store.Get().Archive; s == nil || s.Gap != nil || s.Error != "" {
		t.Errorf("%+v", s)
	}
	untilWhole(t, runs)
	if s := runs[0].Store.Get().Archive; s != nil {
		t.Errorf("a secondary reports %+v", s)
	}
	// What is archived and old enough goes, also on a secondary, and the archive stays whole. A
	// member that has never led still writes its first file.
	w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = map[string]string{"binlog_expire_logs_seconds": "1"} })
	for _, r := range []*run{runs[0], next} {
		deadline := time.Now().Add(150 * time.Second)
		for first := "binlog.000001"; first == "binlog.000001"; time.Sleep(time.Second) {
			text, err := os.ReadFile(filepath.Join(r.o.mysqlDir(), "binlog.index"))
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ = strings.Cut(strings.TrimPrefix(string(text), "./"), "\n")
			if time.Now().After(deadline) {
				t.Fatalf("%s does not purge: %s", r.o.Identity.Pod, text)
			}
		}
	}
	next.exec("INSERT INTO app_1.t (x) VALUES ('c')")
	awaitArchived(t, dir, begun, next)

	w.configure(func(c *agentapi.ClusterConfig) { c.Archive = nil })
	next.until("not archiving", func(s agentapi.Status) bool {
		return s.Archive == nil && next.query("SELECT @@GLOBAL.binlog_expire_logs_auto_purge") == "1"
	})
}
