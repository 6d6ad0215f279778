package plugin

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// What is not as usual is shown with what is, what lasts first, and with the change before it.
func TestInsightsShowAnomalies(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return now.Add(time.Duration(-minutes) * time.Minute) }
	r := InsightsReport{Kind: "PostgresCluster", Members: []InsightMember{{Member: "orders-0", Anomalies: []agentapi.Anomaly{
		{Title: "rows read", Unit: "per second", Observed: 52000, Expected: 9100, Since: at(180), Until: at(120)},
		{Title: "sessions", Observed: 140, Expected: 31, Since: at(40), Cause: "SettingsChanged", CausedAt: at(62)},
		{Title: "commits", Unit: "per second", Observed: 2.5, Expected: 400, Since: at(9), Cause: "a text of another agent"},
	}}}}
	var out strings.Builder
	v := view{now: now}
	if err := v.renderInsights(r).writeTree(&out, v.style); err != nil {
		t.Fatal(err)
	}
	rest := out.String()
	for _, want := range []string{
		"orders-0: commits 2.5 per second since 9m, usual at this time: 400 per second\n",
		"orders-0: sessions 140 since 40m, usual at this time: 31; 22 minutes before, its settings or members changed\n",
		"orders-0: rows read 52000 per second for 60 minutes, until 120m ago, usual at this time: 9100 per second\n",
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("%q is missing, or out of order, of\n%s", want, out.String())
		}
		rest = after
	}
}
