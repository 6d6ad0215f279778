//go:build postgres

package postgres

import (
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/metrics"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
)

// scrapeMetrics reads what the agent offers to Prometheus.
func (r *run) scrapeMetrics() string {
	r.t.Helper()
	session := server.NewSession(r.o.RunDir, r.o.Port, "test-metrics")
	defer session.Close()
	answer := httptest.NewRecorder()
	r.newCollector(session).newHandler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if answer.Code != 200 {
		r.t.Fatalf("%d: %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// expectLines fails unless a scrape has lines that match each of the patterns.
func (r *run) expectLines(patterns ...string) {
	r.t.Helper()
	text := r.scrapeMetrics()
	for _, pattern := range patterns {
		if !regexp.MustCompile(`(?m)^` + pattern + `$`).MatchString(text) {
			r.t.Errorf("%s: no line matches %s", r.o.Identity.Pod, pattern)
		}
	}
}

// The queries work with each major, and what members report of the election fits
// together.
func TestRealMetrics(t *testing.T) {
	w := newWorld(t, 2)
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	replica := w.start(1, t.TempDir(), "uid-1")
	replica.untilRole(v1alpha1.RoleReplica)
	primary.expectLines(`pg_up 1`, `holdfast_pg_lease_held 1`, `holdfast_pg_term [1-9]\d*`, `holdfast_pg_elections_won_total [1-9]\d*`,
		`holdfast_pg_lease_renewed_seconds [\d.e-]+`, `holdfast_pg_fences_total 0`, `holdfast_pg_synchronous_standbys_streaming 0`,
		`pg_database_size_bytes\{datname="app"\} .*`, `pg_stat_replication_pg_wal_lsn_diff\{application_name="orders-1"\} .*`)
	replica.expectLines(`holdfast_pg_lease_held 0`, `holdfast_pg_data_copies_total 1`, `holdfast_pg_candidate_held 0`, `holdfast_pg_elections_won_total 0`)
	if text := replica.scrapeMetrics(); strings.Contains(text, "\nholdfast_pg_lease_renewed_seconds ") || strings.Contains(text, "\nholdfast_pg_synchronous_standbys_streaming ") {
		t.Error("a replica reports what only a primary has")
	}
	expectBounds(t, primary)
	// From 17 on ALTER SYSTEM is refused.
	mustWrite(t, filepath.Join(primary.o.pgdataPath(), "postgresql.auto.conf"), "synchronous_standby_names = 'ANY 1 (*)'\n")
	primary.exec("select pg_reload_conf()")
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if strings.Contains(primary.scrapeMetrics(), "\nholdfast_pg_synchronous_standbys_streaming 1\n") {
			return
		}
		if time.Now().After(end) {
			t.Fatal("a synchronous standby is not counted")
		}
	}
}

// expectBounds fails unless a member with many databases and slots has all parts of a
// scrape, and no more series than the bound.
func expectBounds(t *testing.T, primary *run) {
	t.Helper()
	for i := range 12 {
		primary.exec(fmt.Sprintf("create database many_%d", i))
	}
	for i := range 3 {
		primary.exec(fmt.Sprintf("select pg_create_physical_replication_slot('mine_%d', true)", i))
	}
	primary.expectLines(`pg_database_size_bytes\{datname="other"\} .*`, `pg_stat_database_xact_commit\{datname="app"\} .*`, `pg_stat_activity_count\{datname="postgres",state="active"\} .*`,
		`pg_database_wraparound_age_datfrozenxid_seconds\{datname="template1"\} .*`, `pg_replication_slot_wal_status\{slot_name="mine_0",slot_type="physical",wal_status="reserved"\} 1`,
		`pg_replication_is_replica 0`, `pg_(?:stat_checkpointer_num_requested|stat_bgwriter_checkpoints_req)_total \d+`, `holdfast_pg_login_failures_total 0`)
	series := 0
	for line := range strings.Lines(primary.scrapeMetrics()) {
		if strings.HasPrefix(line, "holdfast_pg_scrape_error") && !strings.HasSuffix(line, "} 0\n") {
			t.Error(strings.TrimSpace(line))
		}
		if !strings.HasPrefix(line, "#") {
			series++
		}
	}
	if series > metrics.MaxSeries || series < 100 {
		t.Errorf("a member has %d series", series)
	}
	t.Logf("%d series", series)
	for i := range 3 {
		primary.exec(fmt.Sprintf("select pg_drop_replication_slot('mine_%d')", i))
	}
}
