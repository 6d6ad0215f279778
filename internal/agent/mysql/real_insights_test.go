//go:build mysql

package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/agenttest"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/accounts"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

// secretOf is a literal that stands in rows and names.
const secretOf = "Xq7canary41112222333"

// untilFound waits until a member has found classes.
func (r *run) untilFound(classes ...string) {
	r.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		found := map[string]bool{}
		for _, i := range r.Insights.Report().Classes {
			found[i.Class] = true
		}
		var missing []string
		for _, class := range classes {
			if !found[class] {
				missing = append(missing, class)
			}
		}
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			r.t.Errorf("not found: %v", missing)
			return
		}
	}
}

// notProvoked are the classes that no test provokes, and why.
var notProvoked = map[string]string{
	"MySQLSemaphoreWait": "needs a thread of InnoDB that waits four minutes for a semaphore, and no statement does",
}

// provoked are the classes that members have found.
type provoked map[string]bool

// add takes what members have found, and wants no literal in what their agents answer.
func (p provoked) add(t *testing.T, w *world, members ...*run) {
	t.Helper()
	for _, m := range members {
		report := m.Insights.Report()
		agenttest.RequireNoLiteral(t, agenttest.ReadMetrics(t, atLocalhost(w.of(report.Pod).probe)), report, m.Store.Get(), secretOf, "canary")
		t.Logf("%s: %d lines, %d of no class, %d dropped", report.Pod, report.Lines, report.Unclassified, report.Dropped)
		for _, i := range report.Classes {
			t.Logf("%s: %s ×%d", report.Pod, i.Class, i.Count)
			p[i.Class] = true
		}
	}
}

// Every class is found that real servers can be brought to report, and no literal is in
// what their agents answer.
func TestRealInsights(t *testing.T) {
	found := provoked{}
	t.Run("one", func(t *testing.T) { provokeInOne(t, found) })
	t.Run("full volume", func(t *testing.T) { provokeWithFullVolume(t, found) })
	t.Run("three", func(t *testing.T) { provokeInThree(t, found) })
	for _, c := range loginsight.ListClasses(loginsight.MySQL) {
		reason, excused := notProvoked[c.Name]
		switch {
		case !found[c.Name] && !excused:
			t.Errorf("class %s was not provoked", c.Name)
		case !found[c.Name]:
			t.Logf("class %s was not provoked: %s", c.Name, reason)
		case excused:
			t.Errorf("class %s can be provoked", c.Name)
		}
	}
}

// provokeInOne provokes what one server reports.
func provokeInOne(t *testing.T, found provoked) {
	w := newWorld(t, 1)
	w.configure(func(c *agentapi.ClusterConfig) {
		c.Parameters = map[string]string{"innodb_print_all_deadlocks": "ON", "log_error_verbosity": "3"}
	})
	r := w.create()[0]
	r.untilFound("MySQLStarted", "MySQLGroupChanged")
	r.exec(createTable, "INSERT INTO app_1.t VALUES (1, '"+secretOf+"'), (2, 'b')", "CREATE USER "+secretOf+" IDENTIFIED BY 'x'",
		"CREATE TABLE app_1.damaged_"+secretOf+" (id INT PRIMARY KEY, x VARCHAR(100))", "INSERT INTO app_1.damaged_"+secretOf+" VALUES (1, '"+secretOf+"')")
	provokeDeadlock(t, r)
	r.untilFound("MySQLDeadlock")

	r.signal(syscall.SIGSEGV)
	r.until("another run", func(s agentapi.Status) bool { return !s.Serving })
	r.untilState(agentapi.StateRunning)
	r.untilFound("MySQLServerCrashed", "MySQLCrashRecovery")

	closed := provokeOpenSession(t, r)
	r.stop()
	<-closed
	r.untilFound("MySQLConnectionClosed", "MySQLStopped")
	file := filepath.Join(r.o.mysqlDir(), "app_1", "damaged_"+secretOf+".ibd")
	damageTable(t, file)
	again := w.start(0)
	again.untilState(agentapi.StateRunning)
	if _, err := again.session().ExecContext(t.Context(), "SELECT COUNT(x) FROM app_1.damaged_"+secretOf); err == nil {
		t.Error("a damaged table can be read")
	}
	again.untilFound("MySQLDataCorrupted", "MySQLServerCrashed")
	found.add(t, w, again)
	for _, i := range r.Insights.Report().Classes {
		found[i.Class] = true
	}
}

// provokeOpenSession leaves a session busy for some seconds in one row, within which the
// server interrupts none. The channel is closed when it has ended.
func provokeOpenSession(t *testing.T, r *run) <-chan struct{} {
	t.Helper()
	db, ended := r.session(), make(chan struct{})
	hash := func(times int) time.Duration {
		began := time.Now()
		const one = "SHA2(REPEAT('a', 60000000 + %d), 512)"
		list := "'" + secretOf + "'"
		for i := range times {
			list += ", " + fmt.Sprintf(one, i)
		}
		_, _ = db.ExecContext(context.Background(), "SELECT CONCAT("+list+")")
		return time.Since(began)
	}
	times := int(10*time.Second/max(hash(1), 50*time.Millisecond)) + 1
	go func() { defer close(ended); hash(times) }()
	time.Sleep(500 * time.Millisecond)
	return ended
}

// damageTable changes the pages with rows in a table's file.
func damageTable(t *testing.T, path string) {
	t.Helper()
	const page = 16 << 10
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt([]byte(strings.Repeat("damage! ", 100)), 4*page+100)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// provokeWithFullVolume has a volume of its own, and fills it. That takes root.
func provokeWithFullVolume(t *testing.T, found provoked) {
	w := newWorld(t, 1)
	volume := w.volume(0)
	if err := syscall.Mount("tmpfs", volume, "tmpfs", 0, "size=1g,mode=0700"); err != nil {
		t.Fatalf("mount a small volume, as root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(volume, 0); err != nil {
			t.Error(err)
		}
	})
	r := w.create()[0]
	r.exec("CREATE TABLE app_1.t (id INT PRIMARY KEY AUTO_INCREMENT, x LONGTEXT)")
	release := fillVolume(t, volume, 24<<20)
	// The binlog of one transaction is written at its end, and the table before.
	tx, err := r.session().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if _, err = tx.ExecContext(t.Context(), "INSERT INTO app_1.t (x) VALUES (REPEAT('"+secretOf+"', 20000))"); err != nil {
			break
		}
	}
	if err == nil {
		t.Error("the volume is never full")
	}
	_ = tx.Rollback()
	r.untilFound("MySQLStorageFailed", "MySQLDiskFull", "MySQLTableFull")
	before := r.countFound("MySQLDiskFull")

	releaseRest := fillVolume(t, volume, 0)
	// The table has pages of what was rolled back, and the binlog has none.
	waits, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 20 {
		if _, err := r.session().ExecContext(waits, "INSERT INTO app_1.t (x) VALUES (REPEAT('"+secretOf+"', 1000))"); err != nil {
			break
		}
	}
	r.until("short of space for its binlog", func(agentapi.Status) bool { return r.countFound("MySQLDiskFull") > before })
	found.add(t, w, r)
	release()
	releaseRest()
}

// countFound is how often a member has found a class.
func (r *run) countFound(class string) int64 {
	for _, i := range r.Insights.Report().Classes {
		if i.Class == class {
			return i.Count
		}
	}
	return 0
}

// fillVolume fills a volume but for so many bytes, until it is released.
func fillVolume(t *testing.T, volume string, but int64) (release func()) {
	t.Helper()
	var space syscall.Statfs_t
	if err := syscall.Statfs(volume, &space); err != nil {
		t.Fatal(err)
	}
	filler, err := os.CreateTemp(volume, "filler")
	if err != nil {
		t.Fatal(err)
	}
	if size := int64(space.Bavail)*space.Bsize - but; size > 0 {
		err = syscall.Fallocate(int(filler.Fd()), 0, 0, size)
	}
	if err := errors.Join(err, filler.Close()); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(filler.Name()); err != nil {
			t.Error(err)
		}
	}
}

// provokeInThree provokes what members of a group report.
func provokeInThree(t *testing.T, found provoked) {
	w := newWorld(t, 3)
	runs := w.create()
	runs[0].exec(createTable)

	runs[0].killServer()
	next, others := findPrimary(t, runs, runs[0])
	next.untilFound("MySQLMemberUnreachable", "MySQLMembersLeft", "MySQLPrimaryElected")
	untilWhole(t, runs)

	// One that stood still is expelled.
	others[0].signal(syscall.SIGSTOP)
	next.until("a view without it", func(s agentapi.Status) bool { return len(readReport(s).View) == 2 })
	others[0].signal(syscall.SIGCONT)
	others[0].untilFound("MySQLMemberExpelled")
	untilWhole(t, runs)

	// A member that is left alone.
	next, others = findPrimary(t, runs, nil)
	for _, r := range others {
		r.signal(syscall.SIGSTOP)
	}
	next.untilFound("MySQLMajorityLost")
	for _, r := range others {
		r.signal(syscall.SIGCONT)
	}
	untilWhole(t, runs)

	// A transaction that the group does not have.
	next, others = findPrimary(t, runs, nil)
	others[1].execHere("STOP GROUP_REPLICATION", "SET GLOBAL super_read_only = OFF", "INSERT INTO app_1.t (x) VALUES ('"+secretOf+"')", "SET GLOBAL super_read_only = ON")
	// The agent holds such data before the server joins. Members reach each other by the account
	// of the recovery: without it, no group is asked.
	if _, err := others[1].session().ExecContext(t.Context(), "START GROUP_REPLICATION USER = "+accounts.Quote(accounts.Recovery)); err == nil {
		t.Error("a member with a transaction of its own joins")
	}
	others[1].untilFound("MySQLMemberDiverged")
	found.add(t, w, others[1])

	// A row that one member has, and that the group writes.
	others[0].execHere("SET GLOBAL super_read_only = OFF", "SET SESSION sql_log_bin = OFF", "INSERT INTO app_1.t VALUES (777, 'x')", "SET GLOBAL super_read_only = ON")
	next.exec("INSERT INTO app_1.t VALUES (777, '" + secretOf + "')")
	others[0].untilFound("MySQLReplicationFailed")
	found.add(t, w, next, others[0])
}

// execHere runs statements in one session.
func (r *run) execHere(statements ...string) {
	r.t.Helper()
	conn, err := r.session().Conn(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, statement := range statements {
		if _, err := conn.ExecContext(r.t.Context(), statement); err != nil {
			r.t.Fatalf("%s: %s: %v", r.o.Identity.Pod, statement, err)
		}
	}
}

// provokeDeadlock has two transactions wait for each other.
func provokeDeadlock(t *testing.T, r *run) {
	t.Helper()
	one, err := r.session().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	two, err := r.session().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	update := func(tx *sql.Tx, id int) error {
		_, err := tx.ExecContext(t.Context(), fmt.Sprintf("UPDATE app_1.t SET x = '%s' WHERE id = %d", secretOf[:10], id))
		return err
	}
	if err := errors.Join(update(one, 1), update(two, 2)); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() { waited <- update(one, 2) }()
	err = update(two, 1)
	if other := <-waited; (err == nil) == (other == nil) {
		t.Errorf("no deadlock: %v, %v", err, other)
	}
	_, _ = one.Rollback(), two.Rollback()
}
