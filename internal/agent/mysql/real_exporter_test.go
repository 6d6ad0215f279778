//go:build mysql

package mysql

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/holdfast-db/holdfast/internal/agent/agenttest"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/accounts"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/metrics"
	"github.com/holdfast-db/holdfast/internal/agent/statements"
)

// Beside a member runs Debian's mysqld_exporter, 0.14.0. What both export has the same
// type, the same labels and the same values.
func TestRealExporter(t *testing.T) {
	w := newWorld(t, 1)
	member := w.create()[0]
	member.exec(createTable, "INSERT INTO app_1.t (x) VALUES ('a'), ('b')", "UPDATE app_1.t SET x = 'c'", "DELETE FROM app_1.t")
	collector := newCollector(member.mysqlAgent)
	t.Cleanup(collector.close)
	scrape := agenttest.StartExporter(t, "prometheus-mysqld-exporter", "HOLDFAST_MYSQL_EXPORTER",
		[]string{fmt.Sprintf("DATA_SOURCE_NAME=%s@unix(%s)/", accounts.Agent, member.o.socket())},
		"--no-collect.slave_status", "--collect.info_schema.innodb_metrics", "--collect.perf_schema.replication_group_members", "--collect.perf_schema.replication_group_member_stats",
		"--collect.perf_schema.eventsstatements", "--collect.perf_schema.eventsstatements.timelimit=86400")
	handler := collector.handler()
	own := func() agenttest.Families {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return agenttest.ParseScrape(t, answer.Body)
	}
	scrape()
	expectStatements(t, member, own, scrape)
	before, exporter, after := own(), scrape(), own()
	for name := range before {
		if strings.HasPrefix(name, statementPrefix) {
			delete(before, name) // compared above: others than the chosen ones are the rest
		}
	}
	series := agenttest.Comparison{
		Before: before, Exporter: exporter, After: after, Prefix: "mysql_", SameLabels: true,
		Sessions: map[string]float64{"mysql_global_status_threads_connected": 2, "mysql_global_status_threads_running": 2, "mysql_global_status_threads_cached": 2},
	}.Compare(t)
	t.Logf("%d series agree", series)
	if series < 150 {
		t.Error("too few to say that they agree")
	}
}

// statementPrefix begins the names of statements' metrics.
const statementPrefix = "mysql_perf_schema_events_statements_"

// expectStatements runs statements twice, and compares by how much the agent and the exporter
// say more of them the second time, by digest and schema. The first time they join those that
// the agent reports by digest.
func expectStatements(t *testing.T, member *run, own, scrape func() agenttest.Families) {
	t.Helper()
	own()
	const secret = "canary-4111222233334444"
	load := []string{"USE app_1"}
	for i := range 20 {
		load = append(load, fmt.Sprintf("INSERT INTO t (x) VALUES ('canary-%d')", i), "SELECT SLEEP(0.02), COUNT(*) FROM t WHERE x <> '"+secret+"'")
	}
	run := func() (ours, theirs agenttest.Families) {
		member.execHere(load...)
		time.Sleep(statements.LeastInterval)
		return own(), scrape()
	}
	_, earlier := run()
	ours, theirs := run()
	compared := 0
	for _, f := range metrics.StatementFamilies {
		_, name, _ := strings.Cut(f.Desc.String(), `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		if ours[name].GetType() != theirs[name].GetType() {
			t.Errorf("%s is a %s, and the exporter's a %s", name, ours[name].GetType(), theirs[name].GetType())
		}
		for _, m := range ours[name].GetMetric() {
			labels := map[string]string{}
			for _, pair := range m.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			if strings.Contains(fmt.Sprint(labels), "canary") || len(labels) != 2 {
				t.Errorf("%s has the labels %v", name, labels)
			}
			if labels["schema"] != "app_1" {
				continue
			}
			got, want := m.GetCounter().GetValue(), exportedStatement(theirs[name], labels)-exportedStatement(earlier[name], labels)
			if math.Abs(got-want) > 1e-6 || name == statementPrefix+"total" && got != 20 {
				t.Errorf("%s%v is %v, and the exporter's %v", name, labels, got, want)
			}
			compared++
		}
	}
	if compared < 2*len(metrics.StatementFamilies) {
		t.Errorf("only %d series of statements were compared", compared)
	}
}

// exportedStatement is the exporter's series, which has the text as well.
func exportedStatement(f *dto.MetricFamily, labels map[string]string) float64 {
	for _, m := range f.GetMetric() {
		agree := 0
		for _, pair := range m.GetLabel() {
			if labels[pair.GetName()] == pair.GetValue() {
				agree++
			}
		}
		if agree == len(labels) {
			return m.GetCounter().GetValue()
		}
	}
	return -1
}
