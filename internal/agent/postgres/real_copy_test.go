//go:build postgres

package postgres

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// forget makes a primary drop the WAL that an absent member needs.
func (r *run) forget(member string) {
	r.t.Helper()
	r.exec("select pg_drop_replication_slot('" + settings.SlotName(member) + "')")
	for range 8 {
		r.exec("create table public.filler as select 1 as n", "drop table public.filler", "select pg_switch_wal()", "checkpoint")
	}
}

// untilMeasured waits for the size of a primary's data, which is no revision.
func (r *run) untilMeasured() {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); r.Store.Get().DataSize == 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatal("the data is not measured")
		}
	}
}

// smallVolume is one whose free space a test sets, in bytes.
type smallVolume struct{ free atomic.Int64 }

func (v *smallVolume) space(string) diskspace.Space {
	return diskspace.Space{Free: v.free.Load(), Total: 10 << 30}
}

func TestRealCopyWaitsForDiskSpace(t *testing.T) {
	w := newWorld(t, 2)
	w.configure(func(c *agentapi.ClusterConfig) { c.VolumeSize = 64 << 20 })
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.untilMeasured()

	// An empty volume that is too small holds nothing afterwards, and heals.
	second, small := t.TempDir(), &smallVolume{}
	small.free.Store(dataspace.MinimumFree + 1)
	w.spaces = map[int]func(string) diskspace.Space{1: small.space}
	replica := w.start(1, second, "uid-1")
	replica.untilHeld(agentapi.HoldVolumeFull)
	if found := datavolume.FindLeftovers(second); found != (datavolume.Leftovers{}) {
		t.Errorf("a copy that cannot fit left %+v", found)
	}
	if message := replica.Store.Get().Message; !strings.Contains(message, "orders-0 needs") || !strings.Contains(message, "spec.storage.size") {
		t.Errorf("message %q", message)
	}
	small.free.Store(9 << 30)
	replica.untilRole(v1alpha1.RoleReplica)
	replica.stop()

	// Neither is data touched that can no longer follow.
	mustWrite(t, filepath.Join(second, datavolume.DataName, "mark"), "the old copy")
	primary.forget("orders-1")
	small.free.Store(dataspace.MinimumFree + 1)
	again := w.start(1, second, "uid-1b")
	again.untilHeld(agentapi.HoldVolumeFull)
	if found := datavolume.FindLeftovers(second); found != (datavolume.Leftovers{Data: true}) {
		t.Errorf("a copy that cannot fit left %+v", found)
	}
	if _, err := os.Stat(filepath.Join(second, datavolume.DataName, "mark")); err != nil {
		t.Errorf("the old copy is gone: %v", err)
	}
	small.free.Store(9 << 30)
	again.untilRole(v1alpha1.RoleReplica)
	if _, err := os.Stat(filepath.Join(second, datavolume.DataName, "mark")); err == nil {
		t.Error("the data was not copied again")
	}
}

// untilReplayed waits for a replica to have replayed up to a position.
func (r *run) untilReplayed(position string) {
	r.t.Helper()
	sql := "select coalesce(pg_last_wal_replay_lsn() >= '" + position + "'::pg_lsn, false)"
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		replayed := false
		// A replica that must copy its data again restarts on the way.
		err := r.control.Do(context.Background(), func(ctx context.Context, c *pgx.Conn) error { return c.QueryRow(ctx, sql).Scan(&replayed) })
		if err == nil && replayed {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s is not replayed: %v", position, err)
		}
	}
}
