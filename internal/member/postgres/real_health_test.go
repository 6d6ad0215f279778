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
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// postmasterPid is the server's first process.
func (r *run) postmasterPid() int {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.o.pgdata(), "postmaster.pid"))
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

// Issue 11, point 5: old sessions of a postmaster that stands still go on, and
// nobody can connect any more.
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
	hung := primary.until("hung", func(s memberapi.Status) bool { return s.State == memberapi.StateHung })
	t.Logf("seen after %s: %+v", time.Since(began).Round(time.Second), hung)
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
	primary.until("killed", func(s memberapi.Status) bool { return s.State == memberapi.StateFailed })
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
	w.configure(func(c *memberapi.ClusterConfig) { c.Parameters = map[string]string{"max_connections": "20"} })
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.exec("create role many superuser login password 'many'")
	dsn := "host=localhost port=" + strconv.Itoa(w.agents[0].database) + " user=many password=many dbname=postgres sslmode=require"
	var held []*pgx.Conn
	for range 40 {
		conn, err := pgx.Connect(t.Context(), dsn)
		if err != nil {
			break
		}
		held = append(held, conn)
	}
	if len(held) == 0 || len(held) == 40 {
		t.Fatalf("%d connections", len(held))
	}
	if err := primary.connectAnew(t.Context()); err != nil {
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
