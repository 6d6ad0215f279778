//go:build mysql

package mysql

import (
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/tuning"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/tune"
	"github.com/holdfast-db/holdfast/internal/tune/tunetest"
)

// tuningLoad is a load that a setting is too small for.
type tuningLoad struct {
	setting string
	symptom string
	// perByte says that the symptom is judged per byte of the setting.
	perByte bool
	setUp   []string
	burst   []string
}

const createLoad = "CREATE TABLE app_1.load_%s (n INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(1000))"

var tuningLoads = []tuningLoad{
	{
		setting: "innodb_redo_log_capacity", symptom: agentapi.TuningRedoBytes, perByte: true,
		setUp: append(fillTable("source", 11), fmt.Sprintf(createLoad, "redo")),
		burst: []string{"INSERT INTO app_1.load_redo (v) SELECT v FROM app_1.load_source"},
	},
	{
		setting: "innodb_buffer_pool_size", symptom: agentapi.TuningPageReads,
		setUp: fillTable("pool", 15),
		burst: []string{"SELECT SUM(LENGTH(v)) FROM app_1.load_pool", "SELECT SUM(LENGTH(v)) FROM app_1.load_pool"},
	},
}

// fillTable makes a table of rows of 1 KiB, whose number is doubled that many times.
func fillTable(name string, doublings int) []string {
	statements := []string{fmt.Sprintf(createLoad, name), fmt.Sprintf("INSERT INTO app_1.load_%s (v) VALUES (REPEAT('0123456789', 98))", name)}
	for range doublings {
		statements = append(statements, fmt.Sprintf("INSERT INTO app_1.load_%[1]s (v) SELECT v FROM app_1.load_%[1]s", name))
	}
	return statements
}

// tuningParameters are too small for each of the loads.
var tuningParameters = map[string]string{
	"innodb_redo_log_capacity": "8M", "innodb_buffer_pool_size": "16M", "innodb_buffer_pool_chunk_size": "8M",
}

// Each of two loads gets its recommendation from what the real server measured. With what
// is recommended, step by step, it goes, and what it is about falls to less than half.
func TestRealTuning(t *testing.T) {
	w := newWorld(t, 1)
	w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = maps.Clone(tuningParameters) })
	r := w.create()[0]
	for _, load := range tuningLoads {
		t.Run(load.setting, func(t *testing.T) { r = runTuningLoad(t, w, r, load) })
	}
}

func runTuningLoad(t *testing.T, w *world, r *run, load tuningLoad) *run {
	r.exec(load.setUp...)
	spec := tune.Spec{Engine: tune.MySQL, Memory: 2 << 30, Volume: 20 << 30}
	var first, last float64
	for step := 0; ; step++ {
		slots := measureLoad(t, r, load)
		last = slots[len(slots)-1].Sums[load.symptom]
		if load.perByte {
			size, err := strconv.ParseFloat(r.query("SELECT @@GLOBAL."+load.setting), 64)
			if err != nil {
				t.Fatal(err)
			}
			last /= size
		}
		advice := tunetest.RecommendSetting(spec, slots, load.setting)
		switch {
		case advice == nil && step == 0:
			t.Fatalf("nothing is recommended: %+v", slots)
		case advice == nil:
			t.Logf("with %s nothing is recommended: %s went from %.4g to %.4g", w.config.Parameters[load.setting], load.symptom, first, last)
			if last >= first/2 {
				t.Errorf("%s did not fall", load.symptom)
			}
			return r
		case step == 6:
			t.Fatalf("there is still a recommendation: %+v", advice)
		case step == 0:
			first = last
		}
		t.Logf("%s: %s, now %s: %s", advice.Field, advice.Value, advice.Current, advice.Evidence)
		hash := w.configure(func(c *agentapi.ClusterConfig) { c.Parameters[load.setting] = advice.Value })
		r.until("configured", func(s agentapi.Status) bool { return s.ConfigHash == hash && s.Serving })
		if advice.Restart {
			t.Fatalf("%s takes a restart", load.setting)
		}
	}
}

// measureLoad runs a load in bursts, with a sample of the real server after each. The time
// between samples is taken to be a minute.
func measureLoad(t *testing.T, r *run, load tuningLoad) []agentapi.TuningSlot {
	t.Helper()
	r.exec(load.burst...) // what is read once only does not count
	recorder, at := tuning.NewRecorder("orders-0", "uid-0"), time.Now().UTC().Truncate(time.Hour)
	for i := range 11 {
		if i > 0 {
			r.exec(load.burst...)
		}
		sample, err := r.measureTuning(t.Context())
		if err != nil || sample == nil {
			t.Fatalf("the primary measures %v: %v", sample, err)
		}
		recorder.Record(at.Add(time.Duration(i)*time.Minute), sample)
	}
	return recorder.Report().Slots
}
