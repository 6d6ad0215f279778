//go:build postgres

package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/agenttest"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

// notProvoked are the classes that servers of a major version cannot report, and why.
func notProvoked(major int) map[string]string {
	if major < 17 {
		return map[string]string{"TransactionTimeout": "transaction_timeout came with 17"}
	}
	return nil
}

// secretOf is a literal that stands in everything that is provoked.
const secretOf = "Xq7canary4111222233334444"

// literals are secretOf, and parts of it.
var literals = []string{secretOf, "canary", "41112222"}

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

// untilMore waits until a member has found a class more often than before.
func (r *run) untilMore(class string, before int64) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); r.foundClasses()[class].Count <= before; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Errorf("%s: %s is found %d times", r.o.Identity.Pod, class, before)
			return
		}
	}
}

// provoked are the classes that readers of real servers have found.
type provoked map[string]bool

// add takes what was found, and wants every line read and no literal kept.
func (p provoked) add(t *testing.T, reports ...agentapi.Insights) {
	t.Helper()
	for _, r := range reports {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, literal := range literals {
			if strings.Contains(string(text), literal) {
				t.Errorf("%s reports the literal %s: %s", r.Pod, literal, text)
			}
		}
		t.Logf("%s: %d classes, %d lines, %d of no class, %d dropped", r.Pod, len(r.Classes), r.Lines, r.Unclassified, r.Dropped)
		if r.Dropped > 0 {
			t.Errorf("%s: %d lines were dropped", r.Pod, r.Dropped)
		}
		for _, i := range r.Classes {
			p[i.Class] = true
		}
	}
}

// requireEvery compares what was found with the list of classes.
func (p provoked) requireEvery(t *testing.T, major int) {
	t.Helper()
	excuses := notProvoked(major)
	for _, c := range loginsight.ListClasses(loginsight.PostgreSQL) {
		reason, excused := excuses[c.Name]
		switch {
		case !p[c.Name] && !excused:
			t.Errorf("class %s was not provoked", c.Name)
		case !p[c.Name]:
			t.Logf("class %s was not provoked: %s", c.Name, reason)
		case excused:
			t.Errorf("class %s can be provoked", c.Name)
		}
	}
	t.Logf("%d classes were provoked", len(p))
}

// Every class is found in the text logs of real servers, with its number, and no literal of a
// client is in what the agents answer to the operator.
func TestRealInsights(t *testing.T) {
	found, major := provoked{}, 0
	t.Run("two members", func(t *testing.T) { major = provokeInTwo(t, found) })
	t.Run("long absence", func(t *testing.T) { provokeLongAbsence(t, found) })
	t.Run("limits", func(t *testing.T) { provokeLimits(t, found) })
	t.Run("old transactions", func(t *testing.T) { provokeOldTransactions(t, found) })
	t.Run("standby below its primary", func(t *testing.T) { provokePausedReplay(t, found) })
	found.requireEvery(t, major)
}

// provokeInTwo provokes what a primary and its replica report. It returns the major version.
func provokeInTwo(t *testing.T, found provoked) (major int) {
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
	provokeAutovacuum(t, w, primary)
	provokeCollations(t, w, primary)
	provokeReplica(t, w, primary, replica, app)
	provokeDamage(t, w, primary)
	provokeCrash(t, w, primary)
	requireNumbers(t, primary)
	requireNoLiteral(t, primary, replica)
	provokeStop(t, w, primary, replica)
	found.add(t, primary.Insights.Report(), replica.Insights.Report())
	return primary.programs.Major
}

// untilQuery waits until a query has an answer.
func (r *run) untilQuery(sql, want string) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		got := r.query(sql)
		if got == want {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s: %s is %q, not %q", r.o.Identity.Pod, sql, got, want)
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
