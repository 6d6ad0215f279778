//go:build postgres

package postgres

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// postmasterPid is the server's first process.
func (r *run) postmasterPid() int {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.o.pgdataPath(), "postmaster.pid"))
	if err != nil {
		r.t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(data), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		r.t.Fatal(err)
	}
	return pid
}

func signalTo(t *testing.T, pid int, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
}

// Old sessions of a postmaster that stands still go on, and
// no client can connect any more.
func TestRealHungServerLeavesAndIsStartedAgain(t *testing.T) {
	w := newWorld(t, 1)
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.exec("create table public.kept as select generate_series(1, 1000) as n")

	// For a while: it leaves its Services, and comes back by itself.
	postmaster := primary.postmasterPid()
	signalTo(t, postmaster, syscall.SIGSTOP)
	t.Cleanup(func() { _ = syscall.Kill(postmaster, syscall.SIGCONT) })
	began := time.Now()
	hung := primary.until("hung", func(s agentapi.Status) bool { return s.State == agentapi.StateHung })
	t.Logf("observed after %s: %+v", time.Since(began).Round(time.Second), hung)
	if hung.Serving || hung.Role != v1alpha1.RoleMember || !strings.Contains(hung.Message, "new connection") {
		t.Errorf("hung: %+v", hung)
	}
	if got := primary.query("select count(*)::text from public.kept"); got != "1000" {
		t.Errorf("an old session sees %s rows", got)
	}
	signalTo(t, postmaster, syscall.SIGCONT)
	primary.untilRole(v1alpha1.RolePrimary)
	if now := primary.postmasterPid(); now != postmaster {
		t.Errorf("a server that went on by itself was started again: %d, before %d", now, postmaster)
	}

	// For good: it is killed, and started again with all that it acknowledged.
	primary.exec("insert into public.kept values (1001)")
	signalTo(t, postmaster, syscall.SIGSTOP)
	began = time.Now()
	primary.until("killed", func(s agentapi.Status) bool { return s.State == agentapi.StateFailed })
	status := primary.untilRole(v1alpha1.RolePrimary)
	t.Logf("serves again after %s", time.Since(began).Round(time.Second))
	if status.Failures != 0 || !status.DownSince.IsZero() {
		t.Errorf("a member that serves: %+v", status)
	}
	if now := primary.postmasterPid(); now == postmaster {
		t.Error("the server was not started again")
	}
	if got := primary.query("select count(*)::text from public.kept"); got != "1001" {
		t.Errorf("rows: %s", got)
	}
}

// A server whose slots are all taken is alive, and so is one whose sessions all
// stand still while it accepts new ones.
func TestRealFullServerIsNotHung(t *testing.T) {
	w := newWorld(t, 1)
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.exec("create role many superuser login password 'many'")
	dsn := "host=localhost port=" + strconv.Itoa(w.agents[0].database) + " user=many password=many dbname=postgres sslmode=require"
	var held []*pgx.Conn
	for range 400 {
		conn, err := pgx.Connect(t.Context(), dsn)
		if err != nil {
			break
		}
		held = append(held, conn)
	}
	if len(held) == 0 || len(held) == 400 {
		t.Fatalf("%d connections", len(held))
	}
	if err := server.NewConnectionCheck(t.Context(), primary.o.RunDir, primary.o.Port).Check(t.Context()); err != nil {
		t.Errorf("a server without a free slot passes for one that does not answer: %v", err)
	}
	var refused error
	if conn, err := pgx.Connect(t.Context(), dsn); err != nil {
		refused = err
	} else {
		_ = conn.Close(context.Background())
	}
	if refused == nil || !strings.Contains(refused.Error(), "53300") {
		t.Errorf("the slots are not exhausted: %v", refused)
	}
	for _, conn := range held {
		_ = conn.Close(context.Background())
	}
}

// A primary that stands still in the middle of a copy holds
// that up for a while, and not for ever.
func TestRealCopyFromFrozenPrimaryIsTriedAgain(t *testing.T) {
	w := newWorld(t, 2)
	w.copySilence = 3 * time.Second
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.exec("create table public.kept as select n, repeat('x', 800) as filler from generate_series(1, 40000) as n")
	var frozen []int
	found := make(chan int)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for ctx.Err() == nil {
			var pid int
			err := primary.position.session.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
				return c.QueryRow(ctx, "select pid from pg_stat_replication where state = 'backup'").Scan(&pid)
			})
			if err == nil && syscall.Kill(pid, syscall.SIGSTOP) == nil {
				found <- pid
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	second := t.TempDir()
	replica := w.start(1, second, "uid-1")
	select {
	case pid := <-found:
		frozen = append(frozen, pid)
	case <-time.After(time.Minute):
		t.Fatal("no copy was observed")
	}
	t.Cleanup(func() { _ = syscall.Kill(frozen[0], syscall.SIGKILL) })
	status := replica.until("reporting", func(s agentapi.Status) bool { return strings.Contains(s.Message, "nothing was received") })
	t.Logf("%+v", status)
	if status.State != agentapi.StateCloning || !strings.Contains(status.Message, "orders-0") {
		t.Errorf("%+v", status)
	}
	// The frozen session is one of the primary's; another one serves the next copy,
	// once the slot is free.
	signalTo(t, frozen[0], syscall.SIGCONT)
	replica.untilRole(v1alpha1.RoleReplica)
	if got := replica.query("select count(*)::text from public.kept"); got != "40000" {
		t.Errorf("rows: %s", got)
	}
}

// ALTER SYSTEM overrules nothing of Holdfast's, on the versions
// that cannot forbid it.
func TestRealAlterSystemOverrulesNothingOwned(t *testing.T) {
	w := newWorld(t, 1)
	volume := t.TempDir()
	primary := w.start(0, volume, "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	if primary.programs.Major >= 17 {
		t.Skip("ALTER SYSTEM is refused from 17 on")
	}
	auto := filepath.Join(volume, datavolume.DataName, settings.AlterSystemFile)
	holds := func(name string) bool {
		data, err := os.ReadFile(auto)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(data), name)
	}
	in := func(r *run) {
		t.Helper()
		for name, want := range map[string]string{"fsync": "on", "full_page_writes": "on", "synchronous_standby_names": "", "primary_conninfo": "", "archive_command": "(disabled)", "work_mem": "7MB", "superuser_reserved_connections": "5"} {
			if got := r.query("select current_setting('" + name + "')"); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	}
	primary.exec(
		"alter system set fsync = off", "alter system set full_page_writes = off", "alter system set synchronous_standby_names = '*'",
		"alter system set primary_conninfo = 'host=elsewhere'", "alter system set work_mem = '7MB'", "select pg_reload_conf()")
	if got := primary.query("select current_setting('fsync') || current_setting('full_page_writes') || current_setting('synchronous_standby_names')"); got != "onon" {
		t.Errorf("in force for a moment: %s", got)
	}
	status := primary.until("reset", func(s agentapi.Status) bool { return len(readReplication(s).Resets) == 4 })
	said := map[string]string{}
	for _, r := range readReplication(status).Resets {
		said[r.Parameter] = r.Was
	}
	if said["fsync"] != "off" || said["synchronous_standby_names"] != "*" || said["primary_conninfo"] != "(not shown)" || said["full_page_writes"] != "off" {
		t.Errorf("resets: %+v", readReplication(status).Resets)
	}
	// The settings may be reset in two parts: the last reload is the one that counts.
	primary.untilSetting("primary_conninfo", "")
	primary.untilSetting("work_mem", "7MB")
	in(primary)
	if !holds("work_mem") || holds("fsync") || holds("primary_conninfo") {
		t.Error("the file of ALTER SYSTEM holds the wrong settings")
	}
	primary.stop()

	// What came with a copy, or was written by hand.
	file, err := os.OpenFile(auto, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("fsync = off\nprimary_conninfo = 'host=elsewhere'\nrestore_command = 'false'\n"); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	again := w.start(0, volume, "uid-0b")
	again.untilRole(v1alpha1.RolePrimary)
	in(again)
	if got := readReplication(again.Store.Get()).Resets; len(got) != 3 || got[0].Parameter != "fsync" || got[0].Was != "off" {
		t.Errorf("resets at the start: %+v", got)
	}
	if !holds("work_mem") || holds("fsync") || holds("primary_conninfo") || holds("restore_command") {
		t.Error("the file of ALTER SYSTEM holds the wrong settings after a start")
	}
}

// untilSetting waits for a setting to be in force.
func (r *run) untilSetting(name, want string) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); r.query("select current_setting('"+name+"')") != want; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%s is %s", name, r.query("select current_setting('"+name+"')"))
		}
	}
}
