//go:build postgres

package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/agenttest"
)

// Beside a member runs Debian's postgres_exporter, 0.11.1. What both export has the same
// type and the same values. The exporter has more labels: the server, and OIDs.
func TestRealExporter(t *testing.T) {
	w := newWorld(t, 1)
	member := w.start(0, t.TempDir(), "uid-0")
	member.untilRole(v1alpha1.RolePrimary)
	member.exec("create table public.t (id serial primary key, v text)", "insert into public.t (v) select md5(g::text) from generate_series(1, 5000) g",
		"update public.t set v = 'x' where id < 100", "delete from public.t where id > 4900", "select count(*) from public.t", "checkpoint",
		"select pg_create_physical_replication_slot('mine', true)")
	scrape := agenttest.StartExporter(t, "prometheus-postgres-exporter", "HOLDFAST_POSTGRES_EXPORTER",
		[]string{fmt.Sprintf("DATA_SOURCE_NAME=postgresql:///postgres?host=%s&port=%d&user=postgres&sslmode=disable", member.o.RunDir, member.o.Port)})
	own := func() agenttest.Families { return agenttest.ParseScrape(t, strings.NewReader(member.scrapeMetrics())) }
	scrape() // what it reads of the catalogue for the first time is then in the cache
	series := agenttest.Comparison{
		Before: own(), Exporter: scrape(), After: own(), Prefix: "pg_",
		Sessions: map[string]float64{"pg_stat_database_numbackends": 2, "pg_stat_activity_count": 2},
	}.Compare(t)
	t.Logf("%d series agree", series)
	if series < 30 {
		t.Error("too few to say that they agree")
	}
}
