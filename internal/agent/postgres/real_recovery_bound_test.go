//go:build postgres

package postgres

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// findStartup is the startup process of a server; 0 without one.
func findStartup(postmaster int) int {
	children, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0
	}
	for _, path := range children {
		title, _ := os.ReadFile(path)
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if strings.Contains(string(title), "startup") && strings.Contains(string(status), "PPid:\t"+strconv.Itoa(postmaster)+"\n") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	return 0
}

// A crash recovery that stands still does not renew the Lease for ever: its term ends, and
// the member with the most WAL leads in the next one.
func TestRealRule7RecoveryThatStandsStillEndsItsTerm(t *testing.T) {
	w, _, members := threeMembers(t)
	before, _ := w.lease.read()
	members[0].exec("create table public.numbers as select n from generate_series(1, 1000) n", "create table public.filler (t text)", "checkpoint")
	for range 5 {
		members[0].exec("insert into public.filler select repeat('x', 500) from generate_series(1, 20000)")
	}
	postmaster := members[0].postmasterPid()
	session, err := strconv.Atoi(members[0].query("select pg_backend_pid()::text"))
	if err != nil {
		t.Fatal(err)
	}
	signalTo(t, session, syscall.SIGKILL)
	startup := 0
	for end := time.Now().Add(20 * time.Second); startup == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		startup = findStartup(postmaster)
	}
	if startup == 0 {
		t.Fatal("no crash recovery was seen")
	}
	signalTo(t, startup, syscall.SIGSTOP)
	members[0].until("ends its term", func(s agentapi.Status) bool { return s.State == agentapi.StateFailed })
	leader, others := untilLeads(t, members[:]...)
	if after, _ := w.lease.read(); after.Term <= before.Term {
		t.Errorf("the term was %d and is %d", before.Term, after.Term)
	}
	leader.exec("insert into public.numbers values (1001)")
	untilEqual(t, leader, others...)
}

// A member whose database does not start and that has the most WAL is elected a few
// times. Then another one leads.
func TestRealRule10MemberThatDoesNotStartStandsBack(t *testing.T) {
	w, volumes, members := threeMembers(t)
	members[0].exec("create table public.numbers as select n from generate_series(1, 1000) n")
	members[1].stop()
	members[2].stop()
	members[0].exec("insert into public.numbers values (1001)")
	needed := filepath.Join(members[0].o.pgdataPath(), "pg_xact")
	if err := os.Chmod(needed, 0); err != nil {
		t.Fatal(err)
	}
	restore := func() { _ = os.Chmod(needed, 0o700) }
	t.Cleanup(restore)
	members[0].Lock.KillHolders()
	members[0].until("fails", func(s agentapi.Status) bool { return s.State == agentapi.StateFailed })
	others := []*run{w.start(1, volumes[1], "uid-1b"), w.start(2, volumes[2], "uid-2b")}
	leader, _ := untilLeadsWithin(t, 4*time.Minute, others...)
	restore()
	untilEqual(t, leader, members[0])
}
