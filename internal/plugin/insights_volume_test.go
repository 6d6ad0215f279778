package plugin

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// A volume that fills is shown with what shows it, and one that does not is not.
func TestInsightsShowForecasts(t *testing.T) {
	r := InsightsReport{Kind: "PostgresCluster", Members: []InsightMember{
		{Member: "orders-0", Volume: &agentapi.VolumeForecast{Fills: true, Seconds: 3 * 86400, BytesPerDay: 5 << 30, ShownSeconds: 14 * 86400, Trend: true}},
		{Member: "orders-1", Volume: &agentapi.VolumeForecast{Fills: true, Seconds: 5400, BytesPerDay: 100 << 30, ShownSeconds: 1800}},
		{Member: "orders-2", Volume: &agentapi.VolumeForecast{BytesPerDay: -5}},
	}}
	var out strings.Builder
	v := view{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	if err := v.renderInsights(r).writeTree(&out, v.style); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"orders-0: its volume is full in 3 days by the trend of 14 days, +5Gi a day",
		"orders-1: its volume is full in 90 minutes by the last 30 minutes, +100Gi a day",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing of\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "orders-2: its volume") {
		t.Errorf("a volume that does not fill is shown:\n%s", out.String())
	}
}
