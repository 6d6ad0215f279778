//go:build mysql

// These tests run three servers on this machine, with the real programs:
//
//	HOLDFAST_MYSQL=$(cluster mysql 9.7) go test -tags mysql -run Real ./internal/agent/mysql/...
package group_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/accounts"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/mysqltest"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
)

const groupName = "5b8f3c1e-0000-5000-8000-000000000001"

// newGroup returns members of which the first has started the group, and the others have
// joined it as clones.
func newGroup(t *testing.T, count int) []*mysqltest.Member {
	t.Helper()
	members := mysqltest.NewMembers(t, count)
	for _, m := range members {
		m.JoinGroupNamed(groupName)
	}
	first := members[0]
	if err := first.Bootstrap(); err != nil {
		t.Fatal(err)
	}
	first.Start()
	if err := first.Group().Boot(t.Context(), groupName, true); err != nil {
		t.Fatal(err)
	}
	awaitPrimary(t, first)
	first.Exec("CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY AUTO_INCREMENT, x VARCHAR(20))")
	for _, m := range members[1:] {
		if err := m.CloneFrom(first); err != nil {
			t.Fatal(err)
		}
		m.Start()
		join(t, m)
	}
	return members
}

func join(t *testing.T, m *mysqltest.Member) {
	t.Helper()
	if err := m.Group().Join(t.Context(), groupName, true); err != nil {
		t.Fatalf("%s: %v", m.Pod, err)
	}
	await(t, m, "it is online", func(o group.Observation) bool { return o.State == group.Online })
}

func observe(t *testing.T, m *mysqltest.Member) group.Observation {
	t.Helper()
	o, err := m.Group().Observe(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", m.Pod, err)
	}
	return o
}

func await(t *testing.T, m *mysqltest.Member, what string, is func(group.Observation) bool) group.Observation {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		// A server that leaves a group ends sessions: the next one is a new one.
		o, err := m.Group().Observe(t.Context())
		if err == nil && is(o) {
			return o
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not yet: %s: %+v, %v", m.Pod, what, o, err)
		}
	}
}

func awaitPrimary(t *testing.T, m *mysqltest.Member) {
	t.Helper()
	await(t, m, "it leads and can be written", func(o group.Observation) bool {
		p, ok := o.View.Primary()
		return ok && p.UUID == o.UUID && !o.SuperReadOnly
	})
}

// report is what the member's agent would say.
func report(t *testing.T, m *mysqltest.Member) group.Report {
	t.Helper()
	return observe(t, m).NewReport(group.Report{Pod: m.Pod, Ordinal: m.Ordinal, Group: groupName}, false, group.Record{})
}

// rows that the member has.
func rows(m *mysqltest.Member) string { return m.Query("SELECT COUNT(*) FROM app.t") }

func TestRealMembersJoinAsClones(t *testing.T) {
	members := newGroup(t, 3)
	first, second := members[0], members[1]
	first.Exec("INSERT INTO app.t (x) VALUES ('a'), ('b')")
	for _, m := range members[1:] {
		await(t, m, "it has what the primary has", func(o group.Observation) bool { return o.Executed.Contains(observe(t, first).Executed) })
		if rows(m) != "2" {
			t.Errorf("%s has %s rows", m.Pod, rows(m))
		}
		if err := m.Try("INSERT INTO app.t (x) VALUES ('local')"); err == nil {
			t.Errorf("%s takes writes", m.Pod)
		}
	}
	o := observe(t, first)
	if len(o.View.Members) != 3 || !o.View.HasMajority() || o.View.ID == "" {
		t.Errorf("%+v", o.View)
	}
	uuids := map[string]bool{}
	for _, m := range o.View.Members {
		uuids[m.UUID] = true
	}
	if len(uuids) != 3 {
		t.Errorf("clones have the UUID of their donor: %v", uuids)
	}
	// A switchover loses no write, and the old primary takes none.
	if err := first.Group().SetPrimary(t.Context(), observe(t, second).UUID, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	awaitPrimary(t, second)
	second.Exec("INSERT INTO app.t (x) VALUES ('c')")
	if err := first.Try("INSERT INTO app.t (x) VALUES ('old')"); err == nil {
		t.Error("the old primary takes writes")
	}
	if err := second.Group().Barrier(t.Context()); err != nil {
		t.Error(err)
	}
}

// After the primary was killed, another member leads with all acknowledged writes, and
// the killed one joins again without a clone.
func TestRealKilledPrimary(t *testing.T) {
	members := newGroup(t, 3)
	first := members[0]
	for range 20 {
		first.Exec("INSERT INTO app.t (x) VALUES ('a')")
	}
	uuid := observe(t, first).UUID
	first.Kill()
	o := await(t, members[1], "another member leads", func(o group.Observation) bool {
		p, ok := o.View.Primary()
		_, listed := o.View.Find(uuid)
		return ok && p.UUID != uuid && !listed
	})
	primary := members[1]
	if p, _ := o.View.Primary(); p.UUID != o.UUID {
		primary = members[2]
	}
	awaitPrimary(t, primary)
	if rows(primary) != "20" {
		t.Errorf("%s of 20 acknowledged rows are left", rows(primary))
	}
	primary.Exec("INSERT INTO app.t (x) VALUES ('b')")
	first.Start()
	s := group.Situation{Self: report(t, first), Peers: []group.Report{report(t, primary)}, RecordKnown: true}
	s.Record = group.Record{Group: groupName}.WithJoining(uuid, first.Pod)
	s.Peers[0].Persisted = []string{uuid}
	if plan := group.PlanStart(s); plan.Action != group.Join {
		t.Fatalf("%+v", plan)
	}
	join(t, first)
	await(t, first, "it has the latest row", func(group.Observation) bool { return rows(first) == "21" })
}

// A primary that stood still is expelled. When it continues it acknowledges nothing, and
// after a restart it joins with no transaction of its own.
func TestRealPrimaryThatStoodStill(t *testing.T) {
	members := newGroup(t, 3)
	first, second := members[0], members[1]
	uuid := observe(t, first).UUID
	first.Exec("INSERT INTO app.t (x) VALUES ('a')")
	// A session that is open all the while.
	conn, err := first.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Mysqld.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	o := await(t, second, "another member leads", func(o group.Observation) bool {
		p, ok := o.View.Primary()
		_, listed := o.View.Find(uuid)
		return ok && p.UUID != uuid && !listed
	})
	primary := second
	if p, _ := o.View.Primary(); p.UUID != o.UUID {
		primary = members[2]
	}
	awaitPrimary(t, primary)
	primary.Exec("INSERT INTO app.t (x) VALUES ('b')")
	if err := first.Mysqld.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := conn.ExecContext(ctx, "INSERT INTO app.t (x) VALUES ('late')"); err == nil {
		t.Error("a primary that was expelled acknowledges a write")
	}
	await(t, first, "it knows that it is out of the group", func(o group.Observation) bool { return o.State == group.Failed })
	if r := report(t, first); r.Phase != group.Down {
		t.Errorf("it reports phase %d", r.Phase)
	}
	first.Kill()
	first.Start()
	peer := report(t, primary)
	peer.Persisted = []string{uuid}
	s := group.Situation{
		Self: report(t, first), Peers: []group.Report{peer}, RecordKnown: true,
		Record: group.Record{Group: groupName}.WithJoining(uuid, first.Pod),
	}
	if plan := group.PlanStart(s); plan.Action != group.Join {
		t.Fatalf("%+v", plan)
	}
	join(t, first)
	await(t, first, "it has both rows", func(group.Observation) bool { return rows(first) == "2" })
}

// After all members were killed, the one that holds everything starts the group, and no
// acknowledged write is lost.
func TestRealRestartOfAll(t *testing.T) {
	members := newGroup(t, 3)
	first := members[0]
	record := group.Record{Group: groupName}
	for _, m := range members {
		record = record.WithJoining(observe(t, m).UUID, m.Pod)
	}
	for range 20 {
		first.Exec("INSERT INTO app.t (x) VALUES ('a')")
	}
	for _, m := range members {
		m.Kill()
	}
	// Two of three do not suffice: the third one may hold more.
	members[1].Start()
	members[2].Start()
	s := group.Situation{Self: report(t, members[1]), Peers: []group.Report{report(t, members[2])}, Record: record, RecordKnown: true}
	if plan := group.PlanStart(s); plan.Action != group.Wait || len(plan.Missing) != 1 {
		t.Errorf("%+v", plan)
	}
	members[0].Start()
	var starters []*mysqltest.Member
	for i, m := range members {
		s := group.Situation{Self: report(t, m), Record: record, RecordKnown: true}
		for j, other := range members {
			if j != i {
				s.Peers = append(s.Peers, report(t, other))
			}
		}
		if plan := group.PlanStart(s); plan.Action == group.ClaimBoot {
			starters = append(starters, m)
		}
	}
	if len(starters) != 1 {
		t.Fatalf("%d members would start the group", len(starters))
	}
	starter := starters[0]
	if err := starter.Group().Boot(t.Context(), groupName, true); err != nil {
		t.Fatal(err)
	}
	awaitPrimary(t, starter)
	if starter.Query("SELECT @@GLOBAL.group_replication_bootstrap_group") != "0" {
		t.Error("the next start would make a second group")
	}
	for _, m := range members {
		if m != starter {
			join(t, m)
		}
		if rows(m) != "20" {
			t.Errorf("%s has %s of 20 acknowledged rows", m.Pod, rows(m))
		}
	}
}

// A write that a person made on a member outside of the group is found before the member
// joins.
func TestRealErrantTransactionIsHeld(t *testing.T) {
	members := newGroup(t, 3)
	third := members[2]
	uuid := observe(t, third).UUID
	if err := third.Group().Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	third.Exec("SET GLOBAL super_read_only = OFF", "INSERT INTO app.t (x) VALUES ('local')", "SET GLOBAL super_read_only = ON")
	await(t, members[0], "the member has left", func(o group.Observation) bool { _, listed := o.View.Find(uuid); return !listed })
	peer := report(t, members[1])
	peer.Persisted = []string{uuid}
	s := group.Situation{
		Self: report(t, third), Peers: []group.Report{peer}, RecordKnown: true,
		Record: group.Record{Group: groupName}.WithJoining(uuid, third.Pod),
	}
	plan := group.PlanStart(s)
	if plan.Action != group.Hold || plan.Errant.Count() != 1 || !strings.Contains(plan.Reason, uuid) {
		t.Errorf("%+v", plan)
	}
	// MySQL itself refuses it, too, and the data stays as it is.
	if err := third.Group().Join(t.Context(), groupName, true); err == nil {
		t.Error("the member joined")
	}
	if third.Query("SELECT COUNT(*) FROM app.t WHERE x = 'local'") != "1" || third.Query("SELECT @@GLOBAL.super_read_only") != "1" {
		t.Error("the data was changed, or can be")
	}
}

// A member whose donors have purged what it lacks is never cloned over by the group.
func TestRealPurgedDonorsLeaveTheData(t *testing.T) {
	members := newGroup(t, 3)
	first, third := members[0], members[2]
	uuid := observe(t, third).UUID
	third.Stop()
	await(t, first, "the member has left", func(o group.Observation) bool { _, listed := o.View.Find(uuid); return !listed })
	for _, m := range members[:2] {
		if m == first {
			m.Exec("INSERT INTO app.t (x) VALUES ('missed')")
		}
		await(t, m, "it has the row", func(group.Observation) bool { return rows(m) == "1" })
		m.Exec("FLUSH BINARY LOGS", "SET @last = ''")
		m.Exec("PURGE BINARY LOGS TO '" + lastBinlog(t, m) + "'")
	}
	third.Start()
	s := group.Situation{Self: report(t, third), Peers: []group.Report{report(t, first)}, RecordKnown: true}
	if plan := group.PlanStart(s); plan.Action != group.CloneFrom {
		t.Errorf("%+v", plan)
	}
	third.Exec("SET GLOBAL super_read_only = OFF", "SET SESSION sql_log_bin = OFF", "CREATE DATABASE mine", "SET GLOBAL super_read_only = ON")
	if err := third.Group().Join(t.Context(), groupName, true); err == nil {
		await(t, third, "it failed", func(o group.Observation) bool { return o.State != group.Recovering })
	}
	if third.Query("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'mine'") != "1" {
		t.Error("the group cloned over the data")
	}
	// A clone beside the data brings it in, and keeps the data.
	third.Kill()
	if err := third.CloneFrom(first); err != nil {
		t.Fatal(err)
	}
	third.Start()
	join(t, third)
	if rows(third) != "1" {
		t.Errorf("it has %s rows", rows(third))
	}
}

// stopApplier has a member's applier wait for a lock, until its server ends or goOn.
func stopApplier(t *testing.T, m *mysqltest.Member) (goOn func()) {
	t.Helper()
	locker, err := m.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run := func(statement string) {
		t.Helper()
		if _, err := locker.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	run("LOCK TABLES app.t READ")
	return func() { run("UNLOCK TABLES") }
}

func lastBinlog(t *testing.T, m *mysqltest.Member) string {
	t.Helper()
	path := m.Query("SELECT FILE_NAME FROM performance_schema.file_instances WHERE EVENT_NAME = 'wait/io/file/sql/binlog' ORDER BY FILE_NAME DESC LIMIT 1")
	return path[strings.LastIndex(path, "/")+1:]
}

// Transactions that a member has received and not applied count, also after it was killed.
func TestRealReceivedTransactionsCount(t *testing.T) {
	members := newGroup(t, 3)
	first, second := members[0], members[1]
	stopApplier(t, second)
	first.Exec("INSERT INTO app.t (x) VALUES ('a'), ('b')")
	all := observe(t, first).Executed
	await(t, second, "it has received the write", func(o group.Observation) bool { return o.Received.Union(o.Executed).Contains(all) })
	if observe(t, second).Executed.Contains(all) {
		t.Fatal("the write is applied already")
	}
	second.Kill()
	second.Start()
	if r := report(t, second); !r.Held().Contains(all) || r.Phase != group.Detached {
		t.Fatalf("after the restart it holds %s of %s", r.Held(), all)
	}
	// The other members are lost: what it received is applied when it starts the group.
	first.Kill()
	members[2].Kill()
	if err := second.Group().Boot(t.Context(), groupName, true); err != nil {
		t.Fatal(err)
	}
	awaitPrimary(t, second)
	if rows(second) != "2" {
		t.Errorf("it has %s of 2 acknowledged rows", rows(second))
	}
}

// With its default settings a member of the least memory stays below it, with ninety
// connections at work.
func TestRealMemoryOfASmallMember(t *testing.T) {
	members := newGroup(t, 3)
	first := members[0]
	first.Exec("INSERT INTO app.t (x) VALUES ('a')")
	for range 14 {
		first.Exec("INSERT INTO app.t (x) SELECT x FROM app.t")
	}
	// As the application's user, whose sessions have no limit of time here.
	first.Exec("CREATE USER app@localhost IDENTIFIED WITH auth_socket AS "+accounts.Quote(mysqltest.SystemUser(t)), "GRANT ALL ON app.* TO app@localhost")
	db, err := sql.Open("mysql", "app@unix("+settings.SocketPath(first.RunDir)+")/app")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var work errgroup.Group
	for i := range 90 {
		work.Go(func() error {
			conn, err := db.Conn(t.Context())
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			for j := range 3 {
				for _, statement := range []string{
					fmt.Sprintf("INSERT INTO t (x) VALUES ('%d-%d')", i, j),
					"SELECT COUNT(*) FROM (SELECT x, id, SHA2(id, 256) AS h FROM t ORDER BY h) AS sorted",
				} {
					if _, err := conn.ExecContext(t.Context(), statement); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		peak := peakMemory(t, m)
		t.Logf("%s: %d MiB", m.Pod, peak>>20)
		if peak > settings.LeastMemory {
			t.Errorf("%s takes %d MiB of %d", m.Pod, peak>>20, settings.LeastMemory>>20)
		}
	}
}

// peakMemory is the most that the member's server had resident, in bytes.
func peakMemory(t *testing.T, m *mysqltest.Member) int64 {
	t.Helper()
	pid, err := os.ReadFile(filepath.Join(m.RunDir, "mysqld.pid"))
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	var kibibytes int64
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscanf(rest, "%d kB", &kibibytes); err != nil {
		t.Fatal(err)
	}
	return kibibytes << 10
}
