//go:build postgres

package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/agenttest"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

// notProvoked are the classes that a test cannot provoke, and why.
var notProvoked = map[string]string{
	"DiskFull":                 "needs a volume that is full",
	"TransactionIDsExhausted":  "needs two billion transactions",
	"TransactionIDsRunLow":     "needs two billion transactions",
	"OldestTransactionFar":     "needs a hundred million transactions",
	"OutOfMemory":              "needs a limit of memory",
	"OutOfFileDescriptors":     "needs a limit of open files",
	"ProcessNotStarted":        "needs a limit of processes",
	"WALMissing":               "the agent keeps WAL for its members",
	"ReplayPaused":             "the agent raises a standby's settings in time",
	"SynchronousWaitCancelled": "needs a quorum that is away",
	"CollationChanged":         "needs another C library",
	"AutovacuumCancelled":      "needs autovacuum of a large table",
	"ArchiveFailed":            "the agent holds the command until the store takes the file",
	"NotAccepting":             "lasts for milliseconds",
	"TransactionTimeout":       "17 and later",
}

// secretOf is a literal that stands in everything that is provoked.
const secretOf = "Xq7canary4111222233334444"

// insightsParameters have the server report what it does not report by default.
var insightsParameters = map[string]string{
	"log_min_duration_statement": "150ms", "log_lock_waits": "on", "deadlock_timeout": "200ms", "log_temp_files": "0", "work_mem": "64kB",
	"temp_file_limit": "20MB", "log_checkpoints": "on", "checkpoint_warning": "300s", "max_wal_size": "64MB", "min_wal_size": "32MB",
	"wal_keep_size": "0", "max_slot_wal_keep_size": "64MB", "log_autovacuum_min_duration": "0", "autovacuum_naptime": "1s",
	"hot_standby_feedback": "off", "max_standby_streaming_delay": "2s", "log_recovery_conflict_waits": "on",
	"max_locks_per_transaction": "10", "max_connections": "25", "compute_query_id": "on", "max_stack_depth": "100kB",
}

// appSession is a session of an application.
type appSession struct {
	t    *testing.T
	conn *pgx.Conn
}

// dialApp connects as an application does.
func (w *world) dialApp(ordinal int, user, password, database, mode string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return pgx.Connect(ctx, fmt.Sprintf("host=localhost port=%d user=%s password=%s dbname=%s sslmode=%s application_name=%s default_query_exec_mode=simple_protocol",
		w.agents[ordinal].database, user, password, database, mode, secretOf))
}

func (w *world) session(ordinal int) *appSession {
	w.t.Helper()
	conn, err := w.dialApp(ordinal, "app", "s3cret", "app", "require")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return &appSession{w.t, conn}
}

// try runs a statement, and returns its error.
func (s *appSession) try(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := s.conn.Exec(ctx, sql)
	return err
}

func (s *appSession) must(statements ...string) {
	s.t.Helper()
	for _, sql := range statements {
		if err := s.try(sql); err != nil {
			s.t.Fatalf("%s: %v", sql, err)
		}
	}
}

// fails runs a statement that must fail.
func (s *appSession) fails(statements ...string) {
	s.t.Helper()
	for _, sql := range statements {
		if s.try(sql) == nil {
			s.t.Errorf("%s does not fail", sql)
		}
	}
}

// foundClasses are the classes that a member has found so far.
func (r *run) foundClasses() map[string]agentapi.Insight {
	found := map[string]agentapi.Insight{}
	for _, i := range r.Insights.Report().Classes {
		found[i.Class] = i
	}
	return found
}

// untilFound waits until a member has found classes.
func (r *run) untilFound(classes ...string) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		found := r.foundClasses()
		missing := slices.DeleteFunc(slices.Clone(classes), func(class string) bool { return found[class].Count > 0 })
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			r.t.Errorf("%s: not found: %v", r.o.Identity.Pod, missing)
			return
		}
	}
}

// Every class that can be provoked on a real server is found, with its number, and no
// literal of a client is in what the agent answers to the operator.
func TestRealInsights(t *testing.T) {
	w := newWorld(t, 2)
	w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = insightsParameters })
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	replica := w.start(1, t.TempDir(), "uid-1")
	replica.untilRole(v1alpha1.RoleReplica)
	if got := primary.query("select current_setting('log_line_prefix')"); got != loginsight.PostgresPrefix {
		t.Fatalf("log_line_prefix is %q", got)
	}
	// The agent's own queries write temporary files with so little memory.
	requireQuiet(t, primary, "TemporaryFile")
	requireQuiet(t, replica, "TemporaryFile")
	app := w.session(0)
	app.must("create table t (id int primary key, v text not null, check (v <> 'bad'))",
		"insert into t select g, 'v' from generate_series(1, 100) g", "create table filler (v text)")

	provokeStatements(t, primary, app)
	provokeLocks(t, w, primary)
	provokeSessions(t, w, primary)
	provokeServer(t, w, primary, app)
	provokeReplica(t, w, primary, replica, app)
	provokeDamage(t, w, primary)
	provokeCrash(t, w, primary)
	requireProvoked(t, primary, replica)
	requireNumbers(t, primary)
	requireNoLiteral(t, primary, replica)
}

// provokeStatements provokes what statements of one session do.
func provokeStatements(t *testing.T, primary *run, app *appSession) {
	t.Helper()
	app.fails(
		"selec '"+secretOf+"'", "select "+secretOf, "select * from \""+secretOf+"\"", "select "+secretOf+"('x')",
		"select '"+secretOf+"'::int", "select 1/0", "insert into t values (1, '"+secretOf+"')", "insert into t values (1000, null)",
		"insert into t values (1001, 'bad')", "execute \""+secretOf+"\"", "select * from pg_authid where rolname = '"+secretOf+"'",
		"do $$ begin raise exception '%', '"+secretOf+"'; end $$", "do $$ begin raise exception E'first\\n2026-03-01 10:00:00.123 UTC [1] XX001 0 (postmaster) PANIC:  "+secretOf+"'; end $$",
		"do $$ begin execute (select 'create table wide (' || string_agg('c' || g || ' int', ',') || ')' from generate_series(1, 1700) g); end $$",
		"select int4_avg_accum('{1}'::bigint[], 1)")
	app.must("create function deep(n int) returns int language plpgsql as $$ begin return deep(n + 1); end $$")
	app.fails("select deep(1)")
	app.must("begin read only")
	app.fails("insert into t values (2000, '"+secretOf+"')", "select 1")
	app.must("rollback", "select pg_sleep(0.3), '"+secretOf+"'", "set statement_timeout = '200ms'")
	app.fails("select pg_sleep(10), '" + secretOf + "'")
	app.must("set statement_timeout = 0", "select count(*) from (select md5(g::text) || '"+secretOf+"' m from generate_series(1, 20000) g order by 1) s")
	app.fails("select count(*) from (select repeat(md5(g::text), 20) m from generate_series(1, 200000) g order by 1) s")
	app.fails("do $$ begin for i in 1..100000 loop perform pg_advisory_xact_lock(i); end loop; end $$")
	primary.untilFound("InvalidStatement", "InvalidData", "ConstraintViolated", "PreparedStatementMissing", "PermissionDenied", "RaisedByFunction", "LimitExceeded",
		"InternalError", "WriteOnReadOnly", "AbortedTransactionUsed", "SlowStatement", "StatementTimeout", "TemporaryFile", "TemporaryFileLimit", "LockTableFull")
}

// provokeLocks provokes what sessions do to each other.
func provokeLocks(t *testing.T, w *world, primary *run) {
	t.Helper()
	one, two := w.session(0), w.session(0)
	one.must("begin", "update t set v = '"+secretOf+"' where id = 1")
	two.must("begin", "update t set v = '"+secretOf+"' where id = 2")
	waited := make(chan error, 1)
	go func() { waited <- one.try("update t set v = '" + secretOf + "' where id = 2") }()
	err := two.try("update t set v = '" + secretOf + "' where id = 1")
	if first := <-waited; (err == nil) == (first == nil) {
		t.Errorf("no deadlock: %v, %v", err, first)
	}
	_, _ = one.try("rollback"), two.try("rollback")

	one.must("begin", "update t set v = 'x' where id = 3")
	two.fails("select * from t where id = 3 for update nowait")
	two.must("set lock_timeout = '400ms'")
	two.fails("update t set v = 'y' where id = 3")
	one.must("rollback")

	one.must("begin isolation level serializable", "select count(*) from t")
	two.must("set lock_timeout = 0", "update t set v = 'z' where id = 4")
	one.fails("update t set v = '" + secretOf + "' where id = 4")
	one.must("rollback")
	primary.untilFound("Deadlock", "LockWait", "LockTimeout", "SerializationFailure")
}

// provokeSessions provokes what connections do.
func provokeSessions(t *testing.T, w *world, primary *run) {
	t.Helper()
	for _, bad := range [][4]string{{"app", secretOf, "app", "require"}, {secretOf, "x", "app", "require"}, {"app", "s3cret", secretOf, "require"}, {"app", "s3cret", "app", "disable"}} {
		if conn, err := w.dialApp(0, bad[0], bad[1], bad[2], bad[3]); err == nil {
			_ = conn.Close(context.Background())
			t.Errorf("%v can connect", bad)
		}
	}
	address := net.JoinHostPort("localhost", strconv.Itoa(w.agents[0].database))
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: " + secretOf + "\r\n\r\n", "\x00\x00\x00\x08\x04\xd2\x16\x2fno TLS: " + secretOf} {
		raw, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = raw.Write([]byte(text))
		_ = raw.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, _ = raw.Read(make([]byte, 64))
		_ = raw.Close()
	}
	primary.exec("alter role app connection limit 0")
	if conn, err := w.dialApp(0, "app", "s3cret", "app", "require"); err == nil {
		_ = conn.Close(context.Background())
		t.Error("a session can connect over its role's limit")
	}
	primary.exec("alter role app connection limit -1")

	ended := w.session(0)
	pid := ended.conn.PgConn().PID()
	waited := make(chan error, 1)
	go func() { waited <- ended.try("select pg_sleep(20), '" + secretOf + "'") }()
	time.Sleep(300 * time.Millisecond)
	primary.exec(fmt.Sprintf("select pg_cancel_backend(%d)", pid))
	if <-waited == nil {
		t.Error("a statement was not canceled")
	}
	primary.exec(fmt.Sprintf("select pg_terminate_backend(%d)", pid))

	idle := w.session(0)
	idle.must("set idle_in_transaction_session_timeout = '200ms'", "begin")
	time.Sleep(500 * time.Millisecond)

	lost := w.session(0)
	lost.must("begin")
	_ = lost.conn.PgConn().Conn().Close() // no farewell, in a transaction
	classes := []string{"PasswordFailed", "LoginRejected", "TLSFailed", "TooManyConnections", "StatementCancelled", "SessionTerminated", "IdleInTransactionTimeout", "ConnectionLost"}
	if primary.programs.Major >= 17 {
		slow := w.session(0)
		slow.must("set transaction_timeout = '200ms'", "begin")
		_ = slow.try("select pg_sleep(1)")
		classes = append(classes, "TransactionTimeout")
	}
	primary.untilFound(classes...)
}

// provokeServer provokes what background processes report.
func provokeServer(t *testing.T, w *world, primary *run, app *appSession) {
	t.Helper()
	primary.exec("select pg_create_physical_replication_slot('lazy', true)")
	for range 12 {
		app.must("insert into filler select repeat(md5(g::text), 40) from generate_series(1, 20000) g", "truncate filler")
	}
	primary.exec("checkpoint")
	primary.untilFound("CheckpointsTooFrequent", "CheckpointCompleted", "ReplicationSlotInvalidated")
	primary.exec("select pg_drop_replication_slot('lazy')")

	app.must("insert into filler select 'x' from generate_series(1, 10000)", "delete from filler")
	primary.untilFound("AutovacuumRan")

	auto := filepath.Join(primary.o.pgdataPath(), "postgresql.auto.conf")
	mustWrite(t, auto, "no_such_setting = '"+secretOf+"'\n")
	primary.exec("select pg_reload_conf()")
	primary.untilFound("ConfigurationRejected")
	mustWrite(t, auto, "")
	changed := map[string]string{}
	for name, value := range insightsParameters {
		changed[name] = value
	}
	changed["max_connections"] = "30"
	w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = changed })
	primary.untilFound("RestartPending")
}

// provokeReplica provokes what a standby reports.
func provokeReplica(t *testing.T, w *world, primary, replica *run, app *appSession) {
	t.Helper()
	reader := w.session(1)
	app.must("create table hot (n int)", "insert into hot select generate_series(1, 1000)")
	replica.untilReplayed(primary.query("select pg_current_wal_flush_lsn()::text"))
	reader.must("begin isolation level repeatable read", "select count(*) from hot")
	conflict := make(chan error, 1)
	go func() { conflict <- reader.try("select pg_sleep(30), '" + secretOf + "' from hot limit 1") }()
	app.must("delete from hot", "vacuum hot")
	if <-conflict == nil {
		t.Error("replay canceled no query")
	}
	replica.untilFound("RecoveryConflict", "ReplayWaits")
	writer := w.session(1)
	writer.fails("insert into hot values (1)")
	primary.exec("select pg_terminate_backend(pid) from pg_stat_replication")
	replica.untilFound("WriteOnReadOnly", "ReplicationInterrupted")
	receiver, err := strconv.Atoi(untilReceiver(t, replica))
	if err != nil {
		t.Fatal(err)
	}
	signalTo(t, receiver, syscall.SIGSTOP)
	primary.untilFound("ReplicationTimeout")
	signalTo(t, receiver, syscall.SIGCONT)
}

func untilReceiver(t *testing.T, replica *run) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if pid := replica.query("select coalesce((select pid::text from pg_stat_wal_receiver where status = 'streaming'), '')"); pid != "" {
			return pid
		}
		if time.Now().After(end) {
			t.Fatal("the replica does not stream again")
		}
	}
}

// provokeDamage damages files of tables that nothing else reads.
func provokeDamage(t *testing.T, w *world, primary *run) {
	t.Helper()
	app := w.session(0)
	app.must("create table damaged (v text)", "insert into damaged values ('"+secretOf+"')", "create table missing (v text)")
	path := func(table string) string {
		return filepath.Join(primary.o.pgdataPath(), queryIn(t, app, "select pg_relation_filepath('"+table+"')"))
	}
	damaged, missing := path("damaged"), path("missing")
	primary.exec("checkpoint")
	file, err := os.OpenFile(damaged, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.Write([]byte(strings.Repeat("damage! ", 1024)))
	if err := errors.Join(err, file.Close(), os.Remove(missing)); err != nil {
		t.Fatal(err)
	}
	fresh := w.session(0)
	fresh.fails("select count(v) from damaged", "select count(v) from missing")
	primary.untilFound("DataCorrupted", "StorageFailed")
	mustWrite(t, missing, "")
	if err := os.Truncate(damaged, 8192); err != nil {
		t.Fatal(err)
	}
	fresh.must("drop table damaged", "drop table missing")
}

func queryIn(t *testing.T, s *appSession, sql string) (got string) {
	t.Helper()
	if err := s.conn.QueryRow(t.Context(), sql).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

// provokeCrash ends a session's process by a signal, and the server with it.
func provokeCrash(t *testing.T, w *world, primary *run) {
	t.Helper()
	victim := w.session(0)
	other := w.session(0)
	waited := make(chan error, 1)
	go func() { waited <- other.try("select pg_sleep(60)") }()
	time.Sleep(200 * time.Millisecond)
	signalTo(t, int(victim.conn.PgConn().PID()), syscall.SIGKILL)
	if <-waited == nil {
		t.Error("the server did not crash")
	}
	primary.untilFound("ServerProcessCrashed", "CrashRecovery", "ServerStarted")
	primary.untilRole(v1alpha1.RolePrimary)
}

// requireProvoked compares what was found with the whitelist.
func requireProvoked(t *testing.T, members ...*run) {
	t.Helper()
	found := map[string]agentapi.Insight{}
	for _, m := range members {
		for name, i := range m.foundClasses() {
			found[name] = i
		}
	}
	missing := 0
	for _, c := range loginsight.ListClasses(loginsight.PostgreSQL) {
		_, is := found[c.Name]
		reason, excused := notProvoked[c.Name]
		switch {
		case !is && !excused && c.Name != "ServerStopping":
			t.Errorf("class %s was not provoked", c.Name)
		case !is:
			missing++
			t.Logf("class %s was not provoked: %s", c.Name, reason)
		}
	}
	t.Logf("%d classes were provoked, %d were not", len(found), missing)
	for _, m := range members {
		r := m.Insights.Report()
		t.Logf("%s: %d lines, %d of no class, %d dropped", r.Pod, r.Lines, r.Unclassified, r.Dropped)
		if r.Dropped > 0 {
			t.Errorf("%s: %d lines were dropped", r.Pod, r.Dropped)
		}
	}
}

// requireNumbers checks numbers, SQLSTATEs and query IDs of some classes.
func requireNumbers(t *testing.T, primary *run) {
	t.Helper()
	found := primary.foundClasses()
	for class, least := range map[string]float64{"SlowStatement": 150, "LockWait": 200, "TemporaryFile": 10000, "CheckpointsTooFrequent": 1, "ServerProcessCrashed": 9} {
		if found[class].Largest < least {
			t.Errorf("%s has the number %v", class, found[class].Largest)
		}
	}
	if got := found["Deadlock"].SQLStates; !slices.Equal(got, []string{"40P01"}) {
		t.Errorf("a deadlock has the SQLSTATEs %v", got)
	}
	if len(found["SlowStatement"].Statements) == 0 || len(found["StatementTimeout"].Statements) == 0 {
		t.Error("slow statements have no query ID")
	}
}

// requireNoLiteral reads the answers as the operator does, and at the socket, and the metrics.
func requireNoLiteral(t *testing.T, primary, replica *run) {
	t.Helper()
	var answer json.RawMessage
	if err := replica.peers.AskPeer(t.Context(), primary.o.Identity.Pod, agentapi.InsightsPath, &answer); err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(primary.o.RunDir, agentapi.InsightsSocket))
	}}}
	response, err := client.Get("http://agent" + agentapi.InsightsPath)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var local agentapi.Insights
	if err := json.NewDecoder(response.Body).Decode(&local); err != nil || len(local.Classes) < 30 {
		t.Errorf("%v: %d classes at the socket", err, len(local.Classes))
	}
	literals := []string{secretOf, "canary", "41112222"}
	for _, m := range []*run{primary, replica} {
		agenttest.RequireNoLiteral(t, m.scrapeMetrics(), m.Insights.Report(), m.Store.Get(), literals...)
	}
	agenttest.RequireNoLiteral(t, primary.scrapeMetrics(), answer, local, literals...)
	if len(answer) > 40<<10 {
		t.Errorf("the answer has %d bytes", len(answer))
	}
}

// The normal life of members reports nothing that a person has to look at: a start, a
// clone, a restart while the store takes no WAL, and an orderly change of the primary.
func TestRealInsightsOfANormalLife(t *testing.T) {
	w := newWorld(t, 2)
	store := w.archives()
	volume := t.TempDir()
	primary := w.start(0, volume, "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	replica := w.start(1, t.TempDir(), "uid-1")
	replica.untilRole(v1alpha1.RoleReplica)
	store.down()
	primary.segment()
	primary.stop()
	replica.untilRole(v1alpha1.RolePrimary)
	store.up()
	again := w.start(0, volume, "uid-0b")
	again.untilRole(v1alpha1.RoleReplica)
	replica.untilFound("ServerStarted")
	again.untilFound("ServerStarted")
	requireQuiet(t, primary)
	requireQuiet(t, again, "ReplicationInterrupted")   // a standby looks for who leads
	requireQuiet(t, replica, "ReplicationInterrupted") // its primary was stopped
}

// requireQuiet wants a member to have found notices, and else only these classes.
func requireQuiet(t *testing.T, m *run, but ...string) {
	t.Helper()
	for name, i := range m.foundClasses() {
		if loginsight.IsReported(loginsight.Severity(i.Severity)) && !slices.Contains(but, name) {
			t.Errorf("%s: %+v", m.o.Identity.Pod, i)
		}
	}
}

// With another prefix no line is read, since a client could begin one.
func TestRealInsightsWithAnotherPrefix(t *testing.T) {
	w := newWorld(t, 1)
	w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = map[string]string{"log_line_prefix": "%m %a %u@%d "} })
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	app := w.session(0)
	app.fails("select 1/0")
	if r := primary.Insights.Report(); r.Lines != 0 || r.Unread == "" {
		t.Errorf("%+v", r)
	}
	hash := w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = nil })
	primary.until("configured", func(s agentapi.Status) bool { return s.ConfigHash == hash })
	app.fails("select 1/0")
	primary.untilFound("InvalidData")
}
