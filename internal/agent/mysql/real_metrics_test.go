//go:build mysql

package mysql

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/metrics"
	"github.com/holdfast-db/holdfast/internal/agent/statements"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// scrape is what Prometheus reads: families by name, and how many series they have.
type scrape struct {
	families map[string]*dto.MetricFamily
	series   int
}

// scrapeMetrics reads what the agent offers to Prometheus.
func (r *run) scrapeMetrics(from http.Handler) scrape {
	r.t.Helper()
	answer := httptest.NewRecorder()
	from.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	text := answer.Body.String()
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil || answer.Code != http.StatusOK {
		r.t.Fatalf("%d: %v: %s", answer.Code, err, text)
	}
	return scrape{families, strings.Count(text, "\n") - strings.Count(text, "# HELP ") - strings.Count(text, "# TYPE ")}
}

// scrapeAlways scrapes all members from their first moment on, as Prometheus may: neither
// the making of data nor a start of the group is disturbed.
func (w *world) scrapeAlways() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for clock.Sleep(ctx, 100*time.Millisecond) {
			for _, p := range w.ports {
				if answer, err := http.Get("http://" + atLocalhost(p.probe) + "/metrics"); err == nil {
					_, _ = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
				}
			}
		}
	})
	w.t.Cleanup(func() { cancel(); running.Wait() })
}

// value is that of the series with these labels, each as name=value.
func (s scrape) value(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	for _, m := range s.families[name].GetMetric() {
		have := map[string]bool{}
		for _, pair := range m.GetLabel() {
			have[pair.GetName()+"="+pair.GetValue()] = true
		}
		matches := true
		for _, label := range labels {
			matches = matches && have[label]
		}
		if matches {
			return m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
		}
	}
	t.Errorf("no %s with %v", name, labels)
	return -1
}

// expectFamilies fails unless everything is there that the server is asked for.
func (s scrape) expectFamilies(t *testing.T) {
	t.Helper()
	for _, p := range metrics.Parts {
		for _, f := range p.Families {
			_, name, _ := strings.Cut(f.Desc.String(), `fqName: "`)
			name, _, _ = strings.Cut(name, `"`)
			if s.families[name] == nil {
				t.Errorf("%s: %s is missing", p.Name, name)
			}
		}
		if s.value(t, "holdfast_mysql_scrape_error", "part="+p.Name) != 0 {
			t.Errorf("%s is missing", p.Name)
		}
	}
	if s.value(t, "holdfast_mysql_scrape_error", "part="+metrics.StatementsPart) != 0 {
		t.Error("statements are missing")
	}
	for name, want := range map[string]int{"commands_total": 29, "handlers_total": 18, "connection_errors_total": 6, "innodb_row_ops_total": 4, "buffer_pool_pages": 3} {
		if got := len(s.families["mysql_global_status_"+name].GetMetric()); got != want {
			t.Errorf("%s has %d series", name, got)
		}
	}
	if s.series > metrics.MaxSeries || s.series < 100 {
		t.Errorf("a member has %d series", s.series)
	}
}

// Every family is there on each member of a group, with values that fit what was done.
func TestRealMetrics(t *testing.T) {
	w := newWorld(t, 3)
	w.scrapeAlways()
	runs := w.create()
	primary, replica := runs[0], runs[1]
	replica.until("a replica", func(s agentapi.Status) bool { return s.Role == v1alpha1.RoleReplica })
	scraper, other := newCollector(primary.mysqlAgent), newCollector(replica.mysqlAgent)
	t.Cleanup(scraper.close)
	t.Cleanup(other.close)
	handler := scraper.handler()

	primary.exec(createTable)
	before := primary.scrapeMetrics(handler)
	before.expectFamilies(t)
	primary.exec("INSERT INTO app_1.t (x) VALUES ('a'), ('b')", "BEGIN", "ROLLBACK")
	after := primary.scrapeMetrics(handler)
	for name, least := range map[string]float64{
		"mysql_global_status_commands_total command=insert":           1,
		"mysql_global_status_commands_total command=rollback":         1,
		"mysql_global_status_innodb_row_ops_total operation=inserted": 2,
		"mysql_global_status_handlers_total handler=write":            2,
		"mysql_global_status_questions":                               3,
		"mysql_global_status_binlog_cache_use":                        1,
		"mysql_global_status_innodb_os_log_written":                   1,
		"mysql_perf_schema_transactions_local_proposed_total":         1,
	} {
		family, label, labelled := strings.Cut(name, " ")
		var labels []string
		if labelled {
			labels = append(labels, label)
		}
		if grown := after.value(t, family, labels...) - before.value(t, family, labels...); grown < least {
			t.Errorf("%s has grown by %v", name, grown)
		}
	}
	for name, want := range map[string]float64{
		"mysql_up": 1, "holdfast_mysql_serving": 1, "holdfast_mysql_has_majority": 1, "holdfast_mysql_members_declared": 3,
		"mysql_global_variables_super_read_only": 0, "mysql_global_variables_offline_mode": 0, "mysql_global_variables_sync_binlog": 1,
		"holdfast_mysql_data_copies_total": 0, "mysql_perf_schema_conflicts_detected_total": 0,
	} {
		if got := after.value(t, name); got != want {
			t.Errorf("%s is %v", name, got)
		}
	}
	if open, limit := after.value(t, "mysql_global_status_threads_connected"), after.value(t, "mysql_global_variables_max_connections"); open < 1 || open >= limit {
		t.Errorf("%v of %v connections", open, limit)
	}
	after.value(t, "mysql_version_info", "version="+primary.query("SELECT VERSION()"))
	after.value(t, "mysql_perf_schema_replication_group_member_info", "member_id="+primary.uuid(), "member_role=PRIMARY", "member_state=ONLINE")
	after.value(t, "mysql_perf_schema_replication_group_member_info", "member_id="+replica.uuid(), "member_role=SECONDARY", "member_state=ONLINE")

	deadline := time.Now().Add(patience)
	for replica.query("SELECT COUNT(*) FROM app_1.t") != "2" && time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond)
	}
	secondary := replica.scrapeMetrics(other.handler())
	secondary.expectFamilies(t)
	t.Logf("%d series", secondary.series)
	if secondary.value(t, "mysql_global_variables_super_read_only") != 1 || secondary.value(t, "mysql_perf_schema_transactions_remote_applied_total") < 1 ||
		secondary.value(t, "holdfast_mysql_data_copies_total") != 1 {
		t.Error("a replica reports what a primary has")
	}
	expectStatementSums(t, primary, handler)
	expectSilence(t, primary, scraper)
}

// expectStatementSums fails unless all statements together are what the server has, and go on
// from there when its table is emptied. The agent's own statements are among them, and run
// meanwhile.
func expectStatementSums(t *testing.T, r *run, handler http.Handler) {
	t.Helper()
	sum := func() (calls float64) {
		time.Sleep(statements.LeastInterval)
		for _, m := range r.scrapeMetrics(handler).families["mysql_perf_schema_events_statements_total"].GetMetric() {
			calls += m.GetCounter().GetValue()
		}
		return calls
	}
	table := func() float64 {
		n, err := strconv.ParseFloat(r.query("SELECT SUM(COUNT_STAR) FROM performance_schema.events_statements_summary_by_digest"), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	least, first := table(), sum()
	most := table()
	r.execHere(slices.Repeat([]string{"SELECT COUNT(*) FROM app_1.t"}, 500)...)
	beginning, second := table(), sum()
	if grown := second - first; grown < beginning-most || grown > table()-least {
		t.Errorf("%v statements were counted; the server has run between %v and %v", grown, beginning-most, table()-least)
	}
	r.exec("TRUNCATE TABLE performance_schema.events_statements_summary_by_digest")
	if third := sum(); third < second || third > second+beginning {
		t.Errorf("%v statements after the table was emptied, and %v before", third, second)
	}
}

// expectSilence freezes the server: a scrape ends all the same, and says that the server
// does not answer. It stops a moment after the signal.
func expectSilence(t *testing.T, r *run, c *collector) {
	t.Helper()
	r.signal(syscall.SIGSTOP)
	defer r.signal(syscall.SIGCONT)
	silent := r.scrapeMetrics(c.handler())
	for deadline := time.Now().Add(patience); silent.value(t, "mysql_up") != 0; silent = r.scrapeMetrics(c.handler()) {
		if time.Now().After(deadline) {
			t.Fatal("a frozen server is up")
		}
	}
	if silent.families["mysql_global_status_uptime"] != nil || silent.families["holdfast_mysql_role"] == nil {
		t.Errorf("%d series", silent.series)
	}
}
