//go:build postgres

package postgres

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/recovery"
	"github.com/holdfast-db/holdfast/internal/agent/primarylease"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// Data that was restored for a new cluster becomes its primary's, though an
// earlier cluster of the name has left a Lease that knows better; with the new
// cluster's password, and replicas follow it.
func TestRealRestored(t *testing.T) {
	w := newWorld(t, 2)
	volume := t.TempDir()
	bootstrapped := restoredCopy(t, w, volume)
	w.lease.change(func(_ *bool, r *lease.Record, _ *primarylease.Facts) {
		r.Timeline, r.HighestTimeline, r.Shutdown = 9, 9, &lease.Position{Timeline: 9, LSN: 1 << 40}
	})
	w.configure(func(c *agentapi.ClusterConfig) { c.UID, c.SystemIdentifier = "u2", bootstrapped })
	mustWrite(t, filepath.Join(w.secret, passwordFile), "n3w")

	before := w.start(0, snapshot(t, volume), "uid-0b")
	before.until("stalled", func(s agentapi.Status) bool { // without the proof it is any old data
		e := readReplication(s).Election
		return e != nil && strings.Contains(e.Stalled, "is not one that the Lease lets lead")
	})
	before.stop()
	mustWrite(t, filepath.Join(volume, datavolume.DataName, agent.RestoredFile), `{"clusterUID":"u2"}`)
	primary, replica := w.start(0, volume, "uid-0c"), w.start(1, t.TempDir(), "uid-1")
	if got := primary.untilRole(v1alpha1.RolePrimary); got.SystemIdentifier != bootstrapped || readReplication(got).Timeline != 10 {
		t.Errorf("%s on timeline %d", got.SystemIdentifier, readReplication(got).Timeline)
	}
	if rows := primary.query("select count(*)::text from public.rows"); rows != "1000" {
		t.Errorf("%s rows", rows)
	}
	replica.untilRole(v1alpha1.RoleReplica)
	primary.until("prepared", func(s agentapi.Status) bool { return s.Details[postgresapi.DetailOwner] == "app" })
	for password, fits := range map[string]bool{"n3w": true, "s3cret": false} {
		conn, err := pgx.Connect(context.Background(), fmt.Sprintf("host=localhost port=%d user=app password=%s dbname=app sslmode=require", w.agents[0].database, password))
		if (err == nil) != fits {
			t.Errorf("login with %s: %v", password, err)
		}
		if err == nil {
			_ = conn.Close(context.Background())
		}
	}
	if record, _ := w.lease.read(); record.HighestTimeline != 10 || w.lease.facts.Cluster != "u2" {
		t.Errorf("the Lease says %+v", record)
	}
}

// restoredCopy leaves the recovered copy of a cluster that has ended on a
// volume, and returns its system identifier.
func restoredCopy(t *testing.T, w *world, volume string) string {
	t.Helper()
	source := w.start(0, t.TempDir(), "uid-0")
	bootstrapped := source.untilRole(v1alpha1.RolePrimary).SystemIdentifier
	for _, sql := range []string{"create table public.rows as select n from generate_series(1, 1000) n", "checkpoint"} {
		err := source.control.Do(context.Background(), func(ctx context.Context, c *pgx.Conn) error { _, err := c.Exec(ctx, sql); return err })
		if err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(volume, datavolume.DataName)
	_, err := source.programs.Run(context.Background(), "pg_basebackup", "--pgdata="+data, "--dbname="+source.o.copyConnection("orders-0", ""),
		"--wal-method=fetch", "--checkpoint=fast", "--no-password", "--manifest-checksums=SHA256")
	if err != nil {
		t.Fatal(err)
	}
	source.stop()
	lock, err := volumelock.LockVolume(volume)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	socket, err := os.MkdirTemp("/tmp", "hf")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(socket) //nolint:errcheck // a test's own
	end, err := recovery.Copy{Dir: data, Beside: t.TempDir(), Major: source.programs.Major, BinDir: source.o.BinDir, RunDir: socket, Lock: lock}.Recover(context.Background())
	if err != nil || end.SystemIdentifier != bootstrapped || end.Before != 2 || end.Timeline != 3 || !end.Reaches("0/1") || end.Reaches("F/0") {
		t.Fatalf("%+v, %v", end, err)
	}
	return bootstrapped
}
