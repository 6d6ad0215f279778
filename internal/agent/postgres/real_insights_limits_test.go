//go:build postgres

package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/agenttest"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// smallDisk is a file system of 64 MiB that test/run-postgres-tests.sh mounts.
const smallDisk = "/srv"

// provokeLimits takes from a server what it needs: memory, files, processes, disk space and an
// archive.
func provokeLimits(t *testing.T, found provoked) {
	w := newWorld(t, 1)
	w.archives()
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	provokeLimitsOfSessions(t, w, primary)
	provokeLimitOfProcesses(t, w, primary)
	provokeFullDisk(t, w, primary)

	// The agent does not answer: its socket is gone.
	socket := filepath.Join(primary.o.RunDir, agentapi.ArchiveSocket)
	if err := os.Rename(socket, socket+".away"); err != nil {
		t.Fatal(err)
	}
	segment := primary.segment()
	primary.untilFound("ArchiveFailed")
	if err := os.Rename(socket+".away", socket); err != nil {
		t.Fatal(err)
	}
	primary.untilArchived(segment)

	found.add(t, primary.Insights.Report())
	agenttest.RequireNoLiteral(t, primary.scrapeMetrics(), primary.Insights.Report(), primary.Store.Get(), literals...)
}

// provokeLimitsOfSessions limits the memory of one session, and the open files of another.
func provokeLimitsOfSessions(t *testing.T, w *world, primary *run) {
	t.Helper()
	app, greedy, opening := w.session(0), w.session(0), w.session(0)
	pid := int(greedy.conn.PgConn().PID())
	limitProcess(t, pid, unix.RLIMIT_AS, addressSpaceOf(t, pid)+64<<20)
	greedy.fails("select length(repeat('" + secretOf + "', 8000000))") // 192 MB
	primary.untilFound("OutOfMemory")

	app.must("do $$ begin for i in 1..40 loop execute format('create table many_%s (v text)', i); end loop; end $$")
	opening.must("set max_parallel_workers_per_gather = 0", "select count(*) from many_1")
	pid = int(opening.conn.PgConn().PID())
	limitProcess(t, pid, unix.RLIMIT_NOFILE, fileLimitOf(t, pid, 2))
	var tables []string
	for i := range 40 {
		tables = append(tables, fmt.Sprintf("select v from many_%d where v <> '%s'", i+1, secretOf))
	}
	// The server closes other files, and goes on.
	opening.must("select count(*) from (" + strings.Join(tables, " union all ") + ") s")
	primary.untilFound("OutOfFileDescriptors")
}

// provokeLimitOfProcesses has the first process of the server start no other one.
func provokeLimitOfProcesses(t *testing.T, w *world, primary *run) {
	t.Helper()
	unlimit := limitProcess(t, primary.postmasterPid(), unix.RLIMIT_NPROC, 1)
	if conn, err := w.dialApp(0, "app", "s3cret", "app", "require"); err == nil {
		_ = conn.Close(t.Context())
		t.Error("a server that may start no process accepts a session")
	}
	unlimit()
	primary.untilFound("ProcessNotStarted")
	w.session(0).must("select 1")
}

// provokeFullDisk fills the file system of a tablespace.
func provokeFullDisk(t *testing.T, w *world, primary *run) {
	t.Helper()
	var space syscall.Statfs_t
	if err := syscall.Statfs(smallDisk, &space); err != nil || space.Blocks*uint64(space.Bsize) > 128<<20 { //nolint:gosec // it is positive
		t.Fatalf("%s is no small file system: run this by test/run-postgres-tests.sh: %v", smallDisk, err)
	}
	dir, err := os.MkdirTemp(smallDisk, "small")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	primary.exec("create tablespace small location '"+dir+"'", "grant create on tablespace small to app")
	app := w.session(0)
	app.must("create table filling (v text) tablespace small", "alter table filling alter v set storage external")
	app.fails("insert into filling select repeat('" + secretOf + "', 1000) from generate_series(1, 4000)") // 96 MB
	primary.untilFound("DiskFull")
	app.must("drop table filling")
	primary.exec("drop tablespace small")
}

// limitProcess lowers a limit of a process, and returns what raises it again.
func limitProcess(t *testing.T, pid, resource int, most uint64) (unlimit func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Prlimit(pid, resource, nil, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: most, Max: before.Max}, nil); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Prlimit(pid, resource, &before, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// addressSpaceOf is the size of a process's memory in bytes, used or not.
func addressSpaceOf(t *testing.T, pid int) uint64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseUint(strings.Fields(string(text))[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * uint64(os.Getpagesize()) //nolint:gosec // it is positive
}

// fileLimitOf is the limit with which a process can open so many files more.
func fileLimitOf(t *testing.T, pid, more int) (limit uint64) {
	t.Helper()
	for ; more >= 0; limit++ {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", pid, limit)); errors.Is(err, fs.ErrNotExist) {
			more--
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return limit - 1
}
