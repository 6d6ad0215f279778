package tune

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

var monday = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

func postgresSettings() map[string]float64 {
	return map[string]float64{
		"max_wal_size": 128 * mebibyte, "work_mem": 4 * mebibyte, "shared_buffers": 256 * mebibyte, "maintenance_work_mem": 64 * mebibyte,
		"autovacuum_max_workers": 3, "autovacuum_vacuum_cost_limit": 200, "random_page_cost": 1.1, "track_io_timing": 1,
	}
}

func postgresSpec(mode Mode) Spec {
	return Spec{Engine: PostgreSQL, Mode: mode, Memory: 2 * gibibyte, Volume: 20 * gibibyte, Open: true, Times: DefaultTimes}
}

// hour is a slot in which nothing speaks for a change.
func hour(start time.Time, settings map[string]float64, sums map[string]float64) agentapi.TuningSlot {
	slot := agentapi.TuningSlot{
		Start: start, Seconds: 3600, Settings: settings, Peaks: map[string]float64{agentapi.TuningConnections: 20, agentapi.TuningDataSize: 4 * gibibyte},
		Sums: map[string]float64{
			agentapi.TuningSamples: 60, agentapi.TuningWork: 1e5, agentapi.TuningCost: 1e6,
			agentapi.TuningBlocksHit: 1e6, agentapi.TuningBlocksRead: 1000, agentapi.TuningCheckpointsTimed: 4, agentapi.TuningReadTime: 100,
		},
	}
	for k, v := range sums {
		slot.Sums[k] = v
	}
	return slot
}

// Each rule speaks for its setting with its evidence, and for no other.
func TestRules(t *testing.T) {
	for setting, c := range map[string]struct {
		sums     map[string]float64
		value    string
		evidence string
	}{
		"":                     {nil, "", ""},
		"max_wal_size":         {map[string]float64{agentapi.TuningCheckpointsRequested: 30, agentapi.TuningWALBytes: 30 * 80 * mebibyte}, "256MB", "30 of 34 checkpoints in 1h0m0s were forced, after 80 MiB of WAL each on average"},
		"work_mem":             {map[string]float64{agentapi.TuningTempFiles: 100, agentapi.TuningTempBytes: 100 * 6 * mebibyte}, "8MB", "100 temporary files with 600 MiB were written in 1h0m0s, 6 MiB each on average"},
		"shared_buffers":       {map[string]float64{agentapi.TuningBlocksRead: 500000}, "512MB", "66.7 % of block accesses in 1h0m0s were hits, and 3.8 GiB were read into 256 MiB of buffers"},
		"maintenance_work_mem": {map[string]float64{agentapi.TuningVacuumPasses: 5}, "128MB", "a vacuum scanned indexes more than once in 5 of 60 samples in 1h0m0s"},
		"autovacuum_vacuum_cost_limit": {map[string]float64{agentapi.TuningVacuumBusy: 45}, "400",
			"every autovacuum worker was at work in 45 of 60 samples in 1h0m0s"},
		"random_page_cost": {map[string]float64{agentapi.TuningBlocksRead: 20000, agentapi.TuningReadTime: 100000}, "2.2", "reading a block took 5.0 ms on average in 1h0m0s, of 20000 blocks"},
	} {
		got := Recommendations(postgresSpec(Recommend), Evidence{Slots: []agentapi.TuningSlot{hour(monday, postgresSettings(), c.sums)}}, nil, nil, monday.Add(time.Hour))
		switch {
		case setting == "" && len(got) != 0:
			t.Errorf("nothing speaks for a change: %+v", got)
		case setting == "":
		case len(got) != 1 || got[0].Name != setting || got[0].Value != c.value || got[0].Evidence != c.evidence || got[0].Field != "spec.parameters."+setting:
			t.Errorf("%s: %+v", setting, got)
		}
	}
}

func TestOtherEngines(t *testing.T) {
	pool := map[string]float64{"innodb_buffer_pool_size": 512 * mebibyte, "innodb_redo_log_capacity": 128 * mebibyte, "innodb_page_size": 16 * kibibyte}
	quota := map[string]float64{"quota-backend-bytes": 2 * gibibyte}
	for name, c := range map[string]struct {
		engine   Engine
		settings map[string]float64
		sums     map[string]float64
		field    string
		value    string
	}{
		"a small pool":    {MySQL, pool, map[string]float64{agentapi.TuningPageRequests: 1e7, agentapi.TuningPageReads: 2e5}, "spec.parameters.innodb_buffer_pool_size", "1024M"},
		"a small redo":    {MySQL, pool, map[string]float64{agentapi.TuningRedoFull: 20}, "spec.parameters.innodb_redo_log_capacity", "256M"},
		"a quota in need": {Etcd, quota, nil, "spec.quota", "4096Mi"},
		"nothing":         {MySQL, pool, nil, "", ""},
	} {
		slot := hour(monday, c.settings, c.sums)
		spec := postgresSpec(Recommend)
		spec.Engine, spec.Memory = c.engine, 8*gibibyte
		if c.engine == Etcd {
			slot.Peaks[agentapi.TuningDataSize] = 1.6 * gibibyte
		}
		got := Recommendations(spec, Evidence{Slots: []agentapi.TuningSlot{slot}}, nil, nil, monday)
		if c.field == "" && len(got) > 0 || c.field != "" && (len(got) != 1 || got[0].Field != c.field || got[0].Value != c.value) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// durability are settings that no rule may know, in any engine.
var durability = []string{
	"fsync", "synchronous_commit", "full_page_writes", "wal_level", "synchronous_standby_names", "commit_delay", "wal_sync_method", "data_checksums", "wal_log_hints",
	"sync_binlog", "innodb_flush_log_at_trx_commit", "innodb_doublewrite", "innodb_flush_method", "innodb_flush_log_at_timeout", "unsafe-no-fsync", "replica_preserve_commit_order",
}

func TestNoRuleTouchesDurability(t *testing.T) {
	for _, e := range []Engine{PostgreSQL, MySQL, Etcd} {
		for _, name := range Names(e) {
			if slices.Contains(durability, name) || strings.Contains(name, "sync") {
				t.Errorf("%s has a rule for %s", e, name)
			}
		}
		for _, name := range durability {
			forged := fmt.Sprintf(`{"tuned":{%q:"off"},"trial":{"name":%q,"value":"off","before":"on"}}`, name, name)
			spec := postgresSpec(Apply)
			spec.Engine = e
			if got := DecodeState(e, []byte(forged)).Values(spec); len(got) > 0 {
				t.Errorf("%s takes %v from a state that another client wrote", e, got)
			}
		}
	}
}

// randomEvidence has whatever a database might report, in a few hours.
func randomEvidence(r *rand.Rand, e Engine, settings map[string]float64, until time.Time) Evidence {
	var slots []agentapi.TuningSlot
	for h := range 25 {
		slot := hour(until.Add(time.Duration(h-25)*time.Hour), settings, map[string]float64{})
		for _, name := range []string{
			agentapi.TuningWork, agentapi.TuningCost, agentapi.TuningBlocksRead, agentapi.TuningReadTime, agentapi.TuningTempFiles, agentapi.TuningTempBytes,
			agentapi.TuningCheckpointsRequested, agentapi.TuningWALBytes, agentapi.TuningVacuumBusy, agentapi.TuningVacuumPasses,
			agentapi.TuningPageReads, agentapi.TuningPageRequests, agentapi.TuningRedoFull, agentapi.TuningQuotaFull,
		} {
			if r.IntN(2) == 0 {
				slot.Sums[name] = r.Float64() * []float64{10, 1e3, 1e6, 1e10}[r.IntN(4)]
			}
		}
		slot.Peaks[agentapi.TuningConnections] = float64(r.IntN(500))
		slots = append(slots, slot)
	}
	return Evidence{Slots: slots, Settled: r.IntN(4) > 0, Broken: r.IntN(50) == 0}
}

func randomSettings(r *rand.Rand, e Engine) map[string]float64 {
	size := func() float64 { return float64(int64(1)<<(20+r.IntN(14))) * float64(1+r.IntN(3)) }
	switch e {
	case PostgreSQL:
		return map[string]float64{
			"max_wal_size": size(), "work_mem": size() / 64, "shared_buffers": size(), "maintenance_work_mem": size() / 16, "autovacuum_max_workers": float64(1 + r.IntN(5)),
			"autovacuum_vacuum_cost_limit": float64(1 + r.IntN(3000)), "random_page_cost": 1 + float64(r.IntN(40))/10, "track_io_timing": float64(r.IntN(2)),
		}
	case MySQL:
		return map[string]float64{"innodb_buffer_pool_size": size(), "innodb_redo_log_capacity": size(), "innodb_page_size": 16384}
	}
	return map[string]float64{"quota-backend-bytes": size()}
}

// Whatever is reported and declared: the spec is never gone over, durability is never
// touched, one setting changes at a time by a factor of two at most, memory keeps in the
// envelope, and nothing begins outside of the window.
func TestInvariants(t *testing.T) {
	trials := 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		e := []Engine{PostgreSQL, MySQL, Etcd}[r.IntN(3)]
		spec := Spec{Engine: e, Mode: Apply, Volume: int64(1+r.IntN(200)) * gibibyte, Memory: int64(r.IntN(64)) * gibibyte, Declared: map[string]string{}, Times: DefaultTimes}
		st, now := State{}, monday
		settings := randomSettings(r, e)
		var said []Recommendation
		for range 60 {
			now = now.Add(time.Duration(1+r.IntN(20)) * time.Hour)
			spec.Open = r.IntN(2) == 0
			name := Names(e)[r.IntN(len(Names(e)))]
			switch r.IntN(8) {
			case 0:
				spec.Declared[name] = "12"
			case 1:
				delete(spec.Declared, name)
			case 2:
				spec.Exclude = []string{name}
			case 3:
				spec.Exclude = nil
			}
			evidence := randomEvidence(r, e, settings, now)
			before := st.Values(spec)
			var next State
			next, said = Next(spec, evidence, st, said, now)
			after := next.Values(spec)
			changed := 0
			for name, value := range after {
				rule := findRule(e, name)
				if rule == nil || slices.Contains(durability, name) {
					t.Fatalf("seed %d: %s is tuned", seed, name)
				}
				if _, declared := spec.Declared[name]; declared || slices.Contains(spec.Exclude, name) {
					t.Fatalf("seed %d: %s is declared or excluded, and tuned", seed, name)
				}
				if before[name] == value {
					continue
				}
				changed++
				if number, _ := rule.parse(value); number > 2*settings[name]+1e-6 && next.Trial != nil && next.Trial.Name == name {
					t.Fatalf("seed %d: %s goes from %v to %s", seed, name, settings[name], value)
				}
			}
			if began := next.Trial != nil && (st.Trial == nil || st.Trial.Name != next.Trial.Name || !st.Trial.Began.Equal(next.Trial.Began)); began {
				trials++
				if !spec.Open || changed > 1 {
					t.Fatalf("seed %d: window %v, %d changes", seed, spec.Open, changed)
				}
				with := map[string]float64{}
				for k, v := range settings {
					with[k] = v
				}
				rule := findRule(e, next.Trial.Name)
				with[rule.name], _ = rule.parse(next.Trial.Value)
				if use := memoryUse(e, with, evidence.observeSetting(rule.name).peaks); rule.memory && use > MemoryShare*float64(spec.Memory)+1 {
					t.Fatalf("seed %d: %s takes memory to %.0f of %d", seed, rule.name, use, spec.Memory)
				}
			}
			if merged := Merge(after, spec.Declared); len(spec.Declared) > 0 {
				for name, value := range spec.Declared {
					if merged[name] != value {
						t.Fatalf("seed %d: %s is %s, and declared as %s", seed, name, merged[name], value)
					}
				}
			}
			fields := map[string]bool{}
			for _, one := range said {
				if fields[one.Field] || len(one.Evidence) > 256 {
					t.Fatalf("seed %d: %+v", seed, said)
				}
				fields[one.Field] = true
			}
			st = next
			for name, value := range st.Values(spec) {
				settings[name], _ = findRule(e, name).parse(value)
			}
		}
	}
	t.Logf("%d trials", trials)
	if trials < 30 {
		t.Error("hardly anything was tried: the test shows nothing")
	}
}

// Advice does not change in its words while it holds, is dropped when it was committed, and
// goes a day after its evidence.
func TestRecommendationsAreSteady(t *testing.T) {
	spills := func(files float64) map[string]float64 {
		return map[string]float64{agentapi.TuningTempFiles: files, agentapi.TuningTempBytes: files * 6 * mebibyte}
	}
	spec := postgresSpec(Recommend)
	advise := func(at time.Duration, was []Recommendation, slots ...agentapi.TuningSlot) []Recommendation {
		_, said := Next(spec, Evidence{Slots: slots}, State{}, was, monday.Add(at))
		return said
	}
	first := advise(time.Hour, nil, hour(monday, postgresSettings(), spills(100)))
	if len(first) != 1 {
		t.Fatal(first)
	}
	again := advise(2*time.Hour, first, hour(monday, postgresSettings(), spills(100)), hour(monday.Add(time.Hour), postgresSettings(), spills(170)))
	if !slices.Equal(first, again) {
		t.Errorf("%+v, then %+v", first, again)
	}
	if kept := advise(3*time.Hour, first); !slices.Equal(first, kept) {
		t.Errorf("an operator that has just started knows nothing yet, and says %+v", kept)
	}
	if kept := advise(20*time.Hour, first, hour(monday.Add(19*time.Hour), postgresSettings(), nil)); !slices.Equal(first, kept) {
		t.Errorf("within a day: %+v", kept)
	}
	if gone := advise(30*time.Hour, first, hour(monday.Add(29*time.Hour), postgresSettings(), nil)); len(gone) != 0 {
		t.Errorf("after a day: %+v", gone)
	}
	spec.Declared = map[string]string{"work_mem": "8MB"}
	committed := postgresSettings()
	committed["work_mem"] = 8 * mebibyte
	if gone := advise(2*time.Hour, first, hour(monday, postgresSettings(), spills(100)), hour(monday.Add(time.Hour), committed, nil)); len(gone) != 0 {
		t.Errorf("committed: %+v", gone)
	}
	spec.Mode = Off
	if got := advise(time.Hour, first, hour(monday, postgresSettings(), spills(100))); len(got) != 0 {
		t.Errorf("off: %+v", got)
	}
}
