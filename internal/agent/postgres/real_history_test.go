//go:build postgres

package postgres

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// snapshot is a copy of a volume at rest.
func snapshot(t *testing.T, volume string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "snapshot")
	if out, err := exec.Command("cp", "-a", volume, copied).CombinedOutput(); err != nil {
		t.Fatalf("copy the volume: %v: %s", err, out)
	}
	return copied
}

// goOn is what the operator passes on when a person accepts an older volume.
func (w *world) goOn(id string) {
	w.t.Helper()
	w.configure(func(c *agentapi.ClusterConfig) { c.OlderData = &postgresapi.OlderDataRequest{ID: id, Pod: "orders-0"} })
}

// outgrown makes a volume, an older copy of it, and a primary that runs on the
// volume and has written what the copy lacks.
func outgrown(t *testing.T) (w *world, volume, old string, primary *run) {
	t.Helper()
	w, volume = newWorld(t, 1), t.TempDir()
	first := w.start(0, volume, "uid-0")
	first.untilRole(v1alpha1.RolePrimary)
	first.stop()
	old = snapshot(t, volume)
	primary = w.start(0, volume, "uid-0b")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.exec("create table public.t as select 1 as n", "checkpoint")
	return w, volume, old, primary
}

func TestRealOldVolumeDoesNotLead(t *testing.T) {
	w, volume, old, primary := outgrown(t)
	primary.stop()

	held := w.start(0, old, "uid-0c")
	held.untilHeld(agentapi.HoldDataStale)
	held.stop()
	back := w.start(0, volume, "uid-0d")
	back.untilRole(v1alpha1.RolePrimary)
	back.stop()

	given := w.start(0, old, "uid-0e")
	given.untilHeld(agentapi.HoldDataStale)
	w.goOn("once")
	if got := given.untilRole(v1alpha1.RolePrimary); readReplication(got).Timeline != 2 || got.Recovered != "once" {
		t.Errorf("leads on timeline %d, request %q", readReplication(got).Timeline, got.Recovered)
	}
}

// A primary that crashed has recorded its last checkpoint.
func TestRealOldVolumeDoesNotLeadAfterACrash(t *testing.T) {
	w, _, old, primary := outgrown(t)
	primary.untilRecorded(primary.query("select checkpoint_lsn::text from pg_control_checkpoint()"))
	primary.o.StopTimeout = 0 // no time for a shutdown in order: the Lease is not released
	primary.stop()

	held := w.start(0, old, "uid-0c")
	held.untilHeld(agentapi.HoldDataStale)
}

func TestRealDivergedReplicaIsKept(t *testing.T) {
	w := newWorld(t, 2)
	zero, one := t.TempDir(), t.TempDir()
	primary := w.start(0, zero, "uid-0")
	replica := w.start(1, one, "uid-1")
	primary.untilRole(v1alpha1.RolePrimary)
	replica.untilRole(v1alpha1.RoleReplica)
	primary.stop()
	old := snapshot(t, zero)

	// The replica runs on, and gets what the snapshot does not have.
	primary = w.start(0, zero, "uid-0b")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.exec("create table public.kept as select 1 as n", "select pg_switch_wal()", "create table public.more as select 1 as n")
	position := primary.query("select pg_current_wal_flush_lsn()::text")
	replica.untilReplayed(position)
	primary.stop()

	// The snapshot leads, for a person said so; the replica sees it running.
	w.goOn("once")
	primary = w.start(0, old, "uid-0c")
	primary.untilRole(v1alpha1.RolePrimary)
	replica.untilHeld(agentapi.HoldDataDiverged)
	replica.stop()

	// The primary passes it, and nothing changes.
	for range 3 {
		primary.exec("create table public.other as select 1 as n", "drop table public.other", "select pg_switch_wal()", "checkpoint")
	}
	mustWrite(t, filepath.Join(one, datavolume.DataName, "mark"), "the newest copy")
	again := w.start(1, one, "uid-1b")
	again.untilHeld(agentapi.HoldDataDiverged)
	if _, err := os.Stat(filepath.Join(one, datavolume.DataName, "mark")); err != nil {
		t.Errorf("the newest copy is gone: %v", err)
	}
	again.stop()

	// A person gives it up.
	last := w.start(1, t.TempDir(), "uid-1c")
	last.untilRole(v1alpha1.RoleReplica)
}
