//go:build postgres

package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// TestMain is also the program that the database calls.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "wal" {
		cmd := wal.NewCommand()
		cmd.SetArgs(os.Args[2:])
		cmd.SilenceUsage = true
		code, ended := 0, (*wal.Exit)(nil)
		if err := cmd.Execute(); errors.As(err, &ended) {
			code = ended.Code
		} else if err != nil {
			code = 1
		}
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// realStore is a directory that can be taken away.
type realStore struct {
	t   *testing.T
	dir string
}

// archives gives a world a store, and says so in its configuration.
func (w *world) archives() *realStore {
	w.t.Helper()
	s := &realStore{w.t, filepath.Join(w.t.TempDir(), "store")}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	w.configure(func(c *agentapi.ClusterConfig) {
		c.Archive = &agentapi.ArchiveConfig{Store: agentapi.BackupStore{URL: "file://" + s.dir}, Prefix: "shop/orders/u/wal/", Budget: 1 << 30}
	})
	return s
}

func (s *realStore) down() {
	if err := errors.Join(os.Rename(s.dir, s.dir+".away"), os.WriteFile(s.dir, nil, 0o600)); err != nil {
		s.t.Error(err)
	}
}

func (s *realStore) up() {
	if err := errors.Join(os.Remove(s.dir), os.Rename(s.dir+".away", s.dir)); err != nil {
		s.t.Error(err)
	}
}

// segment closes the one that is written, and is its name.
func (r *run) segment() string {
	r.t.Helper()
	r.exec("create table if not exists public.filler (n int)", "insert into public.filler values (1)")
	name := r.query("select pg_walfile_name(pg_current_wal_insert_lsn())")
	r.exec("select pg_switch_wal()")
	return name
}

// untilArchive is what the member says of its archive, once it is so.
func (r *run) untilArchive(what string, is func(agentapi.ArchiveStatus) bool) agentapi.ArchiveStatus {
	r.t.Helper()
	var last *agentapi.ArchiveStatus
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		r.archive.ReportStatus()
		if last = r.Store.Get().Archive; last != nil && is(*last) {
			return *last
		}
	}
	r.t.Fatalf("never %s: %+v", what, last)
	return *last
}

func (r *run) untilArchived(name string) {
	r.t.Helper()
	r.untilArchive(name+" archived", func(s agentapi.ArchiveStatus) bool { return s.Last >= name })
}

// rows inserts some, each of which is one second of the database's own clock
// later than those before: the times between are where a recovery may stop.
func (r *run) rows(names ...string) (until string) {
	r.t.Helper()
	r.exec("create table if not exists public.kept (name text)")
	for _, name := range names {
		r.exec("insert into public.kept values ('" + name + "')")
	}
	return r.query("select clock_timestamp()::text")
}

// withServer runs a database by hand on the data of a volume, which recovers it
// first, and ends on a timeline of its own.
func withServer(t *testing.T, volume string, settings []string, use func(*pgx.Conn)) {
	t.Helper()
	data := filepath.Join(volume, datavolume.DataName)
	dir, err := os.MkdirTemp("/tmp", "hf")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	mustWrite(t, filepath.Join(dir, "hba.conf"), "local all all trust\n")
	mustWrite(t, filepath.Join(dir, "postgresql.conf"), strings.Join(append([]string{
		"recovery_target_action = 'promote'", "listen_addresses = ''", "unix_socket_directories = '" + dir + "'",
		"hba_file = '" + dir + "/hba.conf'", "hot_standby = off", "archive_mode = on", "archive_command = 'false'", "max_wal_senders = 20",
	}, settings...), "\n"))
	mustWrite(t, filepath.Join(data, "recovery.signal"), "")
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	bin, err := server.FindPrograms()
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-c", "config_file="+dir+"/postgresql.conf")
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	for {
		conn, err := pgx.Connect(context.Background(), "host="+dir+" user=postgres dbname=postgres")
		if err == nil {
			use(conn)
			_ = conn.Close(context.Background())
			break
		}
		select {
		case err := <-ended:
			text, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Fatalf("the recovery ended: %v\n%s", err, text)
		case <-time.After(100 * time.Millisecond):
		}
	}
	_ = server.Process.Signal(syscall.SIGINT)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// recovered is what a copy of a volume holds after a recovery from the archive.
func recovered(t *testing.T, w *world, volume string, settings ...string) (rows []string, timeline string) {
	t.Helper()
	dir := t.TempDir()
	from, err := json.Marshal(w.config.Archive)
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(dir, "archive.json"), string(from))
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	restore := fmt.Sprintf("restore_command = '%s wal restore --from %s/archive.json --keys %s/none --scratch %s/scratch %%f %%p'", program, dir, dir, dir)
	withServer(t, snapshot(t, volume), append(settings, restore), func(conn *pgx.Conn) {
		err := conn.QueryRow(context.Background(), `select array_agg(name order by name), ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int::text
			from public.kept`).Scan(&rows, &timeline)
		if err != nil {
			t.Fatal(err)
		}
	})
	return rows, timeline
}

// Archiving under writes; crashes, and a store that is away; and a recovery to
// any moment of it.
func TestRealArchive(t *testing.T) {
	w := newWorld(t, 1)
	store, volume := w.archives(), t.TempDir()
	primary := w.start(0, volume, "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	if got := primary.query("select current_setting('archive_mode') || current_setting('archive_timeout')"); got != "always5min" {
		t.Errorf("archive_mode and archive_timeout are %s", got)
	}
	primary.rows("base")
	primary.untilArchived(primary.segment())
	primary.stop()
	base := snapshot(t, volume)

	// A stop closes a segment, and archives it.
	primary = w.start(0, volume, "uid-0b")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.rows("one")
	primary.segment()
	early := primary.rows("two")
	for range 6 {
		primary.segment()
	}
	// The database dies while more is written and archived than the store takes.
	store.down()
	primary.rows("three")
	primary.segment()
	name := primary.segment()
	primary.query("select pg_terminate_backend(pid)::text from pg_stat_activity where backend_type = 'checkpointer'")
	primary.Lock.KillHolders()
	primary.until("down", func(s agentapi.Status) bool { return !s.Serving })
	primary.untilRole(v1alpha1.RolePrimary)
	late := primary.rows("four")
	primary.untilArchive("failing", func(agentapi.ArchiveStatus) bool { return primary.archive.ReadCounts().Failures > 1 })
	waiting := primary.untilArchive("waiting", func(s agentapi.ArchiveStatus) bool { return s.Waiting >= 2 })
	if waiting.Gap != nil {
		t.Errorf("discarded: %+v", waiting.Gap)
	}
	// So does the agent; another finds the store back.
	primary.o.StopTimeout = 0
	primary.stop()
	store.up()
	primary = w.start(0, volume, "uid-0c")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.untilArchived(name)
	primary.rows("five")
	primary.untilArchived(primary.segment())
	if s := primary.untilArchive("done", func(s agentapi.ArchiveStatus) bool { return s.Waiting == 0 }); s.Gap != nil || s.Error != "" {
		t.Errorf("%+v", s)
	}

	// A term that was burned leaves no history, beyond which PostgreSQL looks for no latest one.
	along := fmt.Sprintf("recovery_target_timeline = '%d'", readReplication(primary.Store.Get()).Timeline)
	for _, c := range []struct {
		settings []string
		want     []string
	}{
		{nil, []string{"base", "five", "four", "one", "three", "two"}},
		{[]string{"recovery_target_time = '" + early + "'"}, []string{"base", "one", "two"}},
		{[]string{"recovery_target_time = '" + late + "'"}, []string{"base", "four", "one", "three", "two"}},
	} {
		rows, timeline := recovered(t, w, base, append(c.settings, along)...)
		if !slices.Equal(rows, c.want) {
			t.Errorf("recovered %v on timeline %s, want %v", rows, timeline, c.want)
		}
	}
}

// A member that takes over archives what its predecessor had not, and a
// recovery goes through both timelines.
func TestRealArchiveOnANewTimeline(t *testing.T) {
	w := newWorld(t, 1)
	store, volume := w.archives(), t.TempDir()
	w.configure(func(c *agentapi.ClusterConfig) { c.VolumeSize = 20 << 30 }) // which keeps log that passes for archived
	primary := w.start(0, volume, "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.rows("base")
	primary.untilArchived(primary.segment())
	primary.stop()
	base := snapshot(t, volume)
	primary = w.start(0, volume, "uid-0b")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.untilArchived(primary.segment())
	store.down()
	primary.rows("lost")
	primary.segment()
	primary.segment()
	primary.rows("later")
	primary.untilArchive("waiting", func(s agentapi.ArchiveStatus) bool { return s.Waiting >= 2 })
	primary.stop()
	store.up()

	// As on a copy, what was streamed before it was complete passes for archived.
	successor := snapshot(t, volume)
	signs, err := filepath.Glob(filepath.Join(successor, datavolume.DataName, "pg_wal", "archive_status", "*"+dataspace.ReadySuffix))
	if err != nil || len(signs) < 2 {
		t.Fatalf("%v wait, %v", signs, err)
	}
	for _, sign := range signs {
		if err := os.Rename(sign, strings.TrimSuffix(sign, dataspace.ReadySuffix)+".done"); err != nil {
			t.Fatal(err)
		}
	}
	withServer(t, successor, []string{"restore_command = 'false'", "wal_keep_size = 1GB"}, func(*pgx.Conn) {})
	primary = w.start(0, successor, "uid-0c")
	own := readReplication(primary.untilRole(v1alpha1.RolePrimary)).Timeline
	primary.rows("new")
	primary.untilArchived(primary.segment())
	rows, timeline := recovered(t, w, base, fmt.Sprintf("recovery_target_timeline = '%d'", own))
	if want := []string{"base", "later", "lost", "new"}; !slices.Equal(rows, want) || timeline != strconv.FormatInt(own+1, 10) {
		t.Errorf("recovered %v on timeline %s, want %v", rows, timeline, want)
	}
	if s := primary.untilArchive("done", func(s agentapi.ArchiveStatus) bool { return s.Waiting == 0 }); s.Gap != nil {
		t.Errorf("%+v", s.Gap)
	}
	if _, err := os.Stat(filepath.Join(store.dir, w.config.Archive.Prefix, fmt.Sprintf("%08X/%08X.history", own, own))); err != nil {
		t.Error(err)
	}
}

// A replica keeps what its primary has not archived.
func TestRealArchiveOfAReplica(t *testing.T) {
	w := newWorld(t, 2)
	store := w.archives()
	primary, replica := w.start(0, t.TempDir(), "uid-0"), w.start(1, t.TempDir(), "uid-1")
	primary.untilRole(v1alpha1.RolePrimary)
	replica.untilRole(v1alpha1.RoleReplica)
	waits := func(what string, is func([]string) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			names := replica.archive.ReadBacklog().Names
			if is(names) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("never %s: %v wait on the replica", what, names)
			}
		}
	}
	primary.untilArchived(primary.segment())
	waits("none", func(names []string) bool { return len(names) == 0 })
	store.down()
	first, last := primary.segment(), primary.segment()
	waits("two", func(names []string) bool { return slices.Contains(names, first) && slices.Contains(names, last) })
	store.up()
	waits("none again", func(names []string) bool { return len(names) == 0 })
	if s := replica.Store.Get(); s.Archive != nil {
		t.Errorf("the replica says %+v", s.Archive)
	}
}

// Another database system has no business in the archive, and goes on without:
// beyond its budget it gives its log up.
func TestRealArchiveOfAnotherCluster(t *testing.T) {
	w := newWorld(t, 1)
	store, volume := w.archives(), t.TempDir()
	primary := w.start(0, volume, "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.untilArchived(primary.segment())
	primary.stop()
	before := objects(t, store.dir)

	other := newWorld(t, 1)
	other.config.Archive = w.config.Archive
	other.configure(func(c *agentapi.ClusterConfig) { c.Archive.Budget = 64 << 20 })
	second := other.start(0, t.TempDir(), "uid-1")
	second.untilRole(v1alpha1.RolePrimary)
	s := second.untilArchive("refused", func(s agentapi.ArchiveStatus) bool { return s.Permanent })
	if !strings.Contains(s.Error, "backup.destination") || s.Gap != nil {
		t.Errorf("%+v", s)
	}
	first := ""
	for range 7 {
		if name := second.segment(); first == "" {
			first = name
		}
	}
	second.rows("it goes on")
	gap := second.untilArchive("discarding WAL", func(s agentapi.ArchiveStatus) bool { return s.Gap != nil && s.Waiting == 4 })
	if gap.Gap.From > first || !gap.Gap.Ended.IsZero() {
		t.Errorf("%+v, and the first is %s", gap.Gap, first)
	}
	if after := objects(t, store.dir); !slices.Equal(before, after) {
		t.Errorf("the archive of the first was touched: %v, %v", before, after)
	}
	second.stop()

	// With an archive of its own it begins there.
	other.configure(func(c *agentapi.ClusterConfig) { c.Archive.Prefix = "shop/orders/other/wal/" })
	second = other.start(0, second.o.DataDir, "uid-1b")
	second.untilRole(v1alpha1.RolePrimary)
	second.untilArchived(second.segment())
}

func objects(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Archiving is turned on and off by a restart, and no other cluster has one.
func TestRealArchiveOnAndOff(t *testing.T) {
	w := newWorld(t, 1)
	volume := t.TempDir()
	primary := w.start(0, volume, "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	if got := primary.query("select current_setting('archive_mode') || current_setting('archive_timeout')"); got != "off0" {
		t.Errorf("archive_mode and archive_timeout are %s", got)
	}
	if s := primary.Store.Get(); s.Archive != nil || len(s.PendingRestart) > 0 {
		t.Errorf("%+v, pending %v", s.Archive, s.PendingRestart)
	}
	store := w.archives()
	primary.until("waiting for a restart", func(s agentapi.Status) bool { return slices.Equal(s.PendingRestart, []string{"archive_mode"}) })
	primary.stop()
	primary = w.start(0, volume, "uid-0b")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.untilArchived(primary.segment())
	hash := w.configure(func(c *agentapi.ClusterConfig) { c.Archive = nil })
	primary.until("waiting for a restart", func(s agentapi.Status) bool { return s.ConfigHash == hash && len(s.PendingRestart) == 1 })
	store.down()
	primary.segment() // until then, nothing waits for the store
	for end := time.Now().Add(time.Minute); len(primary.archive.ReadBacklog().Names) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%v wait for no store", primary.archive.ReadBacklog().Names)
		}
	}
}
