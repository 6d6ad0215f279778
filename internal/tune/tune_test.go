package tune

import (
	"maps"
	"math"
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
		"autovacuum_max_workers": 3,
	}
}

func postgresSpec() Spec {
	return Spec{Engine: PostgreSQL, Memory: 2 * gibibyte, Volume: 20 * gibibyte}
}

// hour is a slot in which nothing speaks for a change.
func hour(start time.Time, settings map[string]float64, sums map[string]float64) agentapi.TuningSlot {
	slot := agentapi.TuningSlot{
		Start: start, End: start.Add(time.Hour), Seconds: 3600, Settings: settings,
		Peaks: map[string]float64{agentapi.TuningConnections: 20, agentapi.TuningDataSize: 4 * gibibyte},
		Sums: map[string]float64{
			agentapi.TuningSamples: 60, agentapi.TuningBlocksHit: 1e6, agentapi.TuningBlocksRead: 1000, agentapi.TuningCheckpointsTimed: 4,
			agentapi.TuningPageRequests: 1e6, agentapi.TuningPageReads: 1000, agentapi.TuningRedoBytes: mebibyte,
		},
	}
	maps.Copy(slot.Sums, sums)
	return slot
}

func forced(checkpoints float64) map[string]float64 {
	return map[string]float64{agentapi.TuningCheckpointsRequested: checkpoints, agentapi.TuningWALBytes: checkpoints * 80 * mebibyte}
}

func spills(files float64) map[string]float64 {
	return map[string]float64{agentapi.TuningTempFiles: files, agentapi.TuningTempBytes: files * 6 * mebibyte}
}

// Each rule speaks for its setting with its evidence, and for no other.
func TestRules(t *testing.T) {
	for setting, c := range map[string]struct {
		sums     map[string]float64
		value    string
		evidence string
	}{
		"":               {nil, "", ""},
		"max_wal_size":   {forced(30), "256MB", "30 of 34 checkpoints in 60 minutes were forced, after 80 MiB of WAL each on average"},
		"work_mem":       {spills(100), "8MB", "100 temporary files with 600 MiB were written in 60 minutes, 6 MiB each on average"},
		"shared_buffers": {map[string]float64{agentapi.TuningBlocksRead: 500000}, "512MB", "66.7 % of block accesses in 60 minutes were hits, and 3.8 GiB were read into 256 MiB of buffers"},
	} {
		got := Recommend(postgresSpec(), []agentapi.TuningSlot{hour(monday, postgresSettings(), c.sums)}, nil, monday.Add(time.Hour))
		switch {
		case setting == "" && len(got) != 0:
			t.Errorf("nothing speaks for a change: %+v", got)
		case setting == "":
		case len(got) != 1 || got[0].Name != setting || got[0].Value != c.value || got[0].Evidence != c.evidence || got[0].Field != "spec.parameters."+setting:
			t.Errorf("%s: %+v", setting, got)
		}
	}
}

// What looks alike, and is no reason.
func TestNoReason(t *testing.T) {
	for name, c := range map[string]struct {
		sums map[string]float64
		spec func(*Spec)
	}{
		"checkpoints that backups request":         {map[string]float64{agentapi.TuningCheckpointsRequested: 30, agentapi.TuningWALBytes: 30 * mebibyte}, nil},
		"fewer forced checkpoints than timed ones": {forced(3), nil},
		"files that twice as much would not hold":  {map[string]float64{agentapi.TuningTempFiles: 20, agentapi.TuningTempBytes: 20 * gibibyte}, nil},
		"a few small files":                        {spills(3), nil},
		"spills without a limit of memory":         {spills(100), func(s *Spec) { s.Memory = 0 }},
		"spills where memory is full":              {spills(100), func(s *Spec) { s.Memory = gibibyte / 2 }},
		"checkpoints where the volume is small":    {forced(30), func(s *Spec) { s.Volume = gibibyte / 2 }},
		"spills, and work_mem is excluded":         {spills(100), func(s *Spec) { s.Exclude = []string{"work_mem"} }},
		"spills, and the mode is Off":              {spills(100), func(s *Spec) { s.Off = true }},
		"few files that are large":                 {map[string]float64{agentapi.TuningTempFiles: 5, agentapi.TuningTempBytes: 150 * mebibyte}, nil},
		"blocks that are read once":                {map[string]float64{agentapi.TuningBlocksRead: 60000, agentapi.TuningBlocksHit: 1000}, nil},
	} {
		spec := postgresSpec()
		if c.spec != nil {
			c.spec(&spec)
		}
		if got := Recommend(spec, []agentapi.TuningSlot{hour(monday, postgresSettings(), c.sums)}, nil, monday.Add(time.Hour)); len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	fits := hour(monday, postgresSettings(), map[string]float64{agentapi.TuningBlocksRead: 500000})
	fits.Peaks[agentapi.TuningDataSize] = 200 * mebibyte
	if got := Recommend(postgresSpec(), []agentapi.TuningSlot{fits}, nil, monday.Add(time.Hour)); len(got) != 0 {
		t.Errorf("data that fits in the buffers, and is read from the volume: %+v", got)
	}
	short := hour(monday, postgresSettings(), spills(100))
	short.Seconds = 540
	if got := Recommend(postgresSpec(), []agentapi.TuningSlot{short}, nil, monday); len(got) != 0 {
		t.Errorf("after nine minutes: %+v", got)
	}
	if got := Recommend(postgresSpec(), []agentapi.TuningSlot{hour(monday, postgresSettings(), spills(100))}, nil, monday.Add(27*time.Hour)); len(got) != 0 {
		t.Errorf("of a member that has not led for a day: %+v", got)
	}
}

func TestOtherEngines(t *testing.T) {
	pool := map[string]float64{"innodb_buffer_pool_size": 512 * mebibyte, "innodb_buffer_pool_chunk_size": 128 * mebibyte, "innodb_redo_log_capacity": 128 * mebibyte, "innodb_page_size": 16 * kibibyte}
	quota := map[string]float64{"quota": 2 * gibibyte}
	for name, c := range map[string]struct {
		engine   Engine
		settings map[string]float64
		sums     map[string]float64
		field    string
		value    string
		evidence string
	}{
		"a small pool": {MySQL, pool, map[string]float64{agentapi.TuningPageRequests: 1e7, agentapi.TuningPageReads: 2e5}, "spec.parameters.innodb_buffer_pool_size", "1G",
			"2.0 % of page accesses in 60 minutes went to the volume, and 3.1 GiB were read into a buffer pool of 512 MiB"},
		"a small redo log": {MySQL, pool, map[string]float64{agentapi.TuningRedoBytes: 16 * 128 * mebibyte}, "spec.parameters.innodb_redo_log_capacity", "256M",
			"the redo log of 128 MiB was written over 16.0 times in 60 minutes, by 2.0 GiB"},
		"a quota in need": {Etcd, quota, nil, "spec.quota", "4Gi", "1.6 GiB of data were in use, 80 % of the quota of 2.0 GiB"},
		"nothing":         {MySQL, pool, nil, "", "", ""},
		"a redo log that is written over every six minutes": {MySQL, pool, map[string]float64{agentapi.TuningRedoBytes: 10 * 128 * mebibyte}, "", "", ""},
		"many pages that are read once":                     {MySQL, pool, map[string]float64{agentapi.TuningPageRequests: 1e8, agentapi.TuningPageReads: 2e5}, "", "", ""},
		"a large share of few accesses":                     {MySQL, pool, map[string]float64{agentapi.TuningPageRequests: 1e5, agentapi.TuningPageReads: 2e4}, "", "", ""},
	} {
		slot := hour(monday, c.settings, c.sums)
		spec := postgresSpec()
		spec.Engine, spec.Memory = c.engine, 8*gibibyte
		if c.engine == Etcd {
			slot.Peaks[agentapi.TuningDataSize] = 1.6 * gibibyte
		}
		got := Recommend(spec, []agentapi.TuningSlot{slot}, nil, monday)
		if c.field == "" && len(got) > 0 || c.field != "" && (len(got) != 1 || got[0].Field != c.field || got[0].Value != c.value || got[0].Evidence != c.evidence) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A pool is rounded down to what MySQL takes, and memory settings to what fits.
func TestValuesAreTaken(t *testing.T) {
	small := map[string]float64{"innodb_buffer_pool_size": 24 * mebibyte, "innodb_buffer_pool_chunk_size": 8 * mebibyte, "innodb_page_size": 16 * kibibyte}
	slot := hour(monday, small, map[string]float64{agentapi.TuningPageRequests: 1e7, agentapi.TuningPageReads: 2e5})
	slot.Peaks[agentapi.TuningConnections] = 10
	for memory, want := range map[int64]string{8 * gibibyte: "48M", 902 * mebibyte: "40M", 860 * mebibyte: ""} {
		got := Recommend(Spec{Engine: MySQL, Memory: memory, Volume: gibibyte}, []agentapi.TuningSlot{slot}, nil, monday)
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || got[0].Value != want) {
			t.Errorf("with %d MiB: %+v, want %q", memory/mebibyte, got, want)
		}
	}
	tiny := postgresSettings()
	tiny["work_mem"] = 64 * kibibyte
	if got := Recommend(postgresSpec(), []agentapi.TuningSlot{hour(monday, tiny, map[string]float64{agentapi.TuningTempFiles: 1000, agentapi.TuningTempBytes: 100 * mebibyte})}, nil, monday); len(got) != 1 || got[0].Value != "128kB" {
		t.Errorf("%+v", got)
	}
}

// Values are read as they are written, in the largest unit that divides them.
func TestFormat(t *testing.T) {
	for _, e := range []Engine{PostgreSQL, MySQL, Etcd} {
		for _, r := range rules(e) {
			for _, v := range []float64{8 * kibibyte, 64 * mebibyte, 1536 * mebibyte, 4 * gibibyte} {
				if got, is := r.parse(r.format(v)); !is || got != v {
					t.Errorf("%s: %v is written as %s, and read as %v", r.name, v, r.format(v), got)
				}
			}
		}
	}
	for v, want := range map[float64]string{64 * kibibyte: "64kB", 1536 * mebibyte: "1536MB", 2 * gibibyte: "2GB"} {
		if got := findRule(PostgreSQL, "work_mem").format(v); got != want {
			t.Errorf("%v is written as %s, want %s", v, got, want)
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
	}
}

func randomSettings(r *rand.Rand, e Engine) map[string]float64 {
	size := func() float64 { return float64(int64(1)<<(20+r.IntN(14))) * float64(1+r.IntN(3)) }
	switch e {
	case PostgreSQL:
		return map[string]float64{
			"max_wal_size": size(), "work_mem": size() / 64, "shared_buffers": size(), "maintenance_work_mem": size() / 16, "autovacuum_max_workers": float64(1 + r.IntN(5)),
		}
	case MySQL:
		return map[string]float64{"innodb_buffer_pool_size": size(), "innodb_buffer_pool_chunk_size": float64(1+r.IntN(128)) * mebibyte, "innodb_redo_log_capacity": size(), "innodb_page_size": 16384}
	}
	return map[string]float64{"quota": size()}
}

// randomSlots have whatever a database might report, in a few hours.
func randomSlots(r *rand.Rand, settings map[string]float64, until time.Time) []agentapi.TuningSlot {
	var slots []agentapi.TuningSlot
	for h := range 1 + r.IntN(24) {
		slot := hour(until.Add(time.Duration(h-25)*time.Hour), settings, nil)
		for _, name := range []string{
			agentapi.TuningBlocksRead, agentapi.TuningTempFiles, agentapi.TuningTempBytes,
			agentapi.TuningCheckpointsRequested, agentapi.TuningWALBytes,
			agentapi.TuningPageReads, agentapi.TuningPageRequests, agentapi.TuningRedoBytes,
		} {
			if r.IntN(2) == 0 {
				slot.Sums[name] = r.Float64() * []float64{10, 1e3, 1e6, 1e10}[r.IntN(4)]
			}
		}
		slot.Peaks[agentapi.TuningConnections] = float64(r.IntN(500))
		slots = append(slots, slot)
	}
	return slots
}

// Whatever is reported and declared: a value is a setting's of the rules, more than now by
// a factor of two at most, within the limits of memory and volume, and as the API takes it.
func TestInvariants(t *testing.T) {
	given := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		e := []Engine{PostgreSQL, MySQL, Etcd}[r.IntN(3)]
		spec := Spec{Engine: e, Volume: int64(1+r.IntN(200)) * gibibyte, Memory: int64(r.IntN(64)) * gibibyte}
		excluded := Names(e)[r.IntN(len(Names(e)))]
		spec.Exclude = []string{excluded}
		settings := randomSettings(r, e)
		slots := randomSlots(r, settings, monday)
		list := Recommend(spec, slots, nil, monday)
		for _, one := range list {
			given++
			rule := findRule(e, one.Name)
			value, is := rule.parse(one.Value)
			now := settings[one.Name]
			if !is || one.Name == excluded || value > 2*now || value < now*leastStep || value > rule.most(spec) || len(one.Evidence) > 256 || one.Evidence == "" {
				t.Fatalf("seed %d: %+v, now %v", seed, one, now)
			}
			with := maps.Clone(settings)
			with[one.Name] = value
			if use := memoryUse(e, with, observeSetting(slots, one.Name).peaks); rule.memory && use > MemoryShare*float64(spec.Memory)+1 {
				t.Fatalf("seed %d: %s takes memory to %.0f of %d", seed, one.Name, use, spec.Memory)
			}
			if from := settings[rule.unitFrom]; from > 0 && math.Mod(value, from) != 0 {
				t.Fatalf("seed %d: %s is no multiple of %v", seed, one.Value, from)
			}
		}
		if again := Recommend(spec, slots, list, monday.Add(time.Minute)); !slices.Equal(list, again) {
			t.Fatalf("seed %d: %+v, then %+v", seed, list, again)
		}
	}
	t.Logf("%d recommendations", given)
	if given < 300 {
		t.Error("hardly anything is recommended: the test shows nothing")
	}
}

// A recommendation does not change in its words while it holds, and stays for a day, so that
// a load that comes and goes has nothing written.
func TestRecommendationsAreSteady(t *testing.T) {
	spec := postgresSpec()
	recommend := func(at time.Duration, was []Recommendation, slots ...agentapi.TuningSlot) []Recommendation {
		return Recommend(spec, slots, was, monday.Add(at))
	}
	first := recommend(time.Hour, nil, hour(monday, postgresSettings(), spills(100)))
	if len(first) != 1 {
		t.Fatal(first)
	}
	unmeasured := hour(monday.Add(40*time.Hour), postgresSettings(), nil)
	unmeasured.Seconds = 60
	for name, again := range map[string][]Recommendation{
		"more of it":                    recommend(2*time.Hour, first, hour(monday, postgresSettings(), spills(100)), hour(monday.Add(time.Hour), postgresSettings(), spills(170))),
		"still after three days":        recommend(72*time.Hour, first, hour(monday.Add(70*time.Hour), postgresSettings(), spills(100))),
		"the operator has just started": recommend(3*time.Hour, first),
		"within a day":                  recommend(20*time.Hour, first, hour(monday.Add(19*time.Hour), postgresSettings(), nil)),
		"the primary has just started":  recommend(41*time.Hour, first, unmeasured),
		"another setting was changed":   recommend(2*time.Hour, first, hour(monday.Add(time.Hour), withSetting("max_wal_size", gibibyte), spills(100))),
		"the clock was set back":        recommend(-time.Hour, first, hour(monday.Add(-2*time.Hour), postgresSettings(), nil)),
	} {
		if !slices.Equal(first, again) {
			t.Errorf("%s: %+v, then %+v", name, first, again)
		}
	}
}

func withSetting(name string, value float64) map[string]float64 {
	settings := postgresSettings()
	settings[name] = value
	return settings
}

// Nothing is recommended by what was measured with another value than the declared one: it is
// not in force yet, or not reported. A server rounds, and reads numbers without a unit.
func TestDeclaredIsMeasured(t *testing.T) {
	pool := map[string]float64{"innodb_buffer_pool_size": 512 * mebibyte, "innodb_buffer_pool_chunk_size": 128 * mebibyte, "innodb_redo_log_capacity": 128 * mebibyte, "innodb_page_size": 16 * kibibyte}
	for _, c := range []struct {
		engine         Engine
		name, declared string
		recommended    bool
	}{
		{PostgreSQL, "work_mem", "", true},
		{PostgreSQL, "work_mem", "4MB", true},
		{PostgreSQL, "work_mem", "4096kB", true},
		{PostgreSQL, "work_mem", "4096", true},
		{PostgreSQL, "work_mem", "8MB", false},
		{PostgreSQL, "work_mem", "6MB", false},
		{PostgreSQL, "work_mem", "8192", false},
		{PostgreSQL, "work_mem", "1 TB", true}, // cannot be read
		{PostgreSQL, "max_wal_size", "128", true},
		{PostgreSQL, "max_wal_size", "131000kB", true},
		{PostgreSQL, "max_wal_size", "1GB", false},
		{PostgreSQL, "shared_buffers", "32768", true},
		{PostgreSQL, "shared_buffers", "65536", false},
		{MySQL, "innodb_buffer_pool_size", "500M", true},
		{MySQL, "innodb_buffer_pool_size", "536870912", true},
		{MySQL, "innodb_buffer_pool_size", "1G", false},
		{MySQL, "innodb_redo_log_capacity", "1G", false},
		{Etcd, "quota", "2Gi", true},
		{Etcd, "quota", "4Gi", false},
	} {
		spec := postgresSpec()
		spec.Engine, spec.Memory, spec.Declared = c.engine, 8*gibibyte, map[string]string{c.name: c.declared}
		sums := map[string]float64{agentapi.TuningBlocksRead: 5e5, agentapi.TuningPageRequests: 1e7, agentapi.TuningPageReads: 2e5, agentapi.TuningRedoBytes: 16 * 128 * mebibyte}
		maps.Copy(sums, forced(30))
		maps.Copy(sums, spills(100))
		slot := hour(monday, map[Engine]map[string]float64{PostgreSQL: postgresSettings(), MySQL: pool, Etcd: {"quota": 2 * gibibyte}}[c.engine], sums)
		if c.engine == Etcd {
			slot.Peaks[agentapi.TuningDataSize] = 1.6 * gibibyte
		}
		got := Recommend(spec, []agentapi.TuningSlot{slot}, nil, monday.Add(time.Hour))
		if is := findRecommendation(got, c.name) != nil; is != c.recommended {
			t.Errorf("%s %s, with %q declared: %+v", c.engine, c.name, c.declared, got)
		}
	}
}

// A recommendation goes when it was followed, and a day after it was given when there is no
// evidence any more.
func TestRecommendationsGo(t *testing.T) {
	spec := postgresSpec()
	first := Recommend(spec, []agentapi.TuningSlot{hour(monday, postgresSettings(), spills(100))}, nil, monday.Add(time.Hour))
	if len(first) != 1 {
		t.Fatal(first)
	}
	declared := spec
	declared.Declared = map[string]string{"work_mem": first[0].Value}
	for name, gone := range map[string][]Recommendation{
		"committed, and not yet in force": Recommend(declared, nil, first, monday.Add(2*time.Hour)),
		"committed, and not yet measured": Recommend(declared, []agentapi.TuningSlot{hour(monday, postgresSettings(), spills(100))}, first, monday.Add(2*time.Hour)),
		"in force": Recommend(declared, []agentapi.TuningSlot{hour(monday, postgresSettings(), spills(100)),
			hour(monday.Add(time.Hour), withSetting("work_mem", 8*mebibyte), nil)}, first, monday.Add(2*time.Hour)),
		"another value in force":  Recommend(spec, []agentapi.TuningSlot{hour(monday.Add(time.Hour), withSetting("work_mem", 6*mebibyte), nil)}, first, monday.Add(2*time.Hour)),
		"no evidence after a day": Recommend(spec, []agentapi.TuningSlot{hour(monday.Add(29*time.Hour), postgresSettings(), nil)}, first, monday.Add(30*time.Hour)),
	} {
		if len(gone) != 0 {
			t.Errorf("%s: %+v", name, gone)
		}
	}
	less := spec
	less.Memory = 700 * mebibyte
	if got := Recommend(less, []agentapi.TuningSlot{hour(monday, postgresSettings(), spills(100))}, first, monday.Add(2*time.Hour)); len(got) != 1 || got[0].Value != "5MB" {
		t.Errorf("with a smaller limit: %+v", got)
	}
}
