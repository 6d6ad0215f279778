//go:build postgres

package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/agenttest"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/metrics"
	"github.com/holdfast-db/holdfast/internal/agent/statements"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// statementSums are the calls and rows of a scrape by query ID, those of all databases together.
type statementSums map[string][2]float64

func (s statementSums) all() (sum [2]float64) {
	for _, v := range s {
		sum[0], sum[1] = sum[0]+v[0], sum[1]+v[1]
	}
	return sum
}

func (r *run) scrapeStatements() statementSums {
	r.t.Helper()
	families := agenttest.ParseScrape(r.t, strings.NewReader(r.scrapeMetrics()))
	sums := statementSums{}
	for i, name := range []string{"pg_stat_statements_calls_total", "pg_stat_statements_rows_total"} {
		for _, m := range families[name].GetMetric() {
			id := ""
			for _, label := range m.GetLabel() {
				if label.GetName() == "queryid" {
					id = label.GetValue()
				}
			}
			v := sums[id]
			v[i] += m.GetCounter().GetValue()
			sums[id] = v
		}
	}
	return sums
}

// untilStatements scrapes until all statements together have this many calls and rows.
func (r *run) untilStatements(what string, calls, rows float64) statementSums {
	r.t.Helper()
	var sums statementSums
	for end := time.Now().Add(5 * statements.LeastInterval); time.Now().Before(end); time.Sleep(time.Second) {
		if sums = r.scrapeStatements(); sums.all() == [2]float64{calls, rows} {
			return sums
		}
	}
	r.t.Fatalf("%s: %v calls and rows, not %v and %v: %v", what, sums.all(), calls, rows, sums)
	return nil
}

func (r *run) number(sql string) float64 {
	r.t.Helper()
	n, err := strconv.ParseFloat(r.query(sql), 64)
	if err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// What members export of their statements is what pg_stat_statements has, whatever happens to
// that: a reset, evicted entries, a crash. The agent's own statements are not among them, and
// neither text nor role is exported.
func TestRealStatements(t *testing.T) {
	w := newWorld(t, 1)
	w.configure(func(c *agentapi.ClusterConfig) {
		c.Parameters = map[string]string{"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.max": "100", "track_io_timing": "on"}
	})
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	if got := primary.query("select current_setting('pg_stat_statements.track_utility')"); got != "off" {
		t.Errorf("track_utility is %s", got)
	}
	if text := primary.scrapeMetrics(); strings.Contains(text, "pg_stat_statements") || !strings.Contains(text, `holdfast_pg_scrape_error{part="statements"} 0`) {
		t.Error("without the extension there are no statements, and no error")
	}
	primary.exec("create schema elsewhere", "create extension pg_stat_statements schema elsewhere")
	const view = "elsewhere.pg_stat_statements"
	primary.untilStatements("at first", 0, 0)

	app := w.session(0)
	app.must("create table t (id int primary key, v text)")
	calls, rows := 0.0, 0.0 // the table is made by a utility statement
	for i := range 50 {
		app.must(fmt.Sprintf("insert into t values (%d, '%s-%d')", i, secretOf, i))
		calls, rows = calls+1, rows+1
	}
	for range 7 {
		app.must("select * from t where v like '" + secretOf + "%'")
		calls, rows = calls+1, rows+50
	}
	app.must("alter role app password '" + secretOf + "'")
	sums := primary.untilStatements("after the first statements", calls, rows)
	if n := primary.number("select sum(calls)::text from " + view); n != calls {
		t.Errorf("%v calls in the view, and %v ran: there are others", n, calls)
	}
	for id, got := range sums {
		if id != statements.RestID && got[0] > 0 {
			if want := primary.number("select sum(calls)::text from " + view + " where queryid = " + id); got[0] != want {
				t.Errorf("statement %s: %v calls, and %v in the view", id, got[0], want)
			}
		}
	}
	if n := primary.number("select count(*)::text from " + view + " where query ~* 'password'"); n != 0 {
		t.Errorf("%v statements have a password", n)
	}
	agenttest.RequireNoLiteral(t, primary.scrapeMetrics(), nil, nil, secretOf, "insert into", `user="`)

	primary.query("select elsewhere.pg_stat_statements_reset()::text")
	app.must("select 1 from t", "select 1 from t")
	primary.untilStatements("after a reset", calls+2, rows+100)

	expectEvictedStatements(t, primary, app)
	before := primary.scrapeStatements().all()
	expectCrash(t, primary, app)
	again := w.session(0)
	again.must("select count(*) from t")
	primary.untilStatements("after a crash", before[0]+1, before[1]+1)
	expectBounds(t, primary)
}

// expectEvictedStatements runs more statements than there are entries for.
func expectEvictedStatements(t *testing.T, primary *run, app *appSession) {
	t.Helper()
	last, ran := primary.scrapeStatements(), 0.0
	for round := range 3 {
		for i := range 150 {
			app.must("select 1" + strings.Repeat(", 1", i))
			ran++
		}
		time.Sleep(statements.LeastInterval)
		now := primary.scrapeStatements()
		for id, was := range last {
			if v, there := now[id]; there && (v[0] < was[0] || v[1] < was[1]) {
				t.Errorf("round %d: statement %s fell from %v to %v", round, id, was, v)
			}
		}
		last = now
	}
	if n := len(last); n > statements.Most+1 {
		t.Errorf("%d statements have series", n)
	}
	if primary.number("select dealloc::text from elsewhere.pg_stat_statements_info") == 0 {
		t.Error("no entry was evicted")
	}
	t.Logf("%v of %v statements were counted", last.all()[0], ran)
}

// expectCrash kills a backend. The server restarts with an empty table.
func expectCrash(t *testing.T, primary *run, app *appSession) {
	t.Helper()
	if err := syscall.Kill(int(app.conn.PgConn().PID()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		entries := -1
		err := primary.control.Do(t.Context(), func(ctx context.Context, c *pgx.Conn) error {
			return c.QueryRow(ctx, "select count(*) from elsewhere.pg_stat_statements").Scan(&entries)
		})
		if err == nil && entries == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d entries: %v", entries, err)
		}
	}
}

// A server with the extension and without the library in its settings has no statements, and
// that is no error. The columns of an older extension are read as well.
func TestRealStatementsOfOtherVersions(t *testing.T) {
	w := newWorld(t, 1)
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.exec("create extension pg_stat_statements schema public")
	if text := primary.scrapeMetrics(); strings.Contains(text, "pg_stat_statements") || !strings.Contains(text, `holdfast_pg_scrape_error{part="statements"} 0`) {
		t.Error("without the library there are no statements, and no error")
	}
	w.configure(func(c *agentapi.ClusterConfig) {
		c.Parameters = map[string]string{"shared_preload_libraries": "pg_stat_statements"}
	})
	primary.until("waiting for a restart", func(s agentapi.Status) bool { return len(s.PendingRestart) > 0 })
	volume := primary.o.DataDir
	primary.stop()
	primary = w.start(0, volume, "uid-1")
	primary.untilRole(v1alpha1.RolePrimary)
	for _, version := range []string{"1.8", "1.9"} {
		primary.exec("drop extension pg_stat_statements", "create extension pg_stat_statements schema public version '"+version+"'")
		time.Sleep(statements.LeastInterval)
		if text := primary.scrapeMetrics(); !strings.Contains(text, "\npg_stat_statements_seconds_total") || !strings.Contains(text, `holdfast_pg_scrape_error{part="statements"} 0`) {
			t.Errorf("version %s is not read", version)
		}
	}
	before := primary.scrapeStatements().all()
	w.session(0).must("select 1", "select 1")
	primary.untilStatements("with an older extension", before[0]+2, before[1]+2)
	if names := len(metrics.StatementFamilies); names != statements.Columns {
		t.Errorf("%d families", names)
	}
}
