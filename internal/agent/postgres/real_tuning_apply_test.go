//go:build postgres

package postgres

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/tune"
)

// A trial on a real server: what halves its forced checkpoints is kept, and what leaves its
// temporary files as they are is rolled back. In both cases the server runs with what was
// decided, without a restart.
func TestRealTuningApply(t *testing.T) {
	for setting, want := range map[string]struct {
		kind  tune.StepKind
		value string
	}{
		"max_wal_size": {tune.Kept, "128MB"},
		// Sorts of 8 MB write as much with 2MB as with 1MB.
		"work_mem": {tune.Quarantined, "1MB"},
	} {
		t.Run(setting, func(t *testing.T) {
			load := tuningWorkloads[slices.IndexFunc(tuningWorkloads, func(l tuningWorkload) bool { return l.setting == setting })]
			runTrial(t, load, want.kind, want.value)
		})
	}
}

func runTrial(t *testing.T, load tuningWorkload, want tune.StepKind, value string) {
	w := newWorld(t, 1)
	w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = maps.Clone(tuningParameters) })
	volume := t.TempDir()
	primary := w.start(0, volume, "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	w.session(0).must(load.setUp...)

	// What the tests declare stands for computed defaults.
	spec := tune.Spec{Engine: tune.PostgreSQL, Apply: true, Hash: "a", ObserveHours: 24, Memory: 1 << 30, Volume: 20 << 30}
	var state tune.State
	var slots []agentapi.TuningSlot
	decide := func() tune.Step {
		t.Helper()
		slots = append(slots, repeatForADay(t, measureLoad(t, w, primary, load), slots)...)
		e := tune.Evidence{Slots: slots, Primary: "orders-0", Config: primary.Store.Get().ConfigHash, Settled: true}
		next, steps := tune.Next(spec, e, state, slots[len(slots)-1].End)
		if len(steps) != 1 {
			t.Fatalf("decided is %+v", steps)
		}
		t.Log(steps[0].Message)
		state = next
		parameters := maps.Clone(tuningParameters)
		maps.Copy(parameters, tune.Effective(spec, state))
		primary = reconfigure(t, w, primary, volume, parameters, false)
		return steps[0]
	}
	if step := decide(); step.Kind != tune.Tried || step.Name != load.setting || showSetting(t, w, load.setting) != step.Value {
		t.Fatalf("%+v, and the server has %s", step, showSetting(t, w, load.setting))
	}
	if step := decide(); step.Kind != want || showSetting(t, w, load.setting) != value {
		t.Errorf("%+v, and the server has %s; want %s and %s", step, showSetting(t, w, load.setting), want, value)
	}
}

func showSetting(t *testing.T, w *world, name string) (value string) {
	t.Helper()
	if err := w.session(0).conn.QueryRow(context.Background(), "select current_setting($1)", name).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// repeatForADay takes what was measured in ten minutes for each hour of a day, which begins
// where another one ended.
func repeatForADay(t *testing.T, measured, before []agentapi.TuningSlot) []agentapi.TuningSlot {
	t.Helper()
	if len(measured) != 1 {
		t.Fatalf("%d slots were measured with one setting", len(measured))
	}
	start := time.Now().UTC().Truncate(time.Hour)
	if len(before) > 0 {
		start = before[len(before)-1].End
	}
	var day []agentapi.TuningSlot
	for range 24 {
		slot := measured[0]
		times := 3600 / slot.Seconds
		slot.Start, slot.End, slot.Seconds, slot.Sums = start, start.Add(time.Hour), 3600, maps.Clone(slot.Sums)
		for name := range slot.Sums {
			slot.Sums[name] *= times
		}
		start = slot.End
		day = append(day, slot)
	}
	return day
}

// The agent's own sessions are no load: with no client, measuring again and again counts no
// transaction, and one of a client counts.
func TestRealTuningLoad(t *testing.T) {
	w := newWorld(t, 1)
	w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = maps.Clone(tuningParameters) })
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	count := func() float64 {
		t.Helper()
		sample, err := primary.measureTuning(t.Context())
		if err != nil || sample == nil {
			t.Fatalf("the primary measures %v: %v", sample, err)
		}
		return sample.Counters[agentapi.TuningTransactions]
	}
	app := w.session(0)
	app.must("create table load_once (n int)", "select pg_stat_force_next_flush()", "select 1")
	before := count()
	for range 50 {
		count()
	}
	if rose := count() - before; rose != 0 {
		t.Errorf("%.0f transactions of the agent count as load", rose)
	}
	for range 10 {
		app.must("insert into load_once values (1)")
	}
	app.must("select pg_stat_force_next_flush()", "select 1")
	if rose := count() - before; rose < 10 {
		t.Errorf("%.0f transactions of a client count", rose)
	}
}
