package tune

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// advise recommends and decides, as a pass does, and says why what is recommended is not tried.
func (d *database) advise(was []Recommendation) []Recommendation {
	s := d.spec
	s.Declared = s.mergeTuned(d.state)
	if s.Apply {
		s.Exclude = slices.Concat(s.Exclude, Unproposed(d.state))
	}
	list := Recommend(s, d.evidence.Slots, was, d.now)
	next, steps := Next(d.spec, d.evidence, d.state, d.now)
	return ExplainUntried(d.spec, d.evidence, next, steps, list, was, d.now)
}

// findUntried is why a setting is not tried; nil where it is not recommended, or no reason is known.
func findUntried(list []Recommendation, name string) *Untried {
	if r := findRecommendation(list, name); r != nil {
		return r.Untried
	}
	return nil
}

// mixed is a load that needs more of every setting.
func mixed(at time.Time, settings map[string]float64) map[string]float64 {
	sums := writes(at, settings)
	maps.Copy(sums, spills(200*4*mebibyte/settings["work_mem"]))
	sums[agentapi.TuningBlocksRead], sums[agentapi.TuningBlocksHit] = 1e6, 1e6
	return sums
}

// Each of these keeps a value that is recommended from being tried, and is said where it is
// recommended: in words, for programs, and the same in the next pass.
func TestUntried(t *testing.T) {
	never := ParseWindow("00:00", "00:00", "")
	for name, c := range map[string]struct {
		change  func(*database)
		hours   int
		setting string
		want    Reason
		says    string
	}{
		"less than a day is measured":    {func(*database) {}, 5, "max_wal_size", Measuring, "24 hours"},
		"fewer hours are to be measured": {func(d *database) { d.spec.ObserveHours = 8 }, 5, "max_wal_size", Measuring, "8 hours"},
		"members have other settings":    {func(d *database) { d.evidence.Config = "b" }, 30, "max_wal_size", Measuring, "24 hours"},
		"the volume is in use":           {func(d *database) { d.evidence.Used = 0.71 }, 30, "max_wal_size", VolumeUsage, "more than 70 %"},
		"the window is closed":           {func(d *database) { d.spec.Window = never }, 30, "max_wal_size", WindowClosed, "spec.tuning.window"},
		"a change is under way":          {func(d *database) { d.evidence.Settled = false }, 30, "max_wal_size", NotSettled, "under way"},
		"it is declared":                 {func(d *database) { d.spec.Declared = map[string]string{"max_wal_size": "128MB"} }, 30, "max_wal_size", Declared, "spec.parameters.max_wal_size"},
		"its trial was ended": {func(d *database) {
			d.state.Resting = []Resting{{Name: "max_wal_size", Value: "256MB", Reason: "orders-1 leads", Until: monday.AddDate(0, 0, 9)}}
		}, 30, "max_wal_size", RecentTrial, "256MB was tried: orders-1 leads. It is not tried again before 2026-03-1"},
		"another setting is tried":           {func(d *database) { d.measure = mixed }, 30, "work_mem", AnotherTrial, "max_wal_size is tried at 256MB"},
		"members restart for it":             {func(d *database) { d.measure = mixed }, 30, "shared_buffers", OnlyRecommended, "restart"},
		"no limit of memory is declared":     {func(d *database) { d.measure, d.spec.Memory = mixed, 0 }, 30, "work_mem", MemoryLimit, "limits.memory is not declared"},
		"the limit of memory allows none":    {func(d *database) { d.measure, d.spec.Memory = mixed, 640*mebibyte }, 30, "work_mem", MemoryLimit, "may take 80 %"},
		"the volume is too small for more":   {func(d *database) { d.spec.Volume = 512 * mebibyte }, 30, "max_wal_size", VolumeSize, "spec.storage.size"},
		"the limit of memory is far too low": {func(d *database) { d.measure, d.spec.Memory = mixed, 64*mebibyte }, 30, "work_mem", MemoryLimit, "may take 80 %"},
	} {
		d := newDatabase(writes)
		c.change(d)
		d.hours(c.hours)
		list := d.advise(nil)
		got := findUntried(list, c.setting)
		if got == nil || got.Reason != c.want || !strings.Contains(got.Message, c.says) || !got.Since.Equal(d.now) || len(got.Message) > longestEvidenceText {
			t.Errorf("%s: %+v of %+v", name, got, list)
			continue
		}
		if value := findRecommendation(list, c.setting).Value; (value == "") != (c.want == MemoryLimit || c.want == VolumeSize) {
			t.Errorf("%s: %q is recommended", name, value)
		}
		d.now = d.now.Add(time.Minute)
		if again := d.advise(list); !reflect.DeepEqual(list, again) {
			t.Errorf("%s: %+v, and a minute later %+v", name, list, again)
		}
		d.spec.Apply = false
		if other := d.advise(list); findUntried(other, c.setting) != nil || slices.ContainsFunc(other, func(r Recommendation) bool { return r.Value == "" }) {
			t.Errorf("%s: with mode Recommend %+v", name, other)
		}
	}
}

// What was recommended stays for a day, and is not tried where nothing speaks for it any more.
func TestUntriedWithoutEvidence(t *testing.T) {
	d := newDatabase(writes)
	d.spec.Window = ParseWindow("00:00", "00:00", "")
	d.hours(30)
	list := d.advise(nil)
	d.spec.Window = nil
	d.measure = func(time.Time, map[string]float64) map[string]float64 {
		return map[string]float64{agentapi.TuningCheckpointsTimed: 1000}
	}
	d.hours(2)
	if u := findUntried(d.advise(list), "max_wal_size"); u == nil || u.Reason != NoEvidence || len(d.steps) > 0 {
		t.Errorf("%+v, %+v", u, d.steps)
	}
}

// A value that is tried needs no reason, and no reason is made up where nothing is known: in the
// pass that begins the trial, and while no member measures.
func TestUntriedIsKeptWhereNothingIsKnown(t *testing.T) {
	d := newDatabase(writes).hours(leastHours - 1)
	before := d.advise(nil)
	d.hours(1)
	d.state, d.steps = State{}, nil // it is about to begin
	if u := findUntried(d.advise(before), "max_wal_size"); u == nil || u.Reason != Measuring {
		t.Errorf("in the pass that begins the trial: %+v", u)
	}
	if u := findUntried(d.advise(nil), "max_wal_size"); u != nil {
		t.Errorf("nothing was said, and is now: %+v", u)
	}
	d.evidence.Primary = ""
	if u := findUntried(d.advise(before), "max_wal_size"); u == nil || u.Reason != Measuring {
		t.Errorf("while no member leads: %+v", u)
	}
}

// A volume whose use goes up and down, and a window beside it, have the status written at most
// once an hour.
func TestUntriedIsSteady(t *testing.T) {
	d := newDatabase(writes)
	d.spec.Window = ParseWindow("00:00", "00:00", "")
	d.hours(30)
	list, changes := d.advise(nil), 0
	reasons := map[Reason]bool{}
	for range 10 {
		d.hours(1)
		d.now = d.now.Add(-time.Hour)
		for m := range 60 {
			d.now = d.now.Add(time.Minute)
			d.evidence.Used = 0.69 + 0.02*float64(m%2)
			next := d.advise(list)
			if !reflect.DeepEqual(list, next) {
				changes++
			}
			list = next
			reasons[findUntried(list, "max_wal_size").Reason] = true
		}
	}
	if changes > 10 || len(reasons) != 2 {
		t.Errorf("it changes %d times in ten hours: %v", changes, reasons)
	}
	// What a person declares counts at once.
	d.spec.Declared = map[string]string{"max_wal_size": "128MB"}
	if u := findUntried(d.advise(list), "max_wal_size"); u.Reason != Declared {
		t.Errorf("%+v", u)
	}
}

// The guide lists every reason.
func TestReasonsAreDocumented(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guides/tuning.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range []Reason{OnlyRecommended, Declared, MemoryLimit, VolumeSize, RecentTrial, AnotherTrial, VolumeUsage, Measuring, WindowClosed, NotSettled, NoEvidence} {
		if !strings.Contains(string(guide), "| `"+string(reason)+"` |") {
			t.Errorf("%s is not in the table of reasons", reason)
		}
	}
}
