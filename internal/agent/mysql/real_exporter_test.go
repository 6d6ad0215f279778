//go:build mysql

package mysql

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/agenttest"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/accounts"
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
		"--no-collect.slave_status", "--collect.info_schema.innodb_metrics", "--collect.perf_schema.replication_group_members", "--collect.perf_schema.replication_group_member_stats")
	handler := collector.handler()
	own := func() agenttest.Families {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return agenttest.ParseScrape(t, answer.Body)
	}
	scrape()
	series := agenttest.Comparison{
		Before: own(), Exporter: scrape(), After: own(), Prefix: "mysql_", SameLabels: true,
		Sessions: map[string]float64{"mysql_global_status_threads_connected": 2, "mysql_global_status_threads_running": 2, "mysql_global_status_threads_cached": 2},
	}.Compare(t)
	t.Logf("%d series agree", series)
	if series < 150 {
		t.Error("too few to say that they agree")
	}
}
