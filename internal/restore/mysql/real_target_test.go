//go:build mysql

package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/archiver"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/mysqltest"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/binlogarchive"
	"github.com/holdfast-db/holdfast/internal/logarchive"
	"github.com/holdfast-db/holdfast/internal/restore"
)

// archived is a group of three whose primary archives its binlog.
type archived struct {
	*world
	third   *mysqltest.Member
	writing *mysqltest.Member // where the application writes
	rows    int
}

// archiveRole is the role of a member by what its server says.
type archiveRole struct {
	primary  atomic.Bool
	upstream atomic.Pointer[agentapi.ArchiveStatus]
}

func (r *archiveRole) IsPrimary() bool { return r.primary.Load() }

func (r *archiveRole) AskPrimary(context.Context) *agentapi.ArchiveStatus { return r.upstream.Load() }

func newArchived(t *testing.T) *archived {
	t.Helper()
	members := mysqltest.NewMembers(t, 4)
	a := &archived{world: &world{primary: members[0], secondary: members[1], next: members[3], dir: t.TempDir()}, third: members[2], writing: members[0]}
	for _, m := range members[:3] {
		m.JoinGroupNamed(groupName)
	}
	if err := a.primary.Bootstrap(); err != nil {
		t.Fatal(err)
	}
	a.primary.Start()
	startGroup(t, a.primary, groupName)
	a.primary.Exec("CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY, x VARCHAR(200))")
	for _, m := range members[1:3] {
		if err := m.CloneFrom(a.primary); err != nil {
			t.Fatal(err)
		}
		m.Start()
		if err := m.Group().Join(t.Context(), groupName, true); err != nil {
			t.Fatal(err)
		}
		await(t, m, func(o group.Observation) bool { return o.State == group.Online })
	}
	var roles []*archiveRole
	for range 3 {
		roles = append(roles, &archiveRole{})
	}
	for i, m := range members[:3] {
		a.follow(t, m, roles[i], roles)
	}
	return a
}

// follow runs the archiver of a member beside its server.
func (a *archived) follow(t *testing.T, m *mysqltest.Member, role *archiveRole, all []*archiveRole) {
	t.Helper()
	place := &archiver.Place{
		ArchiveConfig: agentapi.ArchiveConfig{Store: agentapi.BackupStore{URL: "file://" + a.dir}, Prefix: agentapi.ArchivePrefix("shop", "orders", "c-1"), Budget: 1 << 30},
		Owner:         logarchive.Owner{Kind: "MySQLCluster", Namespace: "shop", Cluster: "orders", ClusterUID: "c-1", SystemIdentifier: groupName},
	}
	s := archiver.New(archiver.Options{
		Log: slog.New(slog.DiscardHandler), Volume: m.Volume, DataDirectory: filepath.Join(m.Volume, datavolume.DataName), CredentialsDir: t.TempDir(),
		Place: func() (*archiver.Place, error) { return place, nil }, Space: func() diskspace.Space { return diskspace.SpaceOf(m.Volume) },
		Rotate: time.Second,
		Report: func(said *agentapi.ArchiveStatus) {
			if said != nil && said.Error != "" {
				t.Errorf("%s: %s", m.Pod, said.Error)
			}
			for _, other := range all {
				if said != nil && other != role {
					other.upstream.Store(said)
				}
			}
		},
	})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	db, client := m.DB, m.Group()
	running.Go(func() { s.Follow(ctx, archiver.NewServer(db, filepath.Join(m.Volume, datavolume.DataName)), role) })
	running.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			o, err := client.Observe(ctx)
			p, leads := o.View.Primary()
			role.primary.Store(err == nil && leads && p.UUID == o.UUID && !o.SuperReadOnly)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
}

// write adds rows one after the other, each in a transaction of its own.
func (a *archived) write(t *testing.T, count int) {
	t.Helper()
	for range count {
		a.rows++
		a.writing.Exec(fmt.Sprintf("INSERT INTO app.t VALUES (%d, REPEAT('x', 100))", a.rows))
	}
}

// now is the time by the clock of the primary, between two transactions.
func (a *archived) now(t *testing.T) string {
	t.Helper()
	time.Sleep(20 * time.Millisecond)
	at := a.writing.Query("SELECT DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%dT%H:%i:%s.%fZ')")
	time.Sleep(20 * time.Millisecond)
	return at
}

// awaitArchived waits until all that was written is in the archive.
func (a *archived) awaitArchived(t *testing.T) []binlogarchive.File {
	t.Helper()
	executed := executedBy(t, a.writing)
	s, err := a.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		files, err := (&binlogarchive.Archive{Store: s, Prefix: agentapi.ArchivePrefix("shop", "orders", "c-1")}).ListFiles(t.Context())
		reach, _ := binlogarchive.FindReach(files, executed, nil)
		if err == nil && reach.Contains(executed) {
			return files
		}
		if time.Now().After(deadline) {
			t.Fatalf("the archive reaches %s of %s: %v", reach, executed, err)
		}
	}
}

// failOver kills the primary, and waits for another one.
func (a *archived) failOver(t *testing.T) {
	t.Helper()
	a.primary.Kill()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		for _, m := range []*mysqltest.Member{a.secondary, a.third} {
			o, err := m.Group().Observe(t.Context())
			if p, leads := o.View.Primary(); err == nil && leads && p.UUID == o.UUID && !o.SuperReadOnly {
				a.writing = m
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("no member takes over")
		}
	}
}

// restoreTo restores to a target on a new volume, and says how it ended.
func (a *archived) restoreTo(t *testing.T, target v1alpha1.RestoreTarget) (volume string, said *reports, err error) {
	t.Helper()
	volume = t.TempDir()
	r, said := a.restorer(t, volume, "c-2")
	r.Task.Target = &target
	err = r.RestoreVolume(t.Context())
	return volume, said, err
}

// countRows counts the rows on a volume, which must be those that were written first.
func (a *archived) countRows(t *testing.T, volume string) (rows int) {
	t.Helper()
	lock, err := volumelock.LockVolume(volume)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	engine := &Engine{Programs: a.next.Programs, RunDir: runDir(t)}
	highest := -1
	err = engine.offline(lock, filepath.Join(volume, datavolume.DataName)).Run(t.Context(), func(ctx context.Context, db *sql.DB) error {
		var left int
		err := db.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(MAX(id), 0) FROM app.t").Scan(&rows, &highest)
		return errors.Join(err, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM mysql.slave_relay_log_info WHERE Channel_name = ''").Scan(&left))
	})
	if err != nil || highest != rows {
		t.Fatalf("%d rows, the last one %d: %v", rows, highest, err)
	}
	return rows
}

// Restores end exactly at a time before a failover, at one after it, at a transaction, and with
// the last that was archived. The primary is lost with what it has not archived: that is in
// the binlogs of its successor.
func TestRealPointInTimeOverAFailover(t *testing.T) {
	a := newArchived(t)
	a.write(t, 10)
	a.awaitArchived(t)
	taken := a.backup(t)
	a.write(t, 5)
	before := a.now(t)
	a.write(t, 5)
	a.awaitArchived(t)
	a.write(t, 3) // is not archived by who wrote it
	a.failOver(t)
	a.write(t, 5)
	executed := executedBy(t, a.writing)
	a.writing.Exec("CREATE USER 'clerk'@'%' IDENTIFIED BY 'secret'", "GRANT SELECT ON app.* TO 'clerk'@'%'")
	a.write(t, 1)
	named := executedBy(t, a.writing).Subtract(executed)
	gtid, _ := named.Last()
	after := a.now(t)
	a.write(t, 7)
	files := a.awaitArchived(t)
	servers := map[string]bool{}
	for _, f := range files {
		servers[f.Server] = true
	}
	if len(servers) != 2 {
		t.Errorf("the archive holds files of %d servers", len(servers))
	}

	for _, c := range []struct {
		name   string
		target v1alpha1.RestoreTarget
		rows   int
	}{
		{"a time before the failover", v1alpha1.RestoreTarget{Time: before}, 15},
		{"a time after it", v1alpha1.RestoreTarget{Time: after}, 29},
		{"a transaction", v1alpha1.RestoreTarget{GTID: gtid.String()}, 29},
		{"all", v1alpha1.RestoreTarget{Latest: true}, 36},
	} {
		whole := batchSize
		if c.target.GTID != "" {
			batchSize = 1 // each file by itself
		}
		volume, said, err := a.restoreTo(t, c.target)
		batchSize = whole
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		result := said.last.Result
		if rows := a.countRows(t, volume); rows != c.rows {
			t.Errorf("%s: %d rows, not %d", c.name, rows, c.rows)
		}
		end := parseSet(t, result.EndPosition)
		if !end.Contains(parseSet(t, taken.EndPosition)) || c.target.GTID != "" && !end.Has(gtid) || result.RecoveredTo == nil || result.Target == nil {
			t.Errorf("%s: %+v", c.name, result)
		}
		t.Log(c.name, result.EndPosition, result.RecoveredTo)
	}

	refused := map[string]v1alpha1.RestoreTarget{
		"the archived binlog ends before":            {Time: a.now(t)},
		"lies before the end of the backup":          {Time: "2020-01-01T00:00:00Z"},
		"the archived binlog ends before the transa": {GTID: groupName + ":1000000"},
		"is no place in a binlog of MySQL":           {LSN: "0/5000028"},
	}
	for says, target := range refused {
		if _, _, err := a.restoreTo(t, target); !backup.InVain(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", &target, err)
		}
	}
	a.checkGap(t, files, before)
}

// checkGap takes a file out of the archive: what is before it can be restored, and nothing that
// needs it.
func (a *archived) checkGap(t *testing.T, files []binlogarchive.File, before string) {
	t.Helper()
	newest := files[0]
	for _, f := range files {
		if f.Last.After(newest.Last) {
			newest = f
		}
	}
	// The file before the newest one of the same server that brings something of its own.
	var gone *binlogarchive.File
	for i, f := range files {
		if f.Server == newest.Server && f.File != newest.File && newest.Before.Contains(f.Transactions) {
			if gone == nil || f.Last.After(gone.Last) {
				gone = &files[i]
			}
		}
	}
	if gone == nil {
		t.Fatal("the successor has archived one file")
	}
	if err := os.Remove(filepath.Join(a.dir, agentapi.ArchivePrefix("shop", "orders", "c-1"), gone.String()+".json")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.restoreTo(t, v1alpha1.RestoreTarget{Latest: true}); !backup.InVain(err) || !strings.Contains(err.Error(), "the archive lacks the transactions") {
		t.Errorf("over a gap: %v", err)
	}
	volume, _, err := a.restoreTo(t, v1alpha1.RestoreTarget{Time: before})
	if err != nil {
		t.Fatalf("before the gap: %v", err)
	}
	if rows := a.countRows(t, volume); rows != 15 {
		t.Errorf("before the gap: %d rows", rows)
	}
}

// A restore that is killed while it applies the binlog begins again, and ends at the same place.
// The cluster that begins with it has a group of its own.
func TestRealRestoreToATargetIsKilled(t *testing.T) {
	a := newArchived(t)
	a.write(t, 5)
	a.awaitArchived(t)
	a.backup(t)
	a.write(t, 100)
	at := a.now(t)
	a.write(t, 1)
	a.awaitArchived(t)

	volume := t.TempDir()
	for attempt := range 2 {
		r, _ := a.restorer(t, volume, "c-2")
		r.Task.Target, r.Every = &v1alpha1.RestoreTarget{Time: at}, time.Millisecond
		ctx, kill := context.WithCancel(t.Context())
		r.Reporter = &killing{kill: kill, after: attempt}
		if err := r.RestoreVolume(ctx); err == nil || ctx.Err() == nil {
			t.Fatalf("attempt %d was not killed: %v", attempt, err)
		}
		kill()
	}
	r, said := a.restorer(t, volume, "c-2")
	r.Task.Target = &v1alpha1.RestoreTarget{Time: at}
	if err := r.RestoreVolume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rows := a.countRows(t, volume); rows != 105 || said.last.Result.SystemIdentifier == groupName {
		t.Errorf("%d rows, %+v", rows, said.last.Result)
	}
}

// killing kills a restore after so many reports of how far the binlog is applied.
type killing struct {
	kill  func()
	after int
}

func (k *killing) ReportProgress(_ context.Context, run restore.Run) {
	if run.Step == v1alpha1.RestoreStepRecovering && run.Progress != "" {
		if k.after--; k.after < 0 {
			k.kill()
		}
	}
}

func (k *killing) ReportEnd(context.Context, restore.Run) error { return nil }

// While clients write at once, a restore to a time has what was acknowledged until then, and
// nothing that was begun later.
func TestRealPointInTimeUnderWrites(t *testing.T) {
	a := newArchived(t)
	a.write(t, 1)
	a.awaitArchived(t)
	a.backup(t)
	type span struct{ begun, ended time.Time }
	var mu sync.Mutex
	spans := map[int]span{}
	writing, stop := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for client := range 8 {
		wait.Go(func() {
			for n := 1000 * (client + 1); writing.Err() == nil; n++ {
				begun := time.Now()
				if _, err := a.writing.DB.ExecContext(context.WithoutCancel(writing), "INSERT INTO app.t VALUES (?, 'x')", n); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				spans[n] = span{begun, time.Now()}
				mu.Unlock()
			}
		})
	}
	time.Sleep(2500 * time.Millisecond)
	at := time.Now().UTC().Truncate(time.Microsecond)
	time.Sleep(2500 * time.Millisecond)
	stop()
	wait.Wait()
	a.write(t, 1)
	a.awaitArchived(t)
	volume, _, err := a.restoreTo(t, v1alpha1.RestoreTarget{Time: at.Format("2006-01-02T15:04:05.000000Z")})
	if err != nil {
		t.Fatal(err)
	}
	restored := a.readIDs(t, volume)
	missing, surplus, early := 0, 0, 0
	for n, s := range spans {
		switch {
		case s.ended.Before(at) && !restored[n]:
			missing++
		case s.begun.After(at) && restored[n]:
			surplus++
		case s.ended.Before(at):
			early++
		}
	}
	if missing+surplus > 0 || early == 0 || early == len(spans) {
		t.Errorf("%d rows are missing and %d are too many, of %d; %d were acknowledged before", missing, surplus, len(spans), early)
	}
	t.Logf("%d of %d rows", len(restored), len(spans))
}

// readIDs reads the rows on a volume.
func (a *archived) readIDs(t *testing.T, volume string) map[int]bool {
	t.Helper()
	lock, err := volumelock.LockVolume(volume)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	found := map[int]bool{}
	engine := &Engine{Programs: a.next.Programs, RunDir: runDir(t)}
	err = engine.offline(lock, filepath.Join(volume, datavolume.DataName)).Run(t.Context(), func(ctx context.Context, db *sql.DB) error {
		rows, err := db.QueryContext(ctx, "SELECT id FROM app.t")
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var id int
			if err := rows.Scan(&id); err != nil {
				return err
			}
			found[id] = true
		}
		return rows.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
