//go:build postgres

package postgres

import (
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
)

// scrapeMetrics reads what the agent offers to Prometheus.
func (r *run) scrapeMetrics() string {
	r.t.Helper()
	session := server.NewSession(r.o.RunDir, r.o.Port, "test-metrics")
	defer session.Close()
	c := collector{log: r.o.Log, store: r.Store, leads: r.isLeading, election: r.readElection, space: r.o.measureSpace, archive: r.archive, scrape: session, rejoin: &r.rejoin}
	answer := httptest.NewRecorder()
	c.newHandler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
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
	primary.expectLines(`holdfast_pg_up 1`, `holdfast_pg_lease_held 1`, `holdfast_pg_term [1-9]\d*`, `holdfast_pg_elections_won_total [1-9]\d*`,
		`holdfast_pg_lease_renewed_seconds [\d.e-]+`, `holdfast_pg_fences_total 0`, `holdfast_pg_synchronous_standbys_streaming 0`,
		`holdfast_pg_database_size_bytes\{database="app"\} .*`, `holdfast_pg_replication_lag_bytes\{replica="orders-1"\} .*`)
	replica.expectLines(`holdfast_pg_lease_held 0`, `holdfast_pg_data_copies_total 1`, `holdfast_pg_candidate_held 0`, `holdfast_pg_elections_won_total 0`)
	if text := replica.scrapeMetrics(); strings.Contains(text, "\nholdfast_pg_lease_renewed_seconds ") || strings.Contains(text, "\nholdfast_pg_synchronous_standbys_streaming ") {
		t.Error("a replica reports what only a primary has")
	}
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
