//go:build mysql

// These tests copy and restore real members:
//
//	HOLDFAST_MYSQL=$(cluster mysql 9.7) go test -tags mysql -run Real ./internal/restore/mysql/
package mysql

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/mysqltest"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/startplan"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	backupmysql "github.com/holdfast-db/holdfast/internal/backup/mysql"
	"github.com/holdfast-db/holdfast/internal/restore"
	"github.com/holdfast-db/holdfast/internal/store"
)

const groupName = "5b8f3c1e-0000-5000-8000-000000000001"

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
	startGroup(t, w.primary)
	w.primary.Exec("CREATE DATABASE app", "CREATE DATABASE nothing",
		"CREATE TABLE app.t (id INT PRIMARY KEY AUTO_INCREMENT, x VARCHAR(200), KEY (x))",
		"CREATE TABLE app.small (id INT PRIMARY KEY AUTO_INCREMENT, x TEXT) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4",
		"CREATE TABLE app.pages (id INT PRIMARY KEY AUTO_INCREMENT, x TEXT) COMPRESSION='zlib'")
	for range 20 {
		w.primary.Exec("INSERT INTO app.t (x) VALUES (REPEAT('a', 200)), (REPEAT('b', 200))", "INSERT INTO app.small (x) VALUES (REPEAT('c', 6000))", "INSERT INTO app.pages (x) VALUES (REPEAT('d', 6000))")
	}
	if err := w.secondary.CloneFrom(w.primary); err != nil {
		t.Fatal(err)
	}
	w.secondary.Start()
	if err := w.secondary.Group().Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, w.secondary, func(o group.Observation) bool { return o.State == group.Online })
	return w
}

// startGroup has a member start its group, and waits until it takes writes.
func startGroup(t *testing.T, m *mysqltest.Member) {
	t.Helper()
	if err := m.Group().Boot(t.Context()); err != nil {
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

// backup takes a backup of the first member that can be copied.
func (w *world) backup(t *testing.T) *v1alpha1.BackupResult {
	t.Helper()
	source, said := w.source(t, "copier"), &concluded{}
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

// What a secondary had is there after a restore, in a group of a new name and on a server
// with a new UUID. A drill finds it sound.
func TestRealBackupAndRestore(t *testing.T) {
	w := newWorld(t)
	taken := w.backup(t)
	if taken.Source != w.secondary.Pod || taken.SystemIdentifier != groupName || taken.EndPosition == "" || taken.EndPosition != taken.StartPosition {
		t.Fatalf("%+v", taken)
	}
	w.primary.Exec("INSERT INTO app.t (x) VALUES ('later')")
	server := w.primary.Query("SELECT @@GLOBAL.server_uuid")

	next := w.next
	_ = next.Lock.Close()
	r, said := w.restorer(t, next.Volume, "c-2")
	if err := r.RestoreVolume(t.Context()); err != nil {
		t.Fatal(err)
	}
	var err error
	if next.Lock, err = volumelock.LockVolume(next.Volume); err != nil {
		t.Fatal(err)
	}
	v, err := datavolume.InspectVolume(next.Volume)
	if err != nil || v.Content != datavolume.ContentData || v.RestoredFor != "c-2" || v.Restored.Group != said.last.Result.SystemIdentifier || v.HasRecord {
		t.Fatalf("%+v, %v, of %+v", v, err, said.last.Result)
	}
	if v.Restored.Group == groupName || v.Restored.Group != startplan.NameGroup("c-2", v.Restored.Volume) {
		t.Errorf("the group is named %s", v.Restored.Group)
	}
	if err := datavolume.AdoptRestored(next.Volume); err != nil {
		t.Fatal(err)
	}
	next.JoinGroupNamed(v.Restored.Group)
	next.Start()
	startGroup(t, next)
	for query, want := range map[string]string{
		"SELECT COUNT(*) FROM app.t": "40", "SELECT COUNT(*) FROM app.small": "20", "SELECT COUNT(*) FROM app.pages": "20",
		"SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'nothing'": "1",
		"SELECT COUNT(*) FROM mysql.user WHERE user LIKE 'holdfast%'":                    "4",
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
