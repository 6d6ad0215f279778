//go:build postgres

package postgres

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/lease"
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

// untilLease waits for what the Lease records.
func (w *world) untilLease(what string, is func(lease.Record) bool) {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		record, _ := w.lease.read()
		if is(record) {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("the Lease is not %s: %+v", what, record)
		}
	}
}

// keepLeading keeps all but the first member from leading, for tests of what becomes of
// one member's data.
func (w *world) keepLeading() {
	w.t.Helper()
	w.configure(func(c *agentapi.ClusterConfig) { c.NoFailover = c.Members[1:] })
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
	before, _ := w.lease.read()
	w.goOn("once")
	if got := given.untilRole(v1alpha1.RolePrimary); readReplication(got).Timeline <= before.HighestTimeline || got.Recovered != "once" {
		t.Errorf("leads on timeline %d after %d, request %q", readReplication(got).Timeline, before.HighestTimeline, got.Recovered)
	}
	if record, _ := w.lease.read(); record.ForcedTimeline != record.Timeline {
		t.Errorf("the Lease does not say that the timeline was forced: %+v", record)
	}
}

// A primary that crashed has recorded how far it had flushed at its last renewal.
func TestRealOldVolumeDoesNotLeadAfterACrash(t *testing.T) {
	w, _, old, primary := outgrown(t)
	flushed := lsn.Parse(1, primary.query("select pg_current_wal_flush_lsn()::text")).Position
	w.untilLease("recorded", func(r lease.Record) bool { return r.Acknowledged.LSN >= flushed })
	primary.o.StopTimeout = 0 // no time for a shutdown in order: the Lease is not released
	primary.stop()

	held := w.start(0, old, "uid-0c")
	held.untilHeld(agentapi.HoldDataStale)
	if message := held.Store.Get().Message; !strings.Contains(message, v1alpha1.AnnotationContinueWithOlderData) {
		t.Errorf("the message does not say what to do: %s", message)
	}
}

func TestRealDivergedReplicaIsKept(t *testing.T) {
	w := newWorld(t, 2)
	w.keepLeading()
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
