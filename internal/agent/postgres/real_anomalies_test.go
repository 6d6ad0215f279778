//go:build postgres

package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

// A real server lives through an hour and a half of four days. What it does on the first
// three is as usual on the fourth. Five times as many rows are not, and are found within five
// minutes. The time between samples is taken to be a minute.
func TestRealAnomalies(t *testing.T) {
	w := newWorld(t, 1)
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	app := w.session(0)
	app.must("create unlogged table load (n int)")
	now := nextMonday(time.Now().UTC())
	live := func(from time.Time, minutes, rows int) {
		for i := range minutes {
			app.must(fmt.Sprintf("insert into load select generate_series(1, %d)", rows+rows/10*(i%3)),
				"truncate load", "select pg_stat_force_next_flush()", "select 1") // sessions report once a second
			now = from.Add(time.Duration(i+1) * time.Minute)
			primary.Anomalies.Measure(t.Context(), now)
		}
	}
	const usual = 12000
	for range 3 {
		live(now, 90, usual)
		now = now.Add(24*time.Hour - 90*time.Minute)
	}
	live(now, 45, usual)
	if found := primary.Insights.Report().Anomalies; len(found) != 0 {
		t.Fatalf("what is usual is reported: %+v", found)
	}

	began := now
	live(now, 5, 5*usual)
	var rows *agentapi.Anomaly
	report := primary.Insights.Report()
	for i, a := range report.Anomalies {
		t.Logf("%+v", a)
		if a.Signal == "rows_written" {
			rows = &report.Anomalies[i]
		}
	}
	if rows == nil || rows.Class != loginsight.UnusualLoad || rows.Since.Before(began) || rows.Observed < 3*rows.Expected || !rows.Until.IsZero() {
		t.Fatalf("five times as many rows: %+v", report.Anomalies)
	}
	counted := false
	for _, c := range report.Classes {
		counted = counted || c.Class == loginsight.UnusualLoad
	}
	if !counted {
		t.Errorf("no class of anomalies was counted: %+v", report.Classes)
	}

	live(now, 10, usual)
	for _, a := range primary.Insights.Report().Anomalies {
		if a.Signal == "rows_written" && a.Until.IsZero() {
			t.Errorf("it has not ended: %+v", a)
		}
	}
}

// nextMonday is twenty to nine in the morning of a day from which on four are weekdays.
func nextMonday(t time.Time) time.Time {
	t = t.Truncate(24 * time.Hour).Add(24*time.Hour + 8*time.Hour + 40*time.Minute)
	for t.Weekday() != time.Monday {
		t = t.Add(24 * time.Hour)
	}
	return t
}
