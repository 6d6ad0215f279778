//go:build postgres

package postgres

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/restore"
)

// past is a cluster that was written to all the time, over a promotion, with its
// log archived and two backups on the way.
type past struct {
	writers
	dir string
	// first and last are the times of the writes; released, the moments around a
	// restore point, and its position.
	begun, turned, ended time.Time
	release              [2]time.Time
	lsn                  string
	early, middle        *v1alpha1.BackupResult
	prepared             int
}

func livedThrough(t *testing.T) *past {
	t.Helper()
	p := &past{dir: t.TempDir(), writers: writers{rows: map[int]span{}}}
	primary := newServer(t)
	primary.init(t)
	primary.archives(t, p.dir, "c-1", "")
	primary.query(t, "create role holdfast_replication login replication")
	primary.query(t, "create table rows (n int primary key)")
	standby := startStandby(t, primary)
	p.write(t, primary, 4)
	time.Sleep(500 * time.Millisecond)
	p.early = primary.backupAs(t, p.dir, "early")
	p.begun = time.Now()
	time.Sleep(2 * time.Second)
	p.middle = standby.backupAs(t, p.dir, "middle")
	time.Sleep(time.Second)
	p.release[0] = time.Now()
	p.lsn = primary.query(t, "select pg_create_restore_point('before the release')::text")
	p.release[1] = time.Now()
	time.Sleep(500 * time.Millisecond)
	p.stop()
	// The standby takes over, is given more than it had, and uses it.
	standby.stop(t)
	standby.archives(t, p.dir, "c-1", " -c max_prepared_transactions=5 -c max_connections=150")
	primary.stop(t)
	standby.promote(t)
	p.turned = time.Now()
	p.write(t, standby, 2)
	p.prepared = -1
	standby.script(t, fmt.Sprintf("begin; insert into rows values (%d); prepare transaction 'p'", p.prepared))
	standby.query(t, "commit prepared 'p'")
	time.Sleep(time.Second)
	p.stop()
	p.ended = time.Now()
	standby.archived(t)
	standby.stop(t)
	return p
}

// stop the writers.
func (p *past) stop() { p.writers.stop() }

// back restores the past to a target, and starts what came back.
func (p *past) back(t *testing.T, target v1alpha1.RestoreTarget) (*server, *v1alpha1.RestoreResult) {
	t.Helper()
	volume := t.TempDir()
	r, said := newRestorer(t, p.dir, volume)
	r.Task.Target = &target
	if err := r.RestoreVolume(t.Context()); err != nil {
		t.Fatal(err)
	}
	restored := newServer(t)
	restored.data = filepath.Join(volume, "pgdata")
	restored.start(t, " -c ssl=off -c max_connections=150 -c max_prepared_transactions=5 -c track_commit_timestamp=on")
	return restored, said.last.Result
}

func stamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000000Z") }

// Whatever the moment, what was acknowledged before it is there, and nothing
// that was begun after it.
func TestRealPointInTime(t *testing.T) {
	p := livedThrough(t)
	before := contents(t, p.dir)
	between := func(from, to time.Time) time.Time {
		return from.Add(time.Duration(rand.Int64N(int64(to.Sub(from))))).Truncate(time.Microsecond)
	}
	settled := p.begun.Add(time.Second) // a backup's end is known to the second
	times := []time.Time{between(settled, p.release[0]), between(settled, p.release[0]), between(p.release[0], p.turned), between(p.turned, p.ended.Add(-100*time.Millisecond))}
	for i, at := range times {
		t.Run(fmt.Sprintf("time %d", i), func(t *testing.T) {
			restored, result := p.back(t, v1alpha1.RestoreTarget{Time: stamp(at)})
			p.check(t, restored.rows(t), at, at)
			if result.RecoveredTo == nil || result.RecoveredTo.After(at) || at.Sub(result.RecoveredTo.Time) > time.Minute {
				t.Errorf("recovered to %v, of %s", result.RecoveredTo, at)
			}
			if diff := cmp.Diff(&v1alpha1.RestoreTarget{Time: stamp(at)}, result.Target); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("another zone", func(t *testing.T) {
		at := times[0]
		restored, _ := p.back(t, v1alpha1.RestoreTarget{Time: at.In(time.FixedZone("", -9000)).Format("2006-01-02T15:04:05.000000-07:00")})
		p.check(t, restored.rows(t), at, at)
	})
	for name, target := range map[string]v1alpha1.RestoreTarget{"position": {LSN: p.lsn}, "restore point": {Name: "before the release"}} {
		t.Run(name, func(t *testing.T) {
			restored, result := p.back(t, target)
			p.check(t, restored.rows(t), p.release[0], p.release[1])
			if result.Backup != "middle" || !strings.HasPrefix(result.EndPosition, "1:") {
				t.Errorf("%+v", result)
			}
		})
	}
	t.Run("latest", func(t *testing.T) {
		restored, result := p.back(t, v1alpha1.RestoreTarget{Latest: true})
		has := restored.rows(t)
		p.check(t, has, p.ended, p.ended)
		if !has[p.prepared] || !strings.HasPrefix(result.EndPosition, "2:") || restored.query(t, "select timeline_id::text from pg_control_checkpoint()") != "3" {
			t.Errorf("%+v, prepared: %t", result, has[p.prepared])
		}
		// What came back archives beside its source, and changes nothing of that.
		restored.stop(t)
		restored.archives(t, p.dir, "c-2", " -c ssl=off -c max_connections=150")
		restored.query(t, "insert into rows values (-2)")
		restored.archived(t)
		after := contents(t, p.dir)
		own := 0
		for name := range after {
			if strings.HasPrefix(name, "/shop/orders/c-2/wal/") {
				delete(after, name)
				own++
			}
		}
		if diff := cmp.Diff(len(before), len(after)); diff != "" || own < 2 {
			t.Errorf("%s, and %d of its own", diff, own)
		}
		for name, text := range before {
			if after[name] != text {
				t.Errorf("%s has changed", name)
			}
		}
	})
	t.Run("the very moment of a commit", func(t *testing.T) { inclusive(t, p) })
	t.Run("what cannot be", func(t *testing.T) { missed(t, p) })
}

// inclusive: what was committed at the target is there, and one microsecond
// earlier it is not.
func inclusive(t *testing.T, p *past) {
	all, _ := p.back(t, v1alpha1.RestoreTarget{Latest: true})
	const exact = `YYYY-MM-DD"T"HH24:MI:SS.US"Z"`
	// The last row of all: no other client commits beside it.
	at := all.query(t, "select to_char(max(pg_xact_commit_timestamp(xmin)) at time zone 'utc', '"+exact+"') from rows")
	n := all.query(t, "select n::text from rows order by pg_xact_commit_timestamp(xmin) desc limit 1")
	moment, err := time.Parse(time.RFC3339, at)
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[time.Time]string{moment: "1", moment.Add(-time.Microsecond): "0"} {
		restored, _ := p.back(t, v1alpha1.RestoreTarget{Time: stamp(target)})
		if got := restored.query(t, "select count(*)::text from rows where n = "+n); got != want {
			t.Errorf("at %s there are %s of row %s, of %s", stamp(target), got, n, at)
		}
	}
}

// missed are moments that are not to be had; each says why, and what would do.
func missed(t *testing.T, p *past) {
	fails := func(t *testing.T, task func(*agentapi.RestoreTask), wants ...string) {
		t.Helper()
		volume := t.TempDir()
		r, _ := newRestorer(t, p.dir, volume)
		task(&r.Task)
		err := r.RestoreVolume(t.Context())
		if !backup.InVain(err) {
			t.Fatalf("it may be tried again: %v", err)
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("it does not say %q: %v", want, err)
			}
		}
		if _, err := os.Stat(filepath.Join(volume, "pgdata")); err == nil {
			t.Error("there is data in its place")
		}
	}
	t.Run("before the first backup", func(t *testing.T) {
		fails(t, func(task *agentapi.RestoreTask) {
			task.Target = &v1alpha1.RestoreTarget{Time: stamp(p.begun.Add(-time.Hour))}
		},
			"no backup ends before it", "begins with the end of early")
	})
	t.Run("before the backup that is named", func(t *testing.T) {
		fails(t, func(task *agentapi.RestoreTask) {
			task.Manifest, task.Target = p.middle.Manifest, &v1alpha1.RestoreTarget{Time: stamp(p.begun.Add(time.Second))}
		}, "lies before the end of the backup middle", "name another one that ends before it: early")
	})
	t.Run("after the end", func(t *testing.T) {
		fails(t, func(task *agentapi.RestoreTask) {
			task.Target = &v1alpha1.RestoreTarget{Time: stamp(p.ended.Add(time.Hour))}
		},
			"ends before the time", "it was recovered to 0/", "the last transaction at "+p.ended.UTC().Format("2006-01-02T15:04"), "target.latest")
	})
	t.Run("a restore point that never was", func(t *testing.T) {
		fails(t, func(task *agentapi.RestoreTask) { task.Target = &v1alpha1.RestoreTarget{Name: "nothing"} },
			"the restore point nothing is not in the archived WAL", "from the backup middle", "name an older backup: early")
	})
	t.Run("a backup whose manifest has a wrong time", func(t *testing.T) {
		at := p.begun.Add(time.Second)
		r, _ := newRestorer(t, p.dir, t.TempDir())
		r.Engine = believing{r.Engine}
		r.Task.Manifest, r.Task.Target = p.middle.Manifest, &v1alpha1.RestoreTarget{Time: stamp(at)}
		early := (*restore.Missed)(nil)
		if err := r.RestoreVolume(t.Context()); !errors.As(err, &early) || !early.Early || !backup.InVain(err) || !strings.Contains(err.Error(), "name an older backup: early") {
			t.Error(err)
		}
	})
	hole(t, p, fails)
}

// hole: log that is missing ends what can be had, and not what lies before it.
func hole(t *testing.T, p *past, fails func(*testing.T, func(*agentapi.RestoreTask), ...string)) {
	segments, err := filepath.Glob(filepath.Join(p.dir, "shop/orders/c-1/wal/00000002/*.zst"))
	if err != nil || len(segments) < 1 {
		t.Fatalf("%v, %v", segments, err)
	}
	gone := segments[0]
	name := strings.TrimSuffix(filepath.Base(gone), ".zst")
	if err := os.Rename(gone, gone+".away"); err != nil {
		t.Fatal(err)
	}
	// The segment of before the turn has what both timelines have.
	record := filepath.Join(p.dir, "shop/orders/c-1/wal/gaps", name+"-"+name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(record), 0o700), os.WriteFile(record, fmt.Appendf(nil, `{"from":%q,"to":%q}`, name, name), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Run("behind a gap", func(t *testing.T) {
		fails(t, func(task *agentapi.RestoreTask) {
			task.Target = &v1alpha1.RestoreTarget{Time: stamp(p.ended.Add(-50 * time.Millisecond))}
		},
			"what follows cannot be had", name, "discarded")
	})
	t.Run("all, with a gap in it", func(t *testing.T) {
		fails(t, func(task *agentapi.RestoreTask) { task.Target = &v1alpha1.RestoreTarget{Latest: true} }, "cannot be followed to its end", name)
	})
	t.Run("before a gap", func(t *testing.T) {
		restored, _ := p.back(t, v1alpha1.RestoreTarget{Name: "before the release"})
		p.check(t, restored.rows(t), p.release[0], p.release[1])
	})
}

// believing takes any backup to end before any target.
type believing struct{ restore.Engine }

func (believing) EndsBefore(backup.Manifest, v1alpha1.RestoreTarget) bool { return true }
