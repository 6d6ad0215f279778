package metrics

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
	"github.com/holdfast-db/holdfast/internal/agent/statements"
	"github.com/holdfast-db/holdfast/internal/anomaly"
)

// recorded are answers of a server by a word of the question. It does not answer others.
type recorded map[string][][]driver.Value

func (r recorded) Connect(context.Context) (driver.Conn, error) { return session{r}, nil }
func (r recorded) Driver() driver.Driver                        { return nil }

type session struct{ recorded }

var errUnused = errors.New("not used here")

func (session) Prepare(string) (driver.Stmt, error) { return nil, errUnused }
func (session) Close() error                        { return nil }
func (session) Begin() (driver.Tx, error)           { return nil, errUnused }

func (s session) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	for word, rows := range s.recorded {
		if strings.Contains(query, word) {
			return &answer{rows, len(slices.Concat(rows...)) / max(1, len(rows))}, nil
		}
	}
	return nil, errors.New("no answer to " + query)
}

type answer struct {
	rows  [][]driver.Value
	width int
}

func (a *answer) Columns() []string { return make([]string, a.width) }
func (a *answer) Close() error      { return nil }

func (a *answer) Next(into []driver.Value) error {
	if len(a.rows) == 0 {
		return io.EOF
	}
	copy(into, a.rows[0])
	a.rows = a.rows[1:]
	return nil
}

// scraped are the parts as Prometheus reads them, and what failed.
type scraped struct {
	db     *sql.DB
	failed map[string]error
}

func (s scraped) Describe(into chan<- *prometheus.Desc) {
	for _, p := range Parts {
		for _, f := range p.Families {
			into <- f.Desc
		}
	}
}

func (s scraped) Collect(into chan<- prometheus.Metric) {
	for _, p := range Parts {
		s.failed[p.Name] = p.Collect(context.Background(), s.db, func(f metricfamily.Family, value float64, labels ...string) {
			into <- prometheus.MustNewConstMetric(f.Desc, f.Kind, value, labels...)
		})
	}
}

// scrapeAll reads the series of a server's answers, and what failed. A pedantic registry
// refuses a series that is there twice, or that is not of its family.
func scrapeAll(t *testing.T, r recorded) (map[string]float64, map[string]error, map[string]dto.MetricType) {
	t.Helper()
	s := scraped{sql.OpenDB(r), map[string]error{}}
	defer func() { _ = s.db.Close() }()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values, kinds := map[string]float64{}, map[string]dto.MetricType{}
	for _, f := range families {
		kinds[f.GetName()] = f.GetType()
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, pair := range m.GetLabel() {
				name += fmt.Sprintf(" %s=%s", pair.GetName(), pair.GetValue())
			}
			values[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return values, s.failed, kinds
}

const (
	ownUUID  = "7c0f3a5e-0000-11f1-8000-000000000001"
	peerUUID = "7c0f3a5e-0000-11f1-8000-000000000002"
)

// member is a group's row, as MySQL 9.7 answers.
func member(uuid, host, state, role string) []driver.Value {
	return []driver.Value{"group_replication_applier", uuid, host, int64(3306), state, role, "9.7.4", "MySQL"}
}

func whole() recorded {
	return recorded{
		"replication_group_members":      {member(ownUUID, "orders-0", "ONLINE", "PRIMARY"), member(peerUUID, "orders-1", "UNREACHABLE", "SECONDARY")},
		"replication_group_member_stats": {{int64(3), int64(70), int64(1), int64(40), int64(5), int64(60), int64(9), int64(2)}},
		"INNODB_METRICS":                 {{"lock_deadlocks", int64(29)}},
		"global_variables": {
			{"max_connections", "151"}, {"super_read_only", "OFF"}, {"read_only", "ON"}, {"long_query_time", "10.000000"},
			{"version", "9.7.4"}, {"version_comment", "MySQL Community Server - GPL"},
		},
		"GLOBAL STATUS": {
			{"Uptime", "42"}, {"Threads_connected", "7"}, {"Com_insert", "11"}, {"Handler_write", "13"}, {"Connection_errors_max_connections", "2"},
			{"Innodb_rows_inserted", "17"}, {"Innodb_buffer_pool_pages_data", "19"}, {"Innodb_buffer_pool_pages_dirty", "4"},
			{"Innodb_buffer_pool_pages_flushed", "23"}, {"Created_tmp_tables", "not a number"},
		},
	}
}

func TestParts(t *testing.T) {
	got, failed, kinds := scrapeAll(t, whole())
	for part, err := range failed {
		if err != nil {
			t.Errorf("%s: %v", part, err)
		}
	}
	info := func(uuid, host, state, role string) string {
		return "mysql_perf_schema_replication_group_member_info channel_name=group_replication_applier member_communication_stack=MySQL member_host=" + host +
			" member_id=" + uuid + " member_port=3306 member_role=" + role + " member_state=" + state + " member_version=9.7.4"
	}
	want := map[string]float64{
		info(ownUUID, "orders-0", "ONLINE", "PRIMARY"):                                                  1,
		info(peerUUID, "orders-1", "UNREACHABLE", "SECONDARY"):                                          1,
		"mysql_perf_schema_transactions_in_queue":                                                       3,
		"mysql_perf_schema_transactions_checked_total":                                                  70,
		"mysql_perf_schema_conflicts_detected_total":                                                    1,
		"mysql_perf_schema_transactions_rows_validating_total":                                          40,
		"mysql_perf_schema_transactions_remote_in_applier_queue":                                        5,
		"mysql_perf_schema_transactions_remote_applied_total":                                           60,
		"mysql_perf_schema_transactions_local_proposed_total":                                           9,
		"mysql_perf_schema_transactions_local_rollback_total":                                           2,
		"mysql_global_variables_max_connections":                                                        151,
		"mysql_global_variables_super_read_only":                                                        0,
		"mysql_global_variables_read_only":                                                              1,
		"mysql_global_variables_long_query_time":                                                        10,
		"mysql_version_info innodb_version= version=9.7.4 version_comment=MySQL Community Server - GPL": 1,
		"mysql_info_schema_innodb_metrics_lock_lock_deadlocks_total":                                    29,
		"mysql_global_status_uptime":                                                                    42,
		"mysql_global_status_threads_connected":                                                         7,
		"mysql_global_status_commands_total command=insert":                                             11,
		"mysql_global_status_handlers_total handler=write":                                              13,
		"mysql_global_status_connection_errors_total error=max_connections":                             2,
		"mysql_global_status_innodb_row_ops_total operation=inserted":                                   17,
		"mysql_global_status_buffer_pool_pages state=data":                                              19,
		"mysql_global_status_buffer_pool_dirty_pages":                                                   4,
		"mysql_global_status_buffer_pool_page_changes_total operation=flushed":                          23,
	}
	for name, value := range want {
		if have, there := got[name]; !there || have != value {
			t.Errorf("%s is %v, %v", name, have, there)
		}
	}
	for name := range got {
		if _, expected := want[name]; !expected {
			t.Errorf("%s is there", name)
		}
	}
	for name, kind := range map[string]dto.MetricType{
		"mysql_global_status_uptime": dto.MetricType_UNTYPED, "mysql_global_variables_max_connections": dto.MetricType_GAUGE,
		"mysql_global_status_commands_total": dto.MetricType_COUNTER, "mysql_perf_schema_transactions_in_queue": dto.MetricType_GAUGE,
		"mysql_perf_schema_conflicts_detected_total": dto.MetricType_COUNTER, "mysql_version_info": dto.MetricType_GAUGE,
	} {
		if kinds[name] != kind {
			t.Errorf("%s is a %s", name, kinds[name])
		}
	}
}

// A part that the server does not answer is missing, and the others are there.
func TestPartsFailAlone(t *testing.T) {
	for _, p := range Parts {
		t.Run(p.Name, func(t *testing.T) {
			answers := whole()
			for word := range answers {
				if strings.Contains(p.query, word) {
					delete(answers, word)
				}
			}
			got, failed, _ := scrapeAll(t, answers)
			for _, other := range Parts {
				if missing := failed[other.Name] != nil; missing != (other.Name == p.Name) {
					t.Errorf("%s: %v", other.Name, failed[other.Name])
				}
			}
			for name := range got {
				family, _, _ := strings.Cut(name, " ")
				if slices.Contains(familyNames(p.Families), family) {
					t.Errorf("%s is there", name)
				}
			}
		})
	}
}

// A server in no group has no statistics of one, and a port may be unknown.
func TestPartsOutsideOfAGroup(t *testing.T) {
	answers := whole()
	answers["replication_group_members"] = [][]driver.Value{{"group_replication_applier", "", "", nil, "OFFLINE", "", "", ""}}
	answers["replication_group_member_stats"] = [][]driver.Value{}
	got, failed, kinds := scrapeAll(t, answers)
	const offline = "mysql_perf_schema_replication_group_member_info channel_name=group_replication_applier member_communication_stack= member_host= member_id= member_port= member_role= member_state=OFFLINE member_version="
	if failed["members"] != nil || failed["statistics"] != nil || got[offline] != 1 || got["mysql_global_status_uptime"] != 42 {
		t.Errorf("%v: %v", failed, got)
	}
	if _, there := kinds["mysql_perf_schema_conflicts_detected_total"]; there {
		t.Error("there are conflicts in no group")
	}
}

// agentsSeries are those that the agent has without asking the server.
const agentsSeries = 26

// A server that answers everything, in a group of the largest size, leaves series for half of
// the statements at least, and all together stay below the limit.
func TestSeriesAreBounded(t *testing.T) {
	answers := recorded{"replication_group_member_stats": whole()["replication_group_member_stats"]}
	for i := range largestGroup {
		answers["replication_group_members"] = append(answers["replication_group_members"], member(fmt.Sprint(i), "orders", "ONLINE", "SECONDARY"))
	}
	quoted := regexp.MustCompile(`'([a-z_]+)'`)
	for _, p := range Parts {
		for word, rows := range map[string]string{"global_variables": "variables", "GLOBAL STATUS": "status", "INNODB_METRICS": "innodb"} {
			if p.Name != rows {
				continue
			}
			for _, name := range quoted.FindAllStringSubmatch(p.query, -1) {
				answers[word] = append(answers[word], []driver.Value{name[1], "1"})
			}
		}
	}
	got, failed, kinds := scrapeAll(t, answers)
	for _, p := range Parts {
		for _, name := range familyNames(p.Families) {
			if _, there := kinds[name]; !there {
				t.Errorf("%s is missing: %v", name, failed[p.Name])
			}
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	runtime := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			runtime++
			if s := m.GetSummary(); s != nil {
				runtime += len(s.GetQuantile()) + 1
			}
		}
	}
	sent := len(got) + agentsSeries + 1
	most := statements.Limit(MaxSeries - metricfamily.OtherSeries - sent)
	t.Logf("%d series of Go, %d of the agent and the server, %d statements", runtime, sent, most)
	if all := sent + runtime + appendedSeries + (most+1)*len(StatementFamilies); most < statements.Most/2 || all > MaxSeries {
		t.Errorf("%d statements, and %d series", most, all)
	}
	if runtime+appendedSeries > metricfamily.OtherSeries {
		t.Errorf("%d series of Go and %d others are more than %d", runtime, appendedSeries, metricfamily.OtherSeries)
	}
}

// appendedSeries are at most those of the volume's forecast, of what the container uses, and
// of the signals of which anomalies are reported.
var appendedSeries = 1 + 4 + max(len(anomaly.PostgresSignals), len(anomaly.MySQLSignals))

func familyNames(families []metricfamily.Family) []string {
	var names []string
	for _, f := range families {
		_, name, _ := strings.Cut(f.Desc.String(), `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		names = append(names, name)
	}
	return names
}

// No family is declared twice, and no variable asked for twice.
func TestFamiliesAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Parts {
		for _, name := range familyNames(p.Families) {
			if seen[name] {
				t.Errorf("%s is there twice", name)
			}
			seen[name] = true
		}
	}
	for _, names := range [][]string{nameVariables(systemVariables), append(nameVariables(statusVariables), nameGroups()...)} {
		asked := map[string]bool{}
		for _, name := range names {
			if asked[name] || name != strings.ToLower(name) || strings.Contains(name, "'") {
				t.Errorf("%q is asked for twice, or is not written in lower case", name)
			}
			asked[name] = true
		}
	}
}

// overviewNames are what the dashboard MySQL Overview of mysqld_exporter reads, but for
// process states and what MySQL no longer has.
const overviewNames = `
mysql_ up
mysql_global_status_ uptime queries questions slow_queries threads_connected threads_running threads_cached threads_created max_used_connections
mysql_global_status_ created_tmp_tables created_tmp_disk_tables created_tmp_files aborted_connects aborted_clients bytes_received bytes_sent
mysql_global_status_ select_full_join select_full_range_join select_range select_range_check select_scan
mysql_global_status_ sort_rows sort_range sort_merge_passes sort_scan table_locks_immediate table_locks_waited
mysql_global_status_ innodb_page_size buffer_pool_pages commands_total handlers_total opened_files open_files innodb_num_open_files
mysql_global_status_ opened_tables open_tables table_open_cache_hits table_open_cache_misses table_open_cache_overflows
mysql_global_status_ open_table_definitions opened_table_definitions
mysql_global_variables_ innodb_buffer_pool_size max_connections thread_cache_size innodb_log_buffer_size key_buffer_size
mysql_global_variables_ open_files_limit table_open_cache table_definition_cache
`

func TestOverviewDashboardHasItsMetrics(t *testing.T) {
	have := familyNames([]metricfamily.Family{UpMetric})
	for _, p := range Parts {
		have = append(have, familyNames(p.Families)...)
	}
	for line := range strings.Lines(overviewNames) {
		words := strings.Fields(line)
		for i := 1; i < len(words); i++ {
			if name := words[0] + words[i]; !slices.Contains(have, name) {
				t.Errorf("%s is missing", name)
			}
		}
	}
}
