package tune

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// database answers a load by its settings, hour by hour.
type database struct {
	settings map[string]float64
	slots    []agentapi.TuningSlot
	// respond says what an hour of load does with the settings.
	respond func(settings map[string]float64) map[string]float64
}

func (d *database) run(at time.Time) {
	settings := map[string]float64{}
	for k, v := range d.settings {
		settings[k] = v
	}
	d.slots = append(d.slots, hour(at, settings, d.respond(settings)))
	if len(d.slots) > 25 {
		d.slots = d.slots[1:]
	}
}

// operator keeps nothing but what it has persisted: every pass begins from that.
type operator struct {
	spec      Spec
	persisted []byte
	said      []Recommendation
	// lose says which writes of a state are lost, since the operator dies before.
	lose   func(pass int) bool
	passes int
}

// pass is what one of the operator's does: values in force are those persisted before.
func (o *operator) pass(d *database, defaults map[string]float64, now time.Time) {
	st := DecodeState(o.spec.Engine, o.persisted)
	for name, value := range defaults {
		d.settings[name] = value
	}
	for name, value := range Merge(st.Values(o.spec), o.spec.Declared) {
		d.settings[name], _ = findRule(o.spec.Engine, name).parse(value)
	}
	next, said := Next(o.spec, Evidence{Slots: d.slots, Settled: true}, st, o.said, now)
	o.passes++
	if o.lose != nil && o.lose(o.passes) {
		return
	}
	o.persisted, o.said = next.Encode(), said
}

// simulate lets days go by, with a window from two to four at night, and returns the
// trials that began, and the state at the end.
func simulate(o *operator, d *database, days int) (trials []Experiment, end State) {
	defaults := map[string]float64{}
	for k, v := range d.settings {
		defaults[k] = v
	}
	for h := range days * 24 {
		now := monday.Add(time.Duration(h) * time.Hour)
		o.spec.Open = now.Hour() >= 2 && now.Hour() < 4
		d.run(now)
		for range 3 {
			o.pass(d, defaults, now.Add(time.Hour-time.Minute))
		}
		if t := DecodeState(o.spec.Engine, o.persisted).Trial; t != nil && (len(trials) == 0 || !trials[len(trials)-1].Began.Equal(t.Began)) {
			trials = append(trials, *t)
		}
	}
	return trials, DecodeState(o.spec.Engine, o.persisted)
}

// spillsBelow is a load that writes temporary files with less work_mem than it needs.
func spillsBelow(needed, costWith float64) func(map[string]float64) map[string]float64 {
	return func(settings map[string]float64) map[string]float64 {
		if settings["work_mem"] < needed {
			return map[string]float64{agentapi.TuningTempFiles: 1000, agentapi.TuningTempBytes: 6e9, agentapi.TuningCost: 2e6}
		}
		return map[string]float64{agentapi.TuningCost: costWith}
	}
}

// A change that helps is found, kept, and the last one: nothing is tried any more.
func TestApplyImproves(t *testing.T) {
	d := &database{settings: postgresSettings(), respond: spillsBelow(12*mebibyte, 1e6)}
	d.settings["work_mem"] = 6 * mebibyte
	o := &operator{spec: postgresSpec(Apply)}
	trials, end := simulate(o, d, 10)
	if len(trials) != 1 || trials[0].Value != "12MB" || end.Tuned["work_mem"] != "12MB" || end.Trial != nil || len(end.Quarantine) != 0 {
		t.Errorf("%+v, then %+v", trials, end)
	}
	if last := d.slots[len(d.slots)-1]; last.Sums[agentapi.TuningTempBytes] != 0 {
		t.Errorf("it still writes temporary files: %+v", last.Sums)
	}
}

// A planted bad value, with which statements take longer, is taken back, left alone for
// thirty days, and only then tried again.
func TestApplyRollsBack(t *testing.T) {
	for name, respond := range map[string]func(map[string]float64) map[string]float64{
		"worse":  spillsBelow(12*mebibyte, 5e6),
		"no use": spillsBelow(gibibyte, 1e6),
	} {
		d := &database{settings: postgresSettings(), respond: respond}
		d.settings["work_mem"] = 6 * mebibyte
		o := &operator{spec: postgresSpec(Apply)}
		trials, end := simulate(o, d, 20)
		if len(trials) != 1 || len(end.Tuned) != 0 || end.Trial != nil || d.settings["work_mem"] != 6*mebibyte {
			t.Fatalf("%s: %+v, then %+v", name, trials, end)
		}
		taken := end.Quarantine["work_mem"].Add(-DefaultTimes.Quarantine)
		if after := taken.Sub(trials[0].Began); after < 24*time.Hour || after > 26*time.Hour {
			t.Errorf("%s: taken back after %s", name, after)
		}
		if len(o.said) != 1 || o.said[0].State != RolledBack {
			t.Errorf("%s: %+v", name, o.said)
		}
		again, _ := simulate(&operator{spec: postgresSpec(Apply)}, &database{settings: d.settings, respond: respond}, 35)
		if len(again) != 2 || again[1].Began.Sub(again[0].Began) < 31*24*time.Hour {
			t.Errorf("%s: %d trials in 35 days: %+v", name, len(again), again)
		}
	}
}

// A setting that takes a restart is changed, and taken back, only while the window is open.
func TestRestartsOnlyInTheWindow(t *testing.T) {
	d := &database{settings: postgresSettings(), respond: func(map[string]float64) map[string]float64 {
		return map[string]float64{agentapi.TuningBlocksRead: 1e6}
	}}
	o := &operator{spec: postgresSpec(Apply)}
	defaults, was := postgresSettings(), d.settings["shared_buffers"]
	changes := 0
	for h := range 24 * 6 {
		now := monday.Add(time.Duration(h) * time.Hour)
		o.spec.Open = now.Hour() == 2
		d.run(now)
		o.pass(d, defaults, now.Add(30*time.Minute))
		o.pass(d, defaults, now.Add(31*time.Minute))
		if d.settings["shared_buffers"] != was {
			was = d.settings["shared_buffers"]
			changes++
			if now.Hour() != 2 {
				t.Errorf("a restart at %s", now)
			}
		}
	}
	if changes != 2 {
		t.Errorf("%d changes, want one and its withdrawal", changes)
	}
}

// The operator may die before any write, and comes to the same end: a value is never in
// force that is not persisted, and no trial begins twice.
func TestCrashAtEachStep(t *testing.T) {
	for name, respond := range map[string]func(map[string]float64) map[string]float64{
		"helps": spillsBelow(12*mebibyte, 1e6), "hurts": spillsBelow(12*mebibyte, 5e6),
	} {
		run := func(lose func(int) bool) (State, int) {
			d := &database{settings: postgresSettings(), respond: respond}
			d.settings["work_mem"] = 6 * mebibyte
			trials, end := simulate(&operator{spec: postgresSpec(Apply), lose: lose}, d, 3)
			return end, len(trials)
		}
		want, count := run(nil)
		// The passes around the two decisions: the trial begins in hour 26, and ends a day later.
		for crash := 3 * 24; crash < 3*54; crash++ {
			got, trials := run(func(pass int) bool { return pass == crash })
			a, b := State{Tuned: got.Tuned, Trial: got.Trial}, State{Tuned: want.Tuned, Trial: want.Trial}
			if !reflect.DeepEqual(a, b) || len(got.Quarantine) != len(want.Quarantine) || trials != count {
				t.Fatalf("%s, a crash in pass %d: %+v, want %+v", name, crash, got, want)
			}
		}
	}
}

// What is committed in the spec, or excluded, drops out; so does everything in other modes.
func TestDropOut(t *testing.T) {
	st := State{Tuned: map[string]string{"work_mem": "8MB", "max_wal_size": "256MB"}, Trial: &Experiment{Name: "shared_buffers", Value: "512MB", Before: "256MB", Began: monday}}
	for name, c := range map[string]struct {
		change func(*Spec)
		tuned  int
		trial  bool
		values int
	}{
		"nothing":   {func(*Spec) {}, 2, true, 3},
		"committed": {func(s *Spec) { s.Declared = map[string]string{"work_mem": "8MB"} }, 1, true, 2},
		"other":     {func(s *Spec) { s.Declared = map[string]string{"work_mem": "4MB"} }, 1, true, 2},
		"trial":     {func(s *Spec) { s.Declared = map[string]string{"shared_buffers": "512MB"} }, 2, false, 2},
		"excluded":  {func(s *Spec) { s.Exclude = []string{"max_wal_size"} }, 1, true, 2},
		"recommend": {func(s *Spec) { s.Mode = Recommend }, 0, false, 0},
		"off":       {func(s *Spec) { s.Mode = Off }, 0, false, 0},
		"no limit":  {func(s *Spec) { s.Memory = 0 }, 2, true, 1},
	} {
		spec := postgresSpec(Apply)
		c.change(&spec)
		next, _ := Next(spec, Evidence{}, st, nil, monday.Add(time.Hour))
		if len(next.Tuned) != c.tuned || (next.Trial != nil) != c.trial || len(st.Values(spec)) != c.values {
			t.Errorf("%s: %+v, values %v", name, next, st.Values(spec))
		}
	}
	if len(st.Tuned) != 2 || st.Trial == nil {
		t.Error("Next changes the state that it was given")
	}
}

// A refusal by name, and a database that does not start, end a trial at once.
func TestBrokenTrial(t *testing.T) {
	st := State{Trial: &Experiment{Name: "shared_buffers", Value: "512MB", Before: "256MB", Began: monday}}
	spec := postgresSpec(Apply)
	spec.Open = false
	for name, c := range map[string]struct {
		e    Evidence
		ends bool
	}{
		"refused":         {Evidence{Refused: "shared_buffers: invalid value"}, true},
		"another refused": {Evidence{Refused: "work_mem: invalid value"}, false},
		"broken":          {Evidence{Broken: true}, true},
		"well":            {Evidence{}, false},
	} {
		next, _ := Next(spec, c.e, st, nil, monday.Add(time.Minute))
		if (next.Trial == nil) != c.ends || (len(next.Quarantine) == 1) != c.ends {
			t.Errorf("%s: %+v", name, next)
		}
	}
}

// A state is read as it was written, and a change beyond a factor of two is dropped.
func TestState(t *testing.T) {
	st := State{Tuned: map[string]string{"work_mem": "8MB", "random_page_cost": "2.2"}, Quarantine: map[string]time.Time{"max_wal_size": monday},
		Trial: &Experiment{Name: "shared_buffers", Value: "512MB", Before: "256MB", Began: monday, Baseline: []Measured{{Part: 3, Work: 2}}}}
	if got := DecodeState(PostgreSQL, st.Encode()); !reflect.DeepEqual(got, st) {
		t.Errorf("%+v", got)
	}
	st.Trial.Value = "1024MB"
	forged, _ := json.Marshal(st)
	if got := DecodeState(PostgreSQL, forged); got.Trial != nil {
		t.Errorf("a fourfold value is taken: %+v", got.Trial)
	}
	if (State{}).Encode() != nil || !reflect.DeepEqual(DecodeState(PostgreSQL, nil), State{}) {
		t.Error("nothing is something")
	}
}
