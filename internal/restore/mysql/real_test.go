//go:build mysql

// These tests copy and restore real members:
//
//	HOLDFAST_MYSQL=$(cluster mysql 9.7) go test -tags mysql -run Real ./internal/restore/mysql/
package mysql

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/clone"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/mysqltest"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/startplan"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	backupmysql "github.com/holdfast-db/holdfast/internal/backup/mysql"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
	"github.com/holdfast-db/holdfast/internal/restore"
	"github.com/holdfast-db/holdfast/internal/store"
)

const (
	groupName  = "5b8f3c1e-0000-5000-8000-000000000001"
	secondName = "5b8f3c1e-0000-4000-8000-000000000002"
)

// world is a group of two members, a third without data, and a store for backups.
type world struct {
	primary, secondary, next *mysqltest.Member
	dir                      string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	members := mysqltest.NewMembers(t, 3)
	w := &world{primary: members[0], secondary: members[1], next: members[2], dir: t.TempDir()}
	for _, m := range members[:2] {
		m.JoinGroupNamed(groupName)
	}
	if err := w.primary.Bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.primary.Start()
	startGroup(t, w.primary, groupName)
	w.primary.Exec("CREATE DATABASE app", "CREATE DATABASE nothing",
		"CREATE TABLE app.t (id INT PRIMARY KEY AUTO_INCREMENT, x VARCHAR(200), KEY (x))",
		"CREATE TABLE app.small (id INT PRIMARY KEY AUTO_INCREMENT, x TEXT) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4",
		"CREATE TABLE app.pages (id INT PRIMARY KEY AUTO_INCREMENT, x TEXT) COMPRESSION='zlib'",
		// Every place that MySQL has for tables, and names like those of its own files.
		"CREATE TABLE app.parts (id INT PRIMARY KEY, x INT) PARTITION BY HASH (id) PARTITIONS 3",
		"CREATE TABLE app.words (id INT PRIMARY KEY AUTO_INCREMENT, x TEXT, FULLTEXT KEY (x))",
		"CREATE TABLE app.`a b.c#/d` (id INT PRIMARY KEY)",
		"CREATE TABLESPACE extra ADD DATAFILE 'extra.ibd'", "CREATE TABLE app.elsewhere (id INT PRIMARY KEY) TABLESPACE extra",
		"CREATE UNDO TABLESPACE undo_three ADD DATAFILE 'undo_three.ibu'",
		"CREATE EVENT app.cloned ON SCHEDULE EVERY 1 DAY DO DELETE FROM app.small WHERE id < 0")
	for _, name := range []string{"relay_log", "binlog", "ibtmp1_old", "undo_old"} {
		w.primary.Exec("CREATE DATABASE "+name, "CREATE TABLE "+name+".t (id INT PRIMARY KEY)", "INSERT INTO "+name+".t VALUES (1)")
	}
	for range 20 {
		w.primary.Exec("INSERT INTO app.t (x) VALUES (REPEAT('a', 200)), (REPEAT('b', 200))", "INSERT INTO app.small (x) VALUES (REPEAT('c', 6000))", "INSERT INTO app.pages (x) VALUES (REPEAT('d', 6000))")
	}
	if err := w.secondary.CloneFrom(w.primary); err != nil {
		t.Fatal(err)
	}
	w.secondary.Start()
	if err := w.secondary.Group().Join(t.Context(), groupName, true); err != nil {
		t.Fatal(err)
	}
	await(t, w.secondary, func(o group.Observation) bool { return o.State == group.Online })
	return w
}

// startGroup has a member start its group, and waits until it takes writes.
func startGroup(t *testing.T, m *mysqltest.Member, name string) {
	t.Helper()
	if err := m.Group().Boot(t.Context(), name, true); err != nil {
		t.Fatal(err)
	}
	await(t, m, func(o group.Observation) bool {
		p, ok := o.View.Primary()
		return ok && p.UUID == o.UUID && !o.SuperReadOnly
	})
}

func await(t *testing.T, m *mysqltest.Member, is func(group.Observation) bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		o, err := m.Group().Observe(t.Context())
		if err == nil && is(o) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %+v, %v", m.Pod, o, err)
		}
	}
}

// runDir is short: a socket's path has 107 bytes at most.
func runDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hfmy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func sourceOf(m *mysqltest.Member) agentapi.BackupSource {
	return agentapi.BackupSource{Name: m.Pod, Address: fmt.Sprintf("%s:%d", mysqltest.Host, m.Port)}
}

// source is what a Job copies with, whose certificate has a name.
func (w *world) source(t *testing.T, certificate string) *backupmysql.Source {
	t.Helper()
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(w.primary.Settings().CertificateDir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	return &backupmysql.Source{
		Identity: backup.Identity{CertPEM: read(certificate + ".crt"), KeyPEM: read(certificate + ".key"), RootsPEM: read("ca.crt")},
		Programs: w.primary.Programs, Group: groupName, Members: []agentapi.BackupSource{sourceOf(w.secondary), sourceOf(w.primary)},
		Scratch: t.TempDir(), RunDir: runDir(t), Patience: store.Patience{First: time.Second, Longest: time.Second, Total: time.Minute},
		Bandwidth: 200 << 20,
	}
}

func (w *world) open(ctx context.Context) (*store.Store, error) {
	return store.Open(ctx, store.Location{URL: "file://" + w.dir}, nil)
}

type concluded struct{ run v1alpha1.BackupRun }

func (c *concluded) ReportProgress(context.Context, v1alpha1.BackupRun) {}

func (c *concluded) ReportEnd(_ context.Context, run v1alpha1.BackupRun) error {
	c.run = run
	return nil
}

// backup takes a backup of the first member that can be copied. The group has gone on under
// other names.
func (w *world) backup(t *testing.T, otherNames ...string) *v1alpha1.BackupResult {
	t.Helper()
	source, said := w.source(t, "copier"), &concluded{}
	source.OtherNames = otherNames
	taker := &backup.Taker{
		Task: agentapi.BackupTask{Namespace: "shop", Name: "nightly", UID: "b-1", Kind: "MySQLCluster", Cluster: "orders", ClusterUID: "c-1", Prefix: "shop/orders/c-1/nightly-b-1/",
			Sources: []agentapi.BackupSource{sourceOf(w.primary), sourceOf(w.secondary)}, SystemIdentifier: groupName},
		Pod: "attempt", Log: slog.New(slog.DiscardHandler), Reporter: said, Open: w.open,
		Source: func(agentapi.BackupTask) (backup.Source, error) { return source, nil },
	}
	if err := taker.TakeBackup(t.Context()); err != nil {
		t.Fatal(err)
	}
	return said.run.Result
}

type reports struct{ last restore.Run }

func (r *reports) ReportProgress(context.Context, restore.Run) {}

func (r *reports) ReportEnd(_ context.Context, run restore.Run) error {
	r.last = run
	return nil
}

func (w *world) restorer(t *testing.T, volume, uid string) (*restore.Restorer, *reports) {
	t.Helper()
	_, version, err := w.primary.Programs.ReadVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	said := &reports{}
	return &restore.Restorer{
		Task:   agentapi.RestoreTask{Namespace: "shop", Name: "again", UID: uid, Kind: "MySQLCluster", Member: "again-0", Prefix: "shop/orders/"},
		Volume: volume, Open: w.open, Reporter: said, Log: slog.New(slog.DiscardHandler),
		Engine: &Engine{Cluster: uid, Programs: w.primary.Programs, Version: version, RunDir: runDir(t)},
	}, said
}

// restoreInto restores the newest backup on the volume of a member for a cluster, and starts
// the group that it begins.
func (w *world) restoreInto(t *testing.T, m *mysqltest.Member, uid string) datavolume.Observation {
	t.Helper()
	_ = m.Lock.Close()
	r, said := w.restorer(t, m.Volume, uid)
	if err := r.RestoreVolume(t.Context()); err != nil {
		t.Fatal(err)
	}
	var err error
	if m.Lock, err = volumelock.LockVolume(m.Volume); err != nil {
		t.Fatal(err)
	}
	v, err := datavolume.InspectVolume(m.Volume)
	if err != nil || v.Content != datavolume.ContentData || v.RestoredFor != uid || v.Restored.Group != said.last.Result.SystemIdentifier || v.HasRecord {
		t.Fatalf("%+v, %v, of %+v", v, err, said.last.Result)
	}
	if v.Restored.Group == groupName || v.Restored.Group != startplan.NameGroup(uid, v.Restored.Volume) {
		t.Errorf("the group is named %s", v.Restored.Group)
	}
	if err := datavolume.AdoptRestored(m.Volume); err != nil {
		t.Fatal(err)
	}
	m.JoinGroupNamed(v.Restored.Group)
	m.Start()
	startGroup(t, m, v.Restored.Group)
	return v
}

// What a secondary had is there after a restore, in a group of a new name and on a server
// with a new UUID. A drill finds it sound.
func TestRealBackupAndRestore(t *testing.T) {
	w := newWorld(t)
	w.primary.Exec("CREATE EVENT app.replicated ON SCHEDULE EVERY 1 DAY DO DELETE FROM app.small WHERE id < 0")
	taken := w.backup(t)
	if taken.Source != w.secondary.Pod || taken.SystemIdentifier != groupName || taken.EndPosition == "" || taken.EndPosition != taken.StartPosition {
		t.Fatalf("%+v", taken)
	}
	w.primary.Exec("INSERT INTO app.t (x) VALUES ('later')")
	server := w.primary.Query("SELECT @@GLOBAL.server_uuid")

	next := w.next
	v := w.restoreInto(t, next, "c-2")
	for query, want := range map[string]string{
		"SELECT COUNT(*) FROM app.t": "40", "SELECT COUNT(*) FROM app.small": "20", "SELECT COUNT(*) FROM app.pages": "20",
		"SELECT COUNT(*) FROM relay_log.t": "1", "SELECT COUNT(*) FROM binlog.t": "1", "SELECT COUNT(*) FROM ibtmp1_old.t": "1", "SELECT COUNT(*) FROM undo_old.t": "1",
		"SELECT COUNT(*) FROM app.elsewhere": "0", "SELECT COUNT(*) FROM app.`a b.c#/d`": "0",
		"SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'nothing'": "1",
		// As on the secondary: it has replicated one, and had the other when it was cloned.
		"SELECT STATUS FROM information_schema.EVENTS WHERE EVENT_NAME = 'replicated'": "REPLICA_SIDE_DISABLED",
		"SELECT STATUS FROM information_schema.EVENTS WHERE EVENT_NAME = 'cloned'":     "ENABLED",
		"SELECT COUNT(*) FROM mysql.user WHERE user LIKE 'holdfast%'":                  "4",
	} {
		if got := next.Query(query); got != want {
			t.Errorf("%s: %s, not %s", query, got, want)
		}
	}
	if uuid := next.Query("SELECT @@GLOBAL.server_uuid"); uuid == server || uuid == w.secondary.Query("SELECT @@GLOBAL.server_uuid") {
		t.Error("the server has the UUID of one that was copied")
	}
	next.Exec("INSERT INTO app.t (x) VALUES ('new')", "CREATE TABLE nothing.t (id INT PRIMARY KEY)")
	if executed := next.Query("SELECT @@GLOBAL.gtid_executed"); !strings.Contains(executed, v.Restored.Group) || !strings.Contains(executed, groupName) {
		t.Errorf("transactions %s", executed)
	}

	drill, _ := w.restorer(t, t.TempDir(), "c-1/drill")
	report, err := drill.DrillBackup(t.Context())
	says := strings.Join(report.Checked, "; ")
	if err != nil || report.Backup != "nightly" || !strings.Contains(says, "sound, with their indexes") || !strings.Contains(says, "have no checksum to compare") {
		t.Errorf("%+v, %v", report, err)
	}
	t.Log(says)
}

// Each transaction that a backup says it has is in the data, and no other, while an
// application writes: each adds a row.
func TestRealBackupUnderWrites(t *testing.T) {
	w := newWorld(t)
	w.primary.Exec("CREATE TABLE app.w (id INT PRIMARY KEY AUTO_INCREMENT, x VARCHAR(100))")
	before := executedBy(t, w.primary)
	writing, stop := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for writing.Err() == nil {
				_, _ = w.primary.DB.ExecContext(writing, "INSERT INTO app.w (x) VALUES (REPEAT('w', 100))")
			}
		})
	}
	taken := w.backup(t)
	stop()
	wait.Wait()
	// The last write of each may have ended without an answer.
	if missing := executedBy(t, w.primary).Subtract(parseSet(t, taken.EndPosition)); missing.IsEmpty() {
		t.Fatal("nothing was written after the copy")
	}
	written := parseSet(t, taken.EndPosition).Subtract(before).Count()
	if written == 0 {
		t.Fatal("nothing was written during the copy")
	}
	v := w.restoreInto(t, w.next, "c-2")
	if got := w.next.Query("SELECT COUNT(*) FROM app.w"); got != strconv.FormatInt(written, 10) {
		t.Errorf("%s rows of %d transactions", got, written)
	}
	if has := executedBy(t, w.next); !has.Only(groupName).IsEqual(parseSet(t, taken.EndPosition)) {
		t.Errorf("it has %s, and the backup %s; its own are of %s", has, taken.EndPosition, v.Restored.Group)
	}
}

func parseSet(t *testing.T, text string) mysqlgtid.Set {
	t.Helper()
	set, err := mysqlgtid.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func executedBy(t *testing.T, m *mysqltest.Member) mysqlgtid.Set {
	t.Helper()
	return parseSet(t, m.Query("SELECT @@GLOBAL.gtid_executed"))
}

// A group that a person had go on without lost members numbers its transactions under
// another name. It is the same system, and its only member is copied.
func TestRealBackupOfAGroupThatWentOn(t *testing.T) {
	w := newWorld(t)
	w.secondary.Kill()
	w.primary.Kill()
	w.primary.Start()
	startGroup(t, w.primary, secondName)
	w.primary.Exec("INSERT INTO app.t (x) VALUES ('went on')")

	_, err := w.source(t, "copier").CopyMember(t.Context(), sourceOf(w.primary), io.Discard)
	if !backup.InVain(err) || !strings.Contains(err.Error(), secondName) {
		t.Errorf("under a name that the task does not have: %v", err)
	}
	taken := w.backup(t, secondName)
	if taken.SystemIdentifier != groupName || !strings.Contains(taken.EndPosition, groupName) || !strings.Contains(taken.EndPosition, secondName) {
		t.Fatalf("%+v", taken)
	}
	v := w.restoreInto(t, w.next, "c-2")
	w.next.Exec("INSERT INTO app.t (x) VALUES ('new')")
	has := executedBy(t, w.next)
	if !has.Contains(parseSet(t, taken.EndPosition)) || has.Only(v.Restored.Group).IsEmpty() || w.next.Query("SELECT COUNT(*) FROM app.t WHERE x = 'went on'") != "1" {
		t.Errorf("transactions %s of %s", has, taken.EndPosition)
	}
	// A backup of the restored group has all three names.
	third := w.source(t, "copier")
	third.Group, third.Members = v.Restored.Group, nil
	facts, err := third.CopyMember(t.Context(), sourceOf(w.next), io.Discard)
	if err != nil || facts.SystemIdentifier != v.Restored.Group || !parseSet(t, facts.End).IsEqual(has) {
		t.Errorf("%+v, %v", facts, err)
	}
}

// A member is cloned by one client at a time: a Job waits, and then makes a whole copy, over
// what an attempt before has left.
func TestRealBackupWaitsForAnotherClone(t *testing.T) {
	w := newWorld(t)
	w.next.JoinGroupNamed(groupName)
	if err := w.next.Bootstrap(); err != nil {
		t.Fatal(err)
	}
	w.next.Start()
	slow, stop := context.WithCancel(t.Context())
	defer stop()
	cloned := make(chan error, 1)
	conn, err := w.next.DB.Conn(slow)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"SET GLOBAL clone_max_concurrency = 1", "SET GLOBAL clone_max_data_bandwidth = 1",
		fmt.Sprintf("SET GLOBAL clone_valid_donor_list = '%s:%d'", mysqltest.Host, w.secondary.Port),
	} {
		if _, err := conn.ExecContext(slow, statement); err != nil {
			t.Fatal(err)
		}
	}
	target := filepath.Join(w.next.Volume, "other")
	go func() {
		_, err := conn.ExecContext(slow, fmt.Sprintf("CLONE INSTANCE FROM 'holdfast_clone'@'%s':%d IDENTIFIED BY '' DATA DIRECTORY = '%s' REQUIRE SSL", mysqltest.Host, w.secondary.Port, target))
		cloned <- err
	}()
	for begun := false; !begun; time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-cloned:
			t.Fatalf("the other clone does not begin: %v", err)
		default:
			_, err := os.Stat(filepath.Join(target, "ibdata1"))
			begun = err == nil
		}
	}
	source, out := w.source(t, "copier"), &bytes.Buffer{}
	for _, name := range []string{"copy", "seed"} { // as an attempt that was killed
		if err := os.MkdirAll(filepath.Join(source.Scratch, name, "half"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	source.Patience.Total = 0
	if _, err := source.CopyMember(t.Context(), sourceOf(w.secondary), out); !errors.Is(err, clone.ErrDonorBusy) || backup.InVain(err) || out.Len() > 0 {
		t.Errorf("while another client clones it: %v, %d bytes", err, out.Len())
	}
	select {
	case err := <-cloned:
		t.Fatalf("the other clone has ended: %v", err)
	default:
	}
	source.Patience.Total = 5 * time.Minute
	go func() {
		// The data of the server that clones goes after each try.
		for _, is := range []bool{true, false} {
			for exists := !is; exists != is; time.Sleep(10 * time.Millisecond) {
				_, err := os.Stat(filepath.Join(source.Scratch, "seed"))
				exists = err == nil
			}
		}
		w.next.Kill()
	}()
	facts, err := source.CopyMember(t.Context(), sourceOf(w.secondary), out)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-cloned; err != nil {
		t.Logf("the clone whose server was killed: %v", err)
	}
	if found, err := source.VerifyCopy(t.Context(), out); err != nil || found != facts {
		t.Errorf("%+v of %+v, %v", found, facts, err)
	}
}

// Who may not be copied is refused before a byte is written.
func TestRealUnfitSources(t *testing.T) {
	w := newWorld(t)
	cases := []struct {
		name, certificate string
		change            func(*backupmysql.Source)
		member            *mysqltest.Member
		says              string
		vain              bool
	}{
		{"the primary beside a secondary", "copier", func(*backupmysql.Source) {}, w.primary, "it leads", false},
		{"another group", "copier", func(s *backupmysql.Source) { s.Group = "other" }, w.secondary, "and other is to be copied", true},
		{"a member's certificate", "server", func(*backupmysql.Source) {}, w.secondary, "Access denied", false},
	}
	for _, c := range cases {
		source, out := w.source(t, c.certificate), &bytes.Buffer{}
		c.change(source)
		_, err := source.CopyMember(t.Context(), sourceOf(c.member), out)
		if err == nil || !strings.Contains(err.Error(), c.says) || backup.InVain(err) != c.vain || out.Len() > 0 {
			t.Errorf("%s: %v, %d bytes", c.name, err, out.Len())
		}
	}
	// A secondary without a group may lack what the others have.
	w.secondary.Exec("STOP GROUP_REPLICATION")
	_, err := w.source(t, "copier").CopyMember(t.Context(), sourceOf(w.secondary), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "it is not online") {
		t.Errorf("a secondary that has left: %v", err)
	}
}

// A bit that changed in a page, and a page that is another, are found in what is stored.
func TestRealDamageIsFound(t *testing.T) {
	w := newWorld(t)
	source, copied := w.source(t, "copier"), &bytes.Buffer{}
	facts, err := source.CopyMember(t.Context(), sourceOf(w.secondary), copied)
	if err != nil {
		t.Fatal(err)
	}
	found, err := source.VerifyCopy(t.Context(), bytes.NewReader(copied.Bytes()))
	if err != nil || found != facts {
		t.Fatalf("%+v of %+v, %v", found, facts, err)
	}
	at := bytes.Index(copied.Bytes(), bytes.Repeat([]byte("a"), 200))
	if at < 0 {
		t.Fatal("the copy has no row")
	}
	damaged := slices.Clone(copied.Bytes())
	damaged[at] ^= 1
	if _, err := source.VerifyCopy(t.Context(), bytes.NewReader(damaged)); !backup.InVain(err) || !strings.Contains(err.Error(), "app/t.ibd") {
		t.Errorf("a bit of a row: %v", err)
	}
}

// Restored data that is not sound does not pass a drill.
func TestRealDrillOfDamagedData(t *testing.T) {
	w := newWorld(t)
	w.backup(t)
	volume := t.TempDir()
	r, _ := w.restorer(t, volume, "c-1/drill")
	r.Engine = rotten{r.Engine.(*Engine)}
	report, err := r.DrillBackup(t.Context())
	if !backup.InVain(err) || !strings.Contains(report.Error, "app/t.ibd") {
		t.Errorf("%+v, %v", report, err)
	}
}

// rotten changes a bit of a row before the data is checked.
type rotten struct{ *Engine }

func (r rotten) CheckData(ctx context.Context, lock *volumelock.VolumeLock, data string) ([]string, error) {
	path := filepath.Join(data, "app", "t.ibd")
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	content[bytes.Index(content, bytes.Repeat([]byte("b"), 200))] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return nil, err
	}
	return r.Engine.CheckData(ctx, lock, data)
}

// The data must have what the manifest says.
func TestRealRestoreOfOtherData(t *testing.T) {
	w := newWorld(t)
	w.backup(t)
	r, _ := w.restorer(t, t.TempDir(), "c-2")
	r.Engine = mislabelled{r.Engine.(*Engine)}
	if err := r.RestoreVolume(t.Context()); !backup.InVain(err) || !strings.Contains(err.Error(), "lacks the transactions") {
		t.Error(err)
	}
}

type mislabelled struct{ *Engine }

func (m mislabelled) RecoverCopy(ctx context.Context, job restore.Recovery) (restore.Outcome, error) {
	job.Manifest.End += ",6b8f3c1e-0000-5000-8000-000000000001:1"
	return m.Engine.RecoverCopy(ctx, job)
}
