//go:build postgres

package postgres

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/restore"
)

// What was there when a backup began is there after its restore, on a timeline
// of its own, of the same database system.
func TestRealRestore(t *testing.T) {
	primary := startPrimary(t)
	primary.query(t, "create table rows as select n from generate_series(1, 20000) n")
	primary.query(t, "alter system set recovery_target_name = 'somewhere'") // what ends no recovery of ours
	primary.query(t, "create subscription s connection 'host=/nowhere' publication p with (connect = false)")
	primary.query(t, "alter subscription s enable")
	standby := startStandby(t, primary)
	for name, source := range map[string]*server{"of a primary": primary, "of a standby": standby} {
		t.Run(name, func(t *testing.T) {
			dir, volume := t.TempDir(), t.TempDir()
			taken := source.backup(t, dir)
			r, said := newRestorer(t, dir, volume)
			if err := r.RestoreVolume(t.Context()); err != nil {
				t.Fatal(err)
			}
			result := said.last.Result
			if result == nil || result.SystemIdentifier != taken.SystemIdentifier || result.EndPosition != taken.EndPosition || result.Checksum != taken.Checksum || result.Backup != "nightly" || result.ClusterUID != "c-1" {
				t.Errorf("%+v of %+v", result, taken)
			}
			if names := namesIn(t, volume); names != volumelock.LockFile+" pgdata" {
				t.Errorf("the volume holds %s", names)
			}
			// Another attempt reports the same.
			err := r.RestoreVolume(t.Context())
			if diff := cmp.Diff(result, said.last.Result); err != nil || diff != "" {
				t.Errorf("%v (-first +second):\n%s", err, diff)
			}
			restored := newServer(t)
			restored.data = filepath.Join(volume, "pgdata")
			if text, err := os.ReadFile(filepath.Join(restored.data, "postgresql.auto.conf")); err != nil || !strings.Contains(string(text), "somewhere") {
				t.Errorf("%q, %v", text, err)
			}
			restored.start(t, " -c ssl=off")
			if enabled := restored.query(t, "select string_agg(subname || subenabled, ' ') from pg_subscription"); enabled != "sfalse" {
				t.Errorf("subscriptions: %s", enabled)
			}
			if got := restored.query(t, "select count(*)::text || ' ' || pg_is_in_recovery() || ' ' || timeline_id from rows, pg_control_checkpoint() group by timeline_id"); got != "20000 false 2" {
				t.Errorf("restored: %s", got)
			}
		})
	}
}

func namesIn(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return strings.Join(names, " ")
}

// A restored database is copied and restored in its turn; and an attempt that
// was cut off while the database recovered leaves nothing that the next one
// minds.
func TestRealRestoreAgain(t *testing.T) {
	primary := startPrimary(t)
	primary.query(t, "create table rows as select n from generate_series(1, 20000) n")
	dir, volume := t.TempDir(), t.TempDir()
	primary.backup(t, dir)
	r, said := newRestorer(t, dir, volume)
	ctx, cut := context.WithCancel(t.Context())
	whole := r.Engine
	r.Engine = &cutOff{whole, cut}
	if err := r.RestoreVolume(ctx); err == nil || backup.InVain(err) || said.last.Err == nil {
		t.Fatalf("%v, %+v", err, said.last)
	}
	if names := namesIn(t, volume); names != volumelock.LockFile+" data.restoring restore.json" {
		t.Errorf("the volume holds %s", names)
	}
	r.Engine = whole
	if err := r.RestoreVolume(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := newServer(t)
	second.identity, second.data = primary.identity, filepath.Join(volume, "pgdata")
	second.start(t, "")
	second.query(t, "insert into rows values (20001)")
	dir, volume = t.TempDir(), t.TempDir()
	if taken := second.backup(t, dir); !strings.HasPrefix(taken.EndPosition, "2:") {
		t.Errorf("the copy ends at %s", taken.EndPosition)
	}
	r, _ = newRestorer(t, dir, volume)
	if err := r.RestoreVolume(t.Context()); err != nil {
		t.Fatal(err)
	}
	third := newServer(t)
	third.data = filepath.Join(volume, "pgdata")
	third.start(t, " -c ssl=off")
	if got := third.query(t, "select count(*)::text || ' ' || timeline_id from rows, pg_control_checkpoint() group by timeline_id"); got != "20001 3" {
		t.Errorf("restored: %s", got)
	}
}

// cutOff is asked to stop as soon as the server runs.
type cutOff struct {
	restore.Engine
	cut context.CancelFunc
}

func (c *cutOff) RecoverCopy(ctx context.Context, job restore.Recovery) (restore.Outcome, error) {
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(job.Dir, restore.Recovered, "postmaster.pid")); err == nil {
				c.cut()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return c.Engine.RecoverCopy(ctx, job)
}

// A file that is not what PostgreSQL copied is found, though it is what was
// stored.
func TestRealRestoreOfABadCopy(t *testing.T) {
	primary := startPrimary(t)
	dir, volume := t.TempDir(), t.TempDir()
	primary.backup(t, dir)
	r, _ := newRestorer(t, dir, volume)
	r.Engine = &spoiled{r.Engine}
	if err := r.RestoreVolume(t.Context()); !backup.InVain(err) || !strings.Contains(err.Error(), "refuses the copy") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(volume, "pgdata")); err == nil {
		t.Error("it is in its place")
	}
}

// spoiled changes a byte of what was unpacked.
type spoiled struct{ restore.Engine }

func (s *spoiled) RecoverCopy(ctx context.Context, job restore.Recovery) (restore.Outcome, error) {
	name := filepath.Join(job.Dir, restore.Recovered, "pg_xact", "0000")
	text, err := os.ReadFile(name)
	if err != nil {
		return restore.Outcome{}, err
	}
	text[100] ^= 1
	if err := os.WriteFile(name, text, 0o600); err != nil {
		return restore.Outcome{}, err
	}
	return s.Engine.RecoverCopy(ctx, job)
}
