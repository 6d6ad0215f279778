//go:build postgres

package postgres

import (
	"maps"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/tuning"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/tune"
	"github.com/holdfast-db/holdfast/internal/tune/tunetest"
)

// tuningWorkload is a load that a setting is too small for.
type tuningWorkload struct {
	setting string
	symptom string
	// left is the share of the symptom that may be left.
	left  float64
	setUp []string
	burst []string
}

var tuningWorkloads = []tuningWorkload{
	{
		setting: "max_wal_size", symptom: agentapi.TuningCheckpointsRequested, left: 0.2,
		setUp: []string{"create table wal_load (v text)"},
		burst: []string{"insert into wal_load select repeat(md5(g::text), 20) from generate_series(1, 60000) g", "truncate wal_load"},
	},
	{
		setting: "work_mem", symptom: agentapi.TuningTempBytes, left: 0.05,
		setUp: []string{"create table spill_load as select g as n, md5(g::text) as v from generate_series(1, 120000) g", "analyze spill_load"},
		burst: []string{"set max_parallel_workers_per_gather = 0", "select count(*) from (select v from spill_load order by v offset 1) s", "select count(*) from (select v from spill_load order by v desc offset 1) s"},
	},
	{
		setting: "shared_buffers", symptom: agentapi.TuningBlocksRead, left: 0.2,
		// Twelve tables of 3 MB: a scan of a larger one would read past the buffers.
		setUp: []string{"do $$ begin for i in 1..12 loop execute format('create table hot_load_%s as select repeat(''x'', 400) as v from generate_series(1, 6000)', i); end loop; end $$"},
		burst: []string{"do $$ declare n bigint; begin for i in 1..12 loop execute format('select count(v) from hot_load_%s', i) into n; end loop; end $$"},
	},
}

// tuningParameters are too small for each of the loads.
var tuningParameters = map[string]string{
	"max_wal_size": "64MB", "min_wal_size": "32MB", "wal_keep_size": "0", "work_mem": "1MB", "shared_buffers": "16MB", "autovacuum": "off",
	"hash_mem_multiplier": "1", "wal_compression": "off",
}

// Each of three loads gets its recommendation from what the real server measured. With what
// is recommended, step by step, it goes, and the symptom with it.
func TestRealTuning(t *testing.T) {
	for _, load := range tuningWorkloads {
		t.Run(load.setting, func(t *testing.T) { runTuning(t, load) })
	}
}

func runTuning(t *testing.T, load tuningWorkload) {
	w := newWorld(t, 1)
	parameters := maps.Clone(tuningParameters)
	w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = maps.Clone(parameters) })
	volume := t.TempDir()
	primary := w.start(0, volume, "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	w.session(0).must(load.setUp...)
	spec := tune.Spec{Engine: tune.PostgreSQL, Memory: 1 << 30, Volume: 20 << 30}
	var before, after float64
	for steps := 0; ; steps++ {
		slots := measureLoad(t, w, primary, load)
		after = sumUp(slots, load.symptom)
		if steps == 0 {
			before = after
		}
		advice := tunetest.RecommendSetting(spec, slots, load.setting)
		if advice == nil {
			t.Logf("%s from %s to %s in %d steps: %s went from %.0f to %.0f", load.setting, tuningParameters[load.setting], parameters[load.setting],
				steps, load.symptom, before, after)
			break
		}
		if steps == 7 {
			t.Fatalf("there is still a recommendation: %+v", advice)
		}
		t.Logf("%s: %s, now %s: %s", advice.Field, advice.Value, advice.Current, advice.Evidence)
		parameters[load.setting] = advice.Value
		primary = reconfigure(t, w, primary, volume, parameters, advice.Restart)
	}
	if parameters[load.setting] == tuningParameters[load.setting] {
		t.Fatal("nothing is recommended")
	}
	if after > load.left*before {
		t.Errorf("more than %.0f %% of %s are left", 100*load.left, load.symptom)
	}
}

// reconfigure has the member run with parameters, in another pod where that takes a restart.
func reconfigure(t *testing.T, w *world, primary *run, volume string, parameters map[string]string, restart bool) *run {
	t.Helper()
	hash := w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = maps.Clone(parameters) })
	if restart {
		primary.stop()
		primary = w.start(0, volume, "uid-"+hash)
	}
	primary.untilRole(v1alpha1.RolePrimary)
	primary.until("configured", func(s agentapi.Status) bool { return s.ConfigHash == hash })
	return primary
}

// Checkpoints that a client asks for are distinguished from those that the amount of WAL requests.
func TestRealAskedCheckpoints(t *testing.T) {
	w := newWorld(t, 1)
	w.configure(func(c *agentapi.ClusterConfig) {
		c.Parameters = maps.Clone(tuningParameters)
		c.Parameters["max_wal_size"] = "256MB"
	})
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	measure := func() (requested, asked float64) {
		t.Helper()
		sample, err := primary.measureTuning(t.Context())
		if err != nil || sample == nil {
			t.Fatalf("the primary measures %v: %v", sample, err)
		}
		return sample.Counters[agentapi.TuningCheckpointsRequested], sample.Counters[agentapi.TuningCheckpointsAsked]
	}
	primary.exec("checkpoint")
	time.Sleep(time.Second) // until it is counted
	for _, step := range []struct {
		sql   string
		asked float64
	}{
		{"checkpoint", 1},
		{"select count(pg_logical_emit_message(false, 'x', repeat('x', 1000000))) from generate_series(1, 150)", 0},
		{"checkpoint", 1},
	} {
		was, wasAsked := measure()
		primary.exec(step.sql)
		requested, asked := measure()
		for n := 0; requested == was && n < 600; n++ { // it is counted when it is complete
			time.Sleep(100 * time.Millisecond)
			requested, asked = measure()
		}
		if requested == was || asked-wasAsked != step.asked {
			t.Errorf("%s: %.0f were requested, and %.0f of them asked for, want %.0f", step.sql, requested-was, asked-wasAsked, step.asked)
		}
	}
}

// measureLoad runs a load in bursts, with a sample of the real server after each. The time
// between samples is taken to be a minute.
func measureLoad(t *testing.T, w *world, primary *run, load tuningWorkload) []agentapi.TuningSlot {
	t.Helper()
	app := w.session(0)
	app.must(load.burst...) // what is read once only does not count
	recorder, at := tuning.NewRecorder("orders-0", "uid-0"), time.Now().UTC().Truncate(time.Hour)
	take := func() {
		app.must("select pg_stat_force_next_flush()", "select 1") // sessions report once a second
		time.Sleep(200 * time.Millisecond)                        // for a checkpoint that was just forced
		sample, err := primary.measureTuning(t.Context())
		if err != nil || sample == nil {
			t.Fatalf("the primary measures %v: %v", sample, err)
		}
		at = at.Add(time.Minute)
		recorder.Record(at, sample)
	}
	take()
	for range 10 {
		app.must(load.burst...)
		take()
	}
	return recorder.Report().Slots
}

func sumUp(slots []agentapi.TuningSlot, name string) (sum float64) {
	for _, slot := range slots {
		sum += slot.Sums[name]
	}
	return sum
}
