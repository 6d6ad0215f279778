package tune

import (
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// leastHours of a day must be measured.
const leastHours = 22

// database is a model of one whose settings Apply tunes: it measures by the hour what a load
// does with the settings that are in force.
type database struct {
	spec     Spec
	state    State
	evidence Evidence
	settings map[string]float64
	now      time.Time
	steps    []Step
	// measure is what an hour adds up to.
	measure func(at time.Time, settings map[string]float64) map[string]float64
}

func newDatabase(measure func(at time.Time, settings map[string]float64) map[string]float64) *database {
	spec := postgresSpec()
	spec.Apply, spec.Hash, spec.ObserveHours = true, "a", 24
	return &database{spec: spec, settings: postgresSettings(), now: monday, measure: measure, evidence: Evidence{Primary: "orders-0", Settled: true}}
}

// hours lets time pass: each hour is measured with what is in force, and then decided about.
func (d *database) hours(n int) *database {
	for range n {
		d.takeUp()
		slot := hour(d.now, maps.Clone(d.settings), d.measure(d.now, d.settings))
		d.evidence.Slots = append(d.evidence.Slots, slot)
		if len(d.evidence.Slots) > 122 {
			d.evidence.Slots = d.evidence.Slots[1:]
		}
		d.now = d.now.Add(time.Hour)
		d.decide()
	}
	return d
}

// takeUp has the members run with what is tuned.
func (d *database) takeUp() {
	initial := postgresSettings()
	tuned := Effective(d.spec, d.state)
	for _, name := range []string{"max_wal_size", "work_mem"} {
		r := findRule(PostgreSQL, name)
		d.settings[name] = initial[name]
		if value, is := r.parse(d.spec.Declared[name]); is {
			d.settings[name] = value
		} else if value, is := r.parse(tuned[name]); is {
			d.settings[name] = value
		}
	}
}

func (d *database) decide() []Step {
	next, steps := Next(d.spec, d.evidence, d.state, d.now)
	d.state, d.steps = next, append(d.steps, steps...)
	return steps
}

// kinds are what became of settings so far.
func (d *database) kinds() (kinds []StepKind) {
	for _, s := range d.steps {
		kinds = append(kinds, s.Kind)
	}
	return kinds
}

// checkpoints is a load of so much WAL in an hour: a checkpoint comes when half of
// max_wal_size is written, or four times an hour.
func checkpoints(wal float64, settings map[string]float64) map[string]float64 {
	sums := map[string]float64{agentapi.TuningWALBytes: wal, agentapi.TuningTransactions: wal / kibibyte, agentapi.TuningCheckpointsTimed: 4}
	if forced := wal / (settings["max_wal_size"] / 2); forced > 4 {
		sums[agentapi.TuningCheckpointsRequested], sums[agentapi.TuningCheckpointsTimed] = forced, 0
	}
	return sums
}

// writes is a steady load that forces checkpoints.
func writes(_ time.Time, settings map[string]float64) map[string]float64 {
	return checkpoints(1.5*gibibyte, settings)
}

// A value that halves the symptom is tried after a day of measurements, stays after another,
// and the next one follows. It goes once the spec declares it.
func TestApply(t *testing.T) {
	d := newDatabase(writes).hours(leastHours - 1)
	if len(d.steps) > 0 {
		t.Fatalf("tried before a day was measured: %+v", d.steps)
	}
	d.hours(1)
	trial := d.state.Trial
	if !slices.Equal(d.kinds(), []StepKind{Tried}) || trial.Name != "max_wal_size" || trial.Value != "256MB" || trial.From != "128MB" ||
		trial.Primary != "orders-0" || trial.SpecHash != "a" || !trial.Since.Equal(d.now) || trial.Evidence == "" {
		t.Fatalf("%+v, %+v", d.steps, trial)
	}
	if got := Effective(d.spec, d.state); !maps.Equal(got, map[string]string{"max_wal_size": "256MB"}) {
		t.Errorf("in force is %v", got)
	}
	if got := EarlierValues(d.spec, d.state, d.now); len(got) != 1 || len(got[0]) != 0 {
		t.Errorf("before it was %v", got)
	}
	d.hours(leastHours - 1)
	if len(d.steps) != 1 {
		t.Fatalf("decided before a day was observed: %+v", d.steps)
	}
	d.hours(1)
	if !slices.Equal(d.kinds(), []StepKind{Tried, Kept}) || d.state.Trial != nil || len(d.state.Settings) != 1 {
		t.Fatalf("%+v", d.steps)
	}
	kept := d.state.Settings[0]
	if kept.Value != "256MB" || kept.From != "128MB" || !strings.Contains(kept.Evidence, "50 % of the forced checkpoints for the same WAL") || !kept.Since.Equal(d.now) {
		t.Errorf("%+v", kept)
	}
	d.hours(1)
	if d.state.Trial == nil || d.state.Trial.Value != "512MB" || d.state.Trial.From != "256MB" {
		t.Fatalf("there is no next trial: %+v", d.state)
	}
	if got := EarlierValues(d.spec, d.state, d.now); len(got) != 1 || got[0]["max_wal_size"] != "256MB" {
		t.Errorf("before it was %v", got)
	}
	d.spec.Declared, d.spec.Hash = map[string]string{"max_wal_size": "256MB"}, "b"
	if got := Effective(d.spec, d.state); len(got) != 0 {
		t.Errorf("%v is tuned beside what is declared", got)
	}
	d.decide()
	if !d.state.IsEmpty() || !slices.Equal(d.kinds()[3:], []StepKind{Released, Released}) {
		t.Errorf("%+v, %+v", d.state, d.steps)
	}
}

// Each of these ends a trial, and the value before is in force again.
func TestTrialEnds(t *testing.T) {
	lost := func(d *database) { d.evidence.Slots = d.evidence.Slots[len(d.evidence.Slots)-4:] }
	for name, c := range map[string]struct {
		change func(*database)
		want   StepKind
		rest   time.Duration
		says   string
	}{
		"another member leads":            {func(d *database) { d.evidence.Primary = "orders-1" }, RolledBack, afterAborted, "orders-1 leads"},
		"the spec is another one":         {func(d *database) { d.spec.Hash = "b" }, RolledBack, afterAborted, "the spec has changed"},
		"mode Recommend":                  {func(d *database) { d.spec.Apply = false }, RolledBack, afterAborted, "spec.tuning.mode"},
		"the setting is excluded":         {func(d *database) { d.spec.Exclude = []string{"max_wal_size"} }, RolledBack, afterAborted, "spec.tuning.exclude"},
		"the volume is smaller":           {func(d *database) { d.spec.Volume = gibibyte }, RolledBack, afterAborted, "limit"},
		"the measurements are lost":       {lost, RolledBack, afterAborted, "has lost"},
		"the server refuses it":           {func(d *database) { d.evidence.Refused = true }, Quarantined, quarantine, "does not take it"},
		"the WAL of a transaction grows":  {func(d *database) { d.measure = costly }, Quarantined, quarantine, "it is worse"},
		"it begins in the future":         {func(d *database) { d.state.Trial.Since = d.now.Add(time.Hour * 200) }, RolledBack, afterAborted, "in the future"},
		"nothing tells of its cost":       {func(d *database) { d.measure = uncounted }, RolledBack, afterUndecided, "cannot be compared"},
		"it does not help":                {func(d *database) { d.measure = helpless }, Quarantined, quarantine, "it is no better"},
		"it is a little better":           {func(d *database) { d.measure = halfhearted }, Quarantined, quarantine, "it is no better"},
		"the load is another one":         {func(d *database) { d.measure = busier }, RolledBack, afterUndecided, "cannot be compared"},
		"a change goes on and on":         {func(d *database) { d.evidence.Settled = false }, RolledBack, afterUndecided, "cannot be compared"},
		"members never take it up":        {func(d *database) { d.evidence.Slots = d.evidence.Slots[:leastHours]; d.measure = nil }, RolledBack, afterAborted, "measured nothing"},
		"what it was is not known":        {func(d *database) { d.state.Trial.From = "" }, RolledBack, afterAborted, "not understood"},
		"its value is four times as much": {func(d *database) { d.state.Trial.Value = "512MB" }, RolledBack, afterAborted, "not understood"},
	} {
		d := newDatabase(writes).hours(leastHours + 3)
		if d.state.Trial == nil {
			t.Fatal("nothing is tried")
		}
		c.change(d)
		value := d.state.Trial.Value
		ended := -1
		for h := range 110 {
			if d.measure == nil { // of the trial's value
				d.now = d.now.Add(time.Hour)
				d.decide()
			} else {
				d.hours(1)
			}
			if d.state.Trial == nil {
				ended = h
				break
			}
		}
		last := d.steps[len(d.steps)-1]
		if ended < 0 || last.Kind != c.want || last.Value != value || !strings.Contains(last.Message, c.says) || len(d.steps) != 2 {
			t.Errorf("%s: after %d hours %+v", name, ended, d.steps)
			continue
		}
		r := d.state.Resting
		if len(r) != 1 || r[0].Name != "max_wal_size" || r[0].Quarantined != (c.want == Quarantined) || !r[0].Until.Equal(d.now.Add(c.rest)) || len(Effective(d.spec, d.state)) > 0 {
			t.Errorf("%s: it rests as %+v", name, r)
		}
		if before := EarlierValues(d.spec, d.state, d.now); len(before) != 1 || before[0]["max_wal_size"] != value {
			t.Errorf("%s: members had %v", name, before)
		}
		if before := EarlierValues(d.spec, d.state, d.now.Add(longestRollBack)); len(before) != 0 {
			t.Errorf("%s: much later, members may still have %v", name, before)
		}
	}
}

// costly is a load whose WAL for each transaction doubles with a larger max_wal_size.
func costly(at time.Time, settings map[string]float64) map[string]float64 {
	sums := writes(at, settings)
	if settings["max_wal_size"] > postgresSettings()["max_wal_size"] {
		sums[agentapi.TuningTransactions] /= 2
	}
	return sums
}

// helpless is a load whose checkpoints are forced whatever max_wal_size is.
func helpless(time.Time, map[string]float64) map[string]float64 {
	return checkpoints(1.5*gibibyte, postgresSettings())
}

// uncounted is a load without transactions: there is no cost to compare.
func uncounted(at time.Time, settings map[string]float64) map[string]float64 {
	sums := writes(at, settings)
	sums[agentapi.TuningTransactions] = 0
	return sums
}

func halfhearted(time.Time, map[string]float64) map[string]float64 {
	sums := checkpoints(1.5*gibibyte, postgresSettings())
	sums[agentapi.TuningCheckpointsRequested] *= 0.85
	return sums
}

// busier is three times the load.
func busier(_ time.Time, settings map[string]float64) map[string]float64 {
	return checkpoints(4.5*gibibyte, settings)
}

// A trial that is much worse does not wait for the end of the day.
func TestMuchWorseIsRolledBackEarly(t *testing.T) {
	d := newDatabase(writes).hours(leastHours)
	d.measure = costly
	for h := range leastHours {
		d.hours(1)
		if d.state.Trial == nil {
			if h > hoursForWorse+1 {
				t.Errorf("it took %d hours", h)
			}
			return
		}
	}
	t.Error("a bad value stays in force for a day")
}

// A trial waits for these, and goes on.
func TestTrialGoesOn(t *testing.T) {
	for name, change := range map[string]func(*database){
		"an operator that has just started": func(d *database) { d.evidence.Slots = nil },
		"a primary is not known at once":    func(d *database) { d.evidence.Primary = "" },
		"it is much worse in planned work": func(d *database) {
			d.evidence.Settled = false
			for i := range d.evidence.Slots[leastHours:] {
				d.evidence.Slots[leastHours+i].Sums[agentapi.TuningCheckpointsRequested] = 1000
			}
		},
		"a member is away":                   func(d *database) { d.evidence.Settled = false },
		"the window is closed":               func(d *database) { d.spec.Window = ParseWindow("01:00", "01:01", "") },
		"a setting that is of another trial": func(d *database) { d.state.Resting = []Resting{{Name: "work_mem", Until: d.now.Add(time.Hour)}} },
	} {
		d := newDatabase(writes).hours(leastHours + 5)
		change(d)
		before := d.state
		if d.decide(); !reflect.DeepEqual(d.state, before) || len(d.steps) != 1 {
			t.Errorf("%s: %+v", name, d.steps)
		}
	}
}

// None of these is tried.
func TestNothingIsTried(t *testing.T) {
	for name, change := range map[string]func(*database){
		"mode Recommend":             func(d *database) { d.spec.Apply = false },
		"settings as they were":      func(d *database) { d.evidence.Config = "newer" },
		"it is declared":             func(d *database) { d.spec.Declared = map[string]string{"max_wal_size": "128MB"} },
		"it is declared in capitals": func(d *database) { d.spec.Declared = map[string]string{"MAX_WAL_SIZE": "128MB"} },
		"it is excluded in capitals": func(d *database) { d.spec.Exclude = []string{"Max_WAL_Size"} },
		"no transactions are counted": func(d *database) {
			for i := range d.evidence.Slots {
				delete(d.evidence.Slots[i].Sums, agentapi.TuningTransactions)
			}
		},
		"it is excluded":                      func(d *database) { d.spec.Exclude = []string{"max_wal_size"} },
		"it rests":                            func(d *database) { d.state.Resting = []Resting{{Name: "max_wal_size", Until: d.now.AddDate(0, 0, 10)}} },
		"a change is under way":               func(d *database) { d.evidence.Settled = false },
		"no member leads":                     func(d *database) { d.evidence.Primary = "" },
		"the window is closed":                func(d *database) { d.spec.Window = ParseWindow("01:00", "01:00", "") },
		"the window cannot be read":           func(d *database) { d.spec.Window = ParseWindow("01:00", "25:00", "") },
		"hours were added up by an old agent": func(d *database) { d.evidence.Slots = merged(d.evidence.Slots) },
		"nothing is measured now":             func(d *database) { d.now = d.now.Add(3 * time.Hour) },
		"another setting was changed": func(d *database) {
			d.evidence.Slots[3].Settings = withSetting("shared_buffers", gibibyte)
		},
		"hardly anything is forced": func(d *database) {
			for i := range d.evidence.Slots {
				d.evidence.Slots[i].Sums[agentapi.TuningCheckpointsRequested] = 0
			}
			d.evidence.Slots[leastHours-1].Sums[agentapi.TuningCheckpointsRequested] = 9
		},
	} {
		d := newDatabase(writes).hours(leastHours - 1)
		d.hours(0)
		slot := hour(d.now, maps.Clone(d.settings), writes(d.now, d.settings))
		d.evidence.Slots = append(d.evidence.Slots, slot)
		d.now = d.now.Add(time.Hour)
		change(d)
		if steps := d.decide(); len(steps) > 0 || d.state.Trial != nil {
			t.Errorf("%s: %+v", name, steps)
		}
	}
}

// merged is the answer of an agent that knows nothing of hours.
func merged(slots []agentapi.TuningSlot) []agentapi.TuningSlot {
	all := slots[0]
	all.Sums = maps.Clone(all.Sums)
	for _, slot := range slots[1:] {
		all.End, all.Seconds = slot.End, all.Seconds+slot.Seconds
		for name, value := range slot.Sums {
			all.Sums[name] += value
		}
	}
	return []agentapi.TuningSlot{all}
}

// A setting that takes a restart is never tried, and one at a time is.
func TestOneAtATime(t *testing.T) {
	d := newDatabase(func(_ time.Time, settings map[string]float64) map[string]float64 {
		sums := checkpoints(1.5*gibibyte, settings)
		maps.Copy(sums, spills(200*4*mebibyte/settings["work_mem"]))
		sums[agentapi.TuningBlocksRead] = 5e5
		return sums
	})
	for range 21 * 24 {
		before := Effective(d.spec, d.state)
		d.hours(1)
		changed := 0
		after := Effective(d.spec, d.state)
		for _, name := range Names(PostgreSQL) {
			if before[name] != after[name] {
				changed++
			}
		}
		if changed > 1 || after["shared_buffers"] != "" {
			t.Fatalf("from %v to %v", before, after)
		}
	}
	if got := Effective(d.spec, d.state); got["max_wal_size"] == "" || got["work_mem"] == "" {
		t.Errorf("tuned is %v: %+v", got, d.steps)
	}
}

// A tuned memory setting goes back when more connections need it than when it was tried.
func TestMemoryOfMoreConnections(t *testing.T) {
	d := newDatabase(func(_ time.Time, settings map[string]float64) map[string]float64 {
		sums := spills(200 * 4 * mebibyte / settings["work_mem"])
		sums[agentapi.TuningTransactions] = 1e5
		return sums
	})
	d.hours(2 * leastHours)
	if !slices.Equal(d.kinds(), []StepKind{Tried, Kept}) {
		t.Fatalf("%+v", d.steps)
	}
	d.steps = nil
	d.evidence.Slots[len(d.evidence.Slots)-1].Peaks[agentapi.TuningConnections] = 400
	d.decide()
	if !slices.Equal(d.kinds(), []StepKind{Quarantined}) || len(d.state.Settings) > 0 || !strings.Contains(d.steps[0].Message, "80 %") {
		t.Errorf("%+v, %+v", d.steps, d.state)
	}
}

// A shorter time is observed where the spec says so: a trial of three hours takes six.
func TestObserveHours(t *testing.T) {
	for hours, want := range map[int]int{0: 2, 1: 2, 3: 6, 12: 22, 24: 44, 99: 44} {
		d := newDatabase(writes)
		d.spec.ObserveHours = hours
		took := 0
		for !slices.Contains(d.kinds(), Kept) && took < 60 {
			d.hours(1)
			took++
		}
		if took != want || len(d.steps) != 2 {
			t.Errorf("%d hours: kept after %d, want %d: %+v", hours, took, want, d.steps)
		}
	}
}

// tunedDatabase has kept a larger work_mem.
func tunedDatabase(t *testing.T) *database {
	t.Helper()
	d := newDatabase(func(_ time.Time, settings map[string]float64) map[string]float64 {
		sums := spills(200 * 4 * mebibyte / settings["work_mem"])
		sums[agentapi.TuningTransactions], sums[agentapi.TuningBlocksHit] = 1e5, 1e6
		return sums
	})
	d.hours(2 * leastHours)
	if !slices.Equal(d.kinds(), []StepKind{Tried, Kept}) {
		t.Fatalf("%+v", d.steps)
	}
	d.steps = nil
	return d
}

// A trial of a memory setting ends when a member runs out of memory with it. One of a setting
// that takes none goes on: a kill says nothing of it.
func TestKillEndsATrialOfMemory(t *testing.T) {
	for _, c := range []struct {
		name    string
		measure func(time.Time, map[string]float64) map[string]float64
		want    []StepKind
	}{
		{"work_mem", func(_ time.Time, settings map[string]float64) map[string]float64 {
			sums := spills(200 * 4 * mebibyte / settings["work_mem"])
			sums[agentapi.TuningTransactions], sums[agentapi.TuningBlocksHit] = 1e5, 1e6
			return sums
		}, []StepKind{Tried, Quarantined}},
		{"max_wal_size", writes, []StepKind{Tried, Kept}},
	} {
		d := newDatabase(c.measure).hours(leastHours + 3)
		if d.state.Trial == nil || d.state.Trial.Name != c.name {
			t.Fatalf("%s: tried is %+v", c.name, d.state.Trial)
		}
		d.evidence.LastKill = d.state.Trial.Since.Add(-time.Minute)
		if steps := d.decide(); len(steps) > 0 {
			t.Errorf("%s: a kill before the trial: %+v", c.name, steps)
		}
		d.evidence.LastKill = d.now
		d.hours(leastHours - 3)
		if !slices.Equal(d.kinds(), c.want) {
			t.Errorf("%s: %+v", c.name, d.steps)
		}
	}
}

// A kept memory setting is taken back by a kill after it, of any member, and only by one.
func TestKillTakesBackWhatWasKept(t *testing.T) {
	d := tunedDatabase(t)
	d.evidence.Settled = false // no other trial begins
	d.evidence.LastKill = d.state.Settings[0].Since.Add(-time.Minute)
	if steps := d.decide(); len(steps) > 0 {
		t.Errorf("a kill before the value: %+v", steps)
	}
	d.now = d.now.Add(time.Hour)
	d.evidence.LastKill = d.now
	if d.decide(); !slices.Equal(d.kinds(), []StepKind{Quarantined}) || len(Effective(d.spec, d.state)) > 0 || !strings.Contains(d.steps[0].Message, "ran out of memory") {
		t.Errorf("a kill after it: %+v, %+v", d.steps, d.state)
	}
	d = newDatabase(writes).hours(2 * leastHours)
	d.evidence.Settled, d.evidence.LastKill = false, d.now.Add(time.Hour)
	if d.decide(); len(d.state.Settings) != 1 {
		t.Errorf("max_wal_size takes no memory: %+v", d.steps)
	}
}

// A kept value rests on the memory, the volume and the memory settings that it was tried with.
func TestBasisChanges(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*database)
		stays  bool
	}{
		"less memory":                   {func(d *database) { d.spec.Memory = d.spec.Memory * 3 / 4 }, false},
		"more memory":                   {func(d *database) { d.spec.Memory *= 2 }, false},
		"a larger volume":               {func(d *database) { d.spec.Volume *= 10 }, false},
		"shared_buffers are declared":   {func(d *database) { d.spec.Declared = map[string]string{"Shared_Buffers": "2GB"} }, false},
		"another parameter is declared": {func(d *database) { d.spec.Declared = map[string]string{"jit": "off"} }, true},
		"another client wrote it":       {func(d *database) { d.state.Settings[0].Basis = "" }, false},
	} {
		d := tunedDatabase(t)
		d.evidence.Settled = false // no other trial begins
		c.change(d)
		if got := Effective(d.spec, d.state)["work_mem"] != ""; got != c.stays {
			t.Errorf("%s: in force before the step is %v", name, got)
		}
		d.decide()
		if stays := len(d.state.Settings) == 1; stays != c.stays || stays != (len(d.steps) == 0) || !stays && d.kinds()[0] != RolledBack {
			t.Errorf("%s: %+v", name, d.steps)
		}
	}
}

// A few quiet hours say nothing against a value: most of the symptom was in others.
func TestNoiseIsNoHarm(t *testing.T) {
	load := func(at time.Time, settings map[string]float64) map[string]float64 {
		sums := writes(at, settings)
		tried := settings["max_wal_size"] > postgresSettings()["max_wal_size"]
		switch quiet := at.Hour() < 1 || at.Hour() >= 22; {
		case quiet && tried:
			sums[agentapi.TuningCheckpointsRequested] = 3
		case quiet:
			sums[agentapi.TuningCheckpointsRequested] = 1
		}
		return sums
	}
	d := newDatabase(load).hours(2 * leastHours)
	if !slices.Contains(d.kinds(), Kept) {
		t.Errorf("%+v", d.steps)
	}
}

// askedIn is a load of which a backup asked for so many checkpoints in each hour, and an agent
// says so, or not.
func askedIn(says bool, asked func(settings map[string]float64) float64) func(time.Time, map[string]float64) map[string]float64 {
	return func(at time.Time, settings map[string]float64) map[string]float64 {
		sums := writes(at, settings)
		sums[agentapi.TuningCheckpointsRequested] += asked(settings)
		if says {
			sums[agentapi.TuningCheckpointsAsked] = asked(settings)
		}
		return sums
	}
}

// Checkpoints that backups and copies ask for speak neither for nor against a value.
func TestAskedCheckpointsDoNotCount(t *testing.T) {
	inTrial := func(settings map[string]float64) float64 {
		if settings["max_wal_size"] > postgresSettings()["max_wal_size"] {
			return 40
		}
		return 0
	}
	before := func(settings map[string]float64) float64 { return 20 - inTrial(settings)/2 }
	for name, c := range map[string]struct {
		measure func(time.Time, map[string]float64) map[string]float64
		want    StepKind
	}{
		"a copy in the trial":                   {askedIn(true, inTrial), Kept},
		"a copy in it, with an earlier agent":   {askedIn(false, inTrial), Quarantined},
		"a copy before it":                      {askedIn(true, before), Kept},
		"a copy before one that does not help":  {helplessWith(askedIn(true, before)), Quarantined},
		"a copy before it, with an earlier one": {helplessWith(askedIn(false, before)), Kept},
	} {
		d := newDatabase(c.measure).hours(2 * leastHours)
		if len(d.steps) < 2 || d.steps[0].Kind != Tried || d.steps[1].Kind != c.want {
			t.Errorf("%s: %+v", name, d.steps)
		}
	}
	idle := newDatabase(func(time.Time, map[string]float64) map[string]float64 {
		return map[string]float64{agentapi.TuningCheckpointsRequested: 30, agentapi.TuningCheckpointsAsked: 30, agentapi.TuningCheckpointsTimed: 0,
			agentapi.TuningWALBytes: 3 * gibibyte, agentapi.TuningTransactions: 1e5}
	})
	if idle.hours(2 * leastHours); len(idle.steps) > 0 {
		t.Errorf("checkpoints that a client asks for are a reason: %+v", idle.steps)
	}
}

// helplessWith is the load of another one, whose forced checkpoints stay as they are.
func helplessWith(load func(time.Time, map[string]float64) map[string]float64) func(time.Time, map[string]float64) map[string]float64 {
	return func(at time.Time, settings map[string]float64) map[string]float64 {
		sums := load(at, settings)
		sums[agentapi.TuningCheckpointsRequested] += helpless(at, settings)[agentapi.TuningCheckpointsRequested] - writes(at, settings)[agentapi.TuningCheckpointsRequested]
		return sums
	}
}

// On a volume that is filling up, no larger max_wal_size is tried, and one that is tuned goes
// back: first the one that is tried, also while something else is under way.
func TestVolumeFillsUp(t *testing.T) {
	d := newDatabase(writes)
	d.evidence.Used = 0.71
	if d.hours(leastHours); len(d.steps) > 0 {
		t.Fatalf("it is tried: %+v", d.steps)
	}
	d.evidence.Used = 0.7
	d.hours(2*leastHours + 1) // one is kept, and the next is tried
	if len(d.state.Settings) != 1 || d.state.Trial == nil {
		t.Fatalf("%+v", d.state)
	}
	d.evidence.Used, d.steps = 0.85, nil
	if d.decide(); len(d.steps) > 0 {
		t.Errorf("at 85 %%: %+v", d.steps)
	}
	d.evidence.Used, d.evidence.Settled = 0.86, false
	if d.decide(); d.state.Trial != nil || len(d.state.Settings) != 1 {
		t.Errorf("the trial goes on: %+v", d.steps)
	}
	if d.decide(); len(d.state.Settings) != 0 || !slices.Equal(d.kinds(), []StepKind{RolledBack, RolledBack}) || !strings.Contains(d.steps[1].Message, "a volume is nearly full") {
		t.Errorf("it stays: %+v", d.steps)
	}
	if d.decide(); len(d.steps) != 2 || d.state.Resting[0].Quarantined {
		t.Errorf("%+v, %+v", d.steps, d.state)
	}
	memory := tunedDatabase(t)
	memory.evidence.Settled, memory.evidence.Used = false, 0.99
	if memory.decide(); len(memory.steps) > 0 {
		t.Errorf("work_mem takes none of it: %+v", memory.steps)
	}
}

// A rest that another client wrote, or a wrong clock, ends after a quarantine at most.
func TestRestIsBounded(t *testing.T) {
	d := newDatabase(writes)
	d.state.Resting = []Resting{{Name: "work_mem", Until: d.now.AddDate(50, 0, 0)}}
	d.decide()
	if got := d.state.Resting[0].Until; got.After(d.now.Add(quarantine)) {
		t.Errorf("it rests until %s", got)
	}
}

// What rests is tried again later.
func TestRestEnds(t *testing.T) {
	d := newDatabase(helpless).hours(leastHours * 2)
	if len(d.state.Resting) != 1 {
		t.Fatalf("%+v", d.steps)
	}
	d.hours(29 * 24)
	if len(d.steps) != 2 {
		t.Fatalf("tried within 30 days: %+v", d.steps)
	}
	d.hours(2 * 24)
	if len(d.steps) < 3 || d.steps[2].Kind != Tried {
		t.Errorf("not tried after 30 days: %+v", d.steps)
	}
}

// What was decided stays decided: with the same evidence nothing more is.
func TestDecisionsAreSteady(t *testing.T) {
	for seed := range uint64(8) {
		d := newDatabase(sampleLoad(rand.New(rand.NewPCG(seed, 3)), helpsFully))
		for range 200 {
			d.hours(1)
			d.decide() // what is kept may be tried further at once
			before := d.state
			if steps := d.decide(); len(steps) > 0 || !reflect.DeepEqual(before, d.state) {
				t.Fatalf("seed %d: %+v, then %+v by %+v", seed, before, d.state, steps)
			}
		}
	}
}

// No setting that durability rests on may be tried, and none that takes a restart.
func TestNoTrialTouchesDurability(t *testing.T) {
	tried := 0
	for _, e := range []Engine{PostgreSQL, MySQL, Etcd} {
		for _, r := range rules(e) {
			if r.trial == nil {
				continue
			}
			tried++
			if r.restart || slices.Contains(durability, r.name) || strings.Contains(r.name, "sync") {
				t.Errorf("%s of %s is tried", r.name, e)
			}
		}
	}
	if tried == 0 {
		t.Error("nothing is tried")
	}
}

func TestWindow(t *testing.T) {
	for _, c := range []struct {
		start, end, zone, at string
		open                 bool
	}{
		{"22:00", "04:00", "", "21:59", false}, {"22:00", "04:00", "", "22:00", true}, {"22:00", "04:00", "", "03:59", true}, {"22:00", "04:00", "", "04:00", false},
		{"01:30", "02:30", "", "01:29", false}, {"01:30", "02:30", "", "01:30", true}, {"01:30", "02:30", "", "02:30", false},
		{"22:00", "23:00", "Europe/Berlin", "21:30", true}, {"22:00", "23:00", "Europe/Berlin", "22:30", false},
		{"22:00", "23:00", "Mars/Olympus", "22:30", false}, {"9 pm", "23:00", "", "22:30", false}, {"00:00", "x", "", "00:00", false},
	} {
		at, err := time.Parse("15:04", c.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := ParseWindow(c.start, c.end, c.zone).isOpen(monday.Add(time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute)); got != c.open {
			t.Errorf("%+v: open is %v", c, got)
		}
	}
}

// What a trial does to a model of a load.
type effect int

const (
	helpsFully effect = iota
	helpsNothing
	harms
)

// sampleLoad is a load of weeks: by the hour of the day and the day of the week, with noise
// and growth. What is spilled follows the transactions; work_mem helps as the effect says.
func sampleLoad(r *rand.Rand, e effect) func(time.Time, map[string]float64) map[string]float64 {
	noise := func(sigma float64) float64 { return math.Exp(r.NormFloat64() * sigma) }
	day, ofDay, mix := -1, 1.0, 1.0
	peak := 2 + 10*r.Float64()
	phase := r.IntN(24)
	return func(at time.Time, settings map[string]float64) map[string]float64 {
		if at.YearDay() != day {
			day, ofDay, mix = at.YearDay(), noise(0.1), noise(0.05)
		}
		load := 1 + peak*math.Max(0, math.Sin(float64(at.Hour()+phase)*math.Pi/12))
		if at.Weekday() == time.Saturday || at.Weekday() == time.Sunday {
			load *= 0.3
		}
		load *= ofDay * noise(0.1) * (1 + at.Sub(monday).Hours()/24*0.005)
		files := 100 * load * mix * noise(0.2)
		blocks := 1e6 * load * noise(0.1)
		if grown := settings["work_mem"] / postgresSettings()["work_mem"]; grown > 1 {
			switch e {
			case helpsFully:
				files /= grown * grown
			case harms:
				files /= grown * grown
				blocks *= 1.5
			}
		}
		return map[string]float64{
			agentapi.TuningTransactions: 1e5 * load, agentapi.TuningBlocksHit: blocks,
			agentapi.TuningTempFiles: files, agentapi.TuningTempBytes: files * 6 * mebibyte,
		}
	}
}

// Over weeks of loads that vary: what helps is kept, and what does not or harms is rolled
// back, but for a few.
func TestSimulatedWeeks(t *testing.T) {
	const seeds = 105
	for e, name := range map[effect]string{helpsFully: "helps", helpsNothing: "does not help", harms: "harms"} {
		kept, quarantined, undecided, trials := 0, 0, 0, 0
		for seed := range uint64(seeds) {
			d := newDatabase(sampleLoad(rand.New(rand.NewPCG(seed, 5)), e))
			d.now = monday.AddDate(0, 0, int(seed%7)) // trials begin on every day of a week
			d.hours(3 * 7 * 24)
			for _, s := range d.steps {
				if s.Name != "work_mem" || s.Value != "8MB" {
					continue
				}
				switch s.Kind {
				case Tried:
					trials++
				case Kept:
					kept++
				case Quarantined:
					quarantined++
				case RolledBack:
					undecided++
				}
			}
		}
		t.Logf("work_mem %s: %d trials, %d kept, %d quarantined, %d undecided", name, trials, kept, quarantined, undecided)
		wrong := kept
		if e == helpsFully {
			wrong = quarantined
		}
		if right := kept + quarantined - wrong; wrong > trials/50 || right < seeds*8/10 {
			t.Errorf("work_mem %s: %d decisions are wrong, and %d right, of %d databases", name, wrong, right, seeds)
		}
	}
}

// A trial ends early only by what is more than noise.
func TestMuchWorse(t *testing.T) {
	q := measure{least: 10}
	worse := comparison{hours: 3, left: 2.1, cost: 1, symptom: 10, share: 0.25}
	for name, c := range map[string]struct {
		change func(*comparison)
		want   bool
	}{
		"three hours with twice the symptom": {func(*comparison) {}, true},
		"half again of the cost":             {func(c *comparison) { c.left, c.symptom, c.cost = 1, 0, 1.6 }, true},
		"two hours":                          {func(c *comparison) { c.hours = 2 }, false},
		"a little more":                      {func(c *comparison) { c.left = 1.9 }, false},
		"hardly any of the symptom before":   {func(c *comparison) { c.symptom = 9 }, false},
		"hours that had little of it before": {func(c *comparison) { c.share = 0.2 }, false},
		"a little more cost, and no symptom": {func(c *comparison) { c.left, c.cost = 1, 1.4 }, false},
	} {
		is := worse
		if c.change(&is); is.isMuchWorse(q) != c.want {
			t.Errorf("%s: %t", name, !c.want)
		}
	}
}

// Only slots of an hour that count transactions are compared.
func TestHourlySlots(t *testing.T) {
	for name, c := range map[string]struct {
		length time.Duration
		sums   map[string]float64
		want   int
	}{
		"an hour":                   {time.Hour, map[string]float64{agentapi.TuningTransactions: 0}, 1},
		"a minute more":             {61 * time.Minute, map[string]float64{agentapi.TuningTransactions: 5}, 1},
		"hours that were added up":  {2 * time.Hour, map[string]float64{agentapi.TuningTransactions: 5}, 0},
		"an agent that counts none": {time.Hour, map[string]float64{agentapi.TuningWALBytes: 5}, 0},
	} {
		slot := agentapi.TuningSlot{Start: monday, End: monday.Add(c.length), Seconds: c.length.Seconds(), Sums: c.sums}
		if got := len(hourly([]agentapi.TuningSlot{slot})); got != c.want {
			t.Errorf("%s: %d hours, want %d", name, got, c.want)
		}
	}
}

// A comparison that is no number keeps no value.
func TestNoNumberKeepsNothing(t *testing.T) {
	for name, change := range map[string]func(*comparison){
		"the symptom": func(c *comparison) { c.left = math.NaN() },
		"the cost":    func(c *comparison) { c.cost = math.NaN() },
	} {
		d := newDatabase(writes).hours(leastHours)
		c := comparison{hours: leastHours, left: 0.5, cost: 1, share: 1, load: 1, costKnown: true}
		change(&c)
		m := machine{spec: d.spec, evidence: d.evidence, now: d.now, next: d.state}
		m.judgeMeasured(*d.state.Trial, *findRule(PostgreSQL, "max_wal_size").trial, c, true)
		if m.next.Trial != nil || len(m.next.Settings) > 0 || m.steps[0].Kind != Quarantined {
			t.Errorf("%s: %+v", name, m.steps)
		}
	}
}
