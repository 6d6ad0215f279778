//go:build mysql

package mysql

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/startplan"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// restoreVolume makes of a member's volume one that a restore has filled for a cluster: the
// data without what identifies its server, and without binlogs.
func (w *world) restoreVolume(ordinal int, uid string) datavolume.Mark {
	w.t.Helper()
	volume := w.volume(ordinal)
	data := filepath.Join(volume, datavolume.DataName)
	entries, err := os.ReadDir(volume)
	if err != nil {
		w.t.Fatal(err)
	}
	remove := []string{filepath.Join(data, "auto.cnf")}
	for _, entry := range entries {
		if entry.Name() != datavolume.DataName {
			remove = append(remove, filepath.Join(volume, entry.Name()))
		}
	}
	for _, pattern := range []string{"binlog.*", "relay*"} {
		files, err := filepath.Glob(filepath.Join(data, pattern))
		if err != nil {
			w.t.Fatal(err)
		}
		remove = append(remove, files...)
	}
	for _, path := range remove {
		if err := os.RemoveAll(path); err != nil {
			w.t.Fatal(err)
		}
	}
	mark, err := datavolume.MarkRestored(data, func(volume string) string { return startplan.NameGroup(uid, volume) })
	if err != nil {
		w.t.Fatal(err)
	}
	proof, err := json.Marshal(agent.Restored{ClusterUID: uid})
	if err == nil {
		err = os.WriteFile(filepath.Join(data, agent.RestoredFile), proof, 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return mark
}

// A cluster begins with restored data, as a group of another name, beside what an earlier
// cluster of the name has left on the Lease. The others clone it, and a restart goes on.
func TestRealRestoredCluster(t *testing.T) {
	w := newWorld(t, 3)
	all := w.config.Members
	w.configure(func(c *agentapi.ClusterConfig) { c.Members = all[:1] })
	source := w.start(0)
	before := source.untilState(agentapi.StateRunning).SystemIdentifier
	source.until("prepared", func(s agentapi.Status) bool { return s.Details["database"] == "app_1" })
	source.exec(createTable, "INSERT INTO app_1.t (x) VALUES ('a')")
	source.stop()
	mark := w.restoreVolume(0, "u2")

	w.configure(func(c *agentapi.ClusterConfig) { c.UID, c.Members, c.SystemIdentifier = "u2", all, mark.Group })
	var runs []*run
	for i := range all {
		runs = append(runs, w.start(i))
	}
	untilWhole(t, runs)
	first := runs[0]
	if id := first.Store.Get().SystemIdentifier; id != mark.Group || id == before {
		t.Errorf("the group is %s: restored as %s from %s", id, mark.Group, before)
	}
	lease, err := w.client.CoordinationV1().Leases("shop").Get(context.Background(), "orders-members", metav1.GetOptions{})
	if err != nil || lease.Annotations[v1alpha1.AnnotationSystemIdentifier] != mark.Group {
		t.Errorf("%+v, %v", lease, err)
	}
	first.exec("INSERT INTO app_1.t (x) VALUES ('b')")
	for _, r := range runs {
		r.until("whole", func(agentapi.Status) bool { return r.query("SELECT COUNT(*) FROM app_1.t") == "2" })
		if executed := r.query("SELECT @@GLOBAL.gtid_executed"); !strings.Contains(executed, before) || !strings.Contains(executed, mark.Group) {
			t.Errorf("%s has %s", r.o.Identity.Pod, executed)
		}
	}
	// All stop, and start again by what is on their volumes.
	for _, r := range runs {
		r.stop()
	}
	runs = nil
	for i := range all {
		runs = append(runs, w.start(i))
	}
	untilWhole(t, runs)
	if got := runs[0].query("SELECT COUNT(*) FROM app_1.t"); got != "2" {
		t.Errorf("%s rows of 2", got)
	}
}
