//go:build postgres

package postgres

import (
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

// trendsParameters keep WAL small, so that it does not grow with the data.
var trendsParameters = map[string]string{"max_wal_size": "64MB", "min_wal_size": "64MB", "wal_keep_size": "0", "autovacuum": "off"}

// A real server that updates what it has is not reported. One that fills its volume is, and
// when half of the forecast has passed, half of the space is left. The time between samples
// is taken to be a minute.
func TestRealVolumeForecast(t *testing.T) {
	w := newWorld(t, 1)
	w.configure(func(c *agentapi.ClusterConfig) { c.VolumeSize, c.Parameters = 512<<20, trendsParameters })
	dir := t.TempDir()
	volume := w.filledVolume(dir)
	primary := w.start(0, dir, "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	app := w.session(0)
	app.must("create table kept (v text)", "create table passing (v text)")
	at := time.Now().UTC().Add(time.Hour)
	live := func(minutes int, statements ...string) {
		for range minutes {
			app.must(statements...)
			at = at.Add(time.Minute)
			primary.Trends.Measure(at)
		}
	}
	const load = "insert into passing select repeat(md5(g::text), 50) from generate_series(1, 1000) g"
	for range 60 { // until WAL is as large as it gets
		app.must(load, "truncate passing")
	}
	primary.query("select pg_switch_wal()::text")
	volume.leave(260 << 20)

	live(90, load, "truncate passing")
	var report agentapi.Insights
	if primary.Trends.Report(&report); report.Volume == nil || report.Volume.Fills {
		t.Errorf("a steady volume: %+v", report.Volume)
	}
	if classes := fillClasses(primary); len(classes) > 0 {
		t.Errorf("a steady volume is reported: %v", classes)
	}

	live(65, "insert into kept select repeat(md5(g::text), 50) from generate_series(1, 1500) g")
	found := primary.Insights.Report().Volume
	if found == nil || !found.Fills || found.Trend {
		t.Fatalf("a volume that fills: %+v", found)
	}
	if classes := fillClasses(primary); len(classes) != 1 || classes[0] != loginsight.VolumeFullInADay {
		t.Errorf("reported: %v", classes)
	}
	free, half := volume.space().Free, int(found.Seconds)/120
	live(half, "insert into kept select repeat(md5(g::text), 50) from generate_series(1, 1500) g")
	left := float64(volume.space().Free) / float64(free)
	t.Logf("forecast %d minutes with %d MiB free; after %d minutes %.0f %% of that is free", found.Seconds/60, free>>20, half, 100*left)
	if left < 0.3 || left > 0.7 {
		t.Errorf("after half of the time %.0f %% of the space is left", 100*left)
	}
}

// fillClasses are the classes that say that a volume fills.
func fillClasses(r *run) (names []string) {
	for _, i := range r.Insights.Report().Classes {
		switch i.Class {
		case loginsight.VolumeFullInADay, loginsight.VolumeFullInFourDays, loginsight.VolumeFullInTwoWeeks:
			names = append(names, i.Class)
		}
	}
	return names
}
