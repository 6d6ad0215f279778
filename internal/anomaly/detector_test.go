package anomaly_test

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/anomaly"
)

var monday = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

var level = anomaly.Signal{Name: "sessions", Floor: 10}

// learned has watched levels of 100, give or take a tenth, from Monday until so many days later.
func learned(t *testing.T, signal anomaly.Signal, days int) (*anomaly.Detector, time.Time) {
	t.Helper()
	d := anomaly.NewDetector([]anomaly.Signal{signal}, &anomaly.Model{})
	now := monday
	for i := range days * 1440 {
		now = monday.Add(time.Duration(i) * time.Minute)
		if began := d.Add(now, []float64{100 + 10*math.Sin(float64(i))}); len(began) > 0 {
			t.Fatalf("%s: what is usual is an anomaly: %+v", now, began)
		}
	}
	return d, now.Add(time.Minute)
}

// feed adds values, one a minute, and returns after how many an anomaly began; 0 for none.
func feed(d *anomaly.Detector, now time.Time, values ...float64) int {
	for i, v := range values {
		if len(d.Add(now.Add(time.Duration(i)*time.Minute), []float64{v})) > 0 {
			return i + 1
		}
	}
	return 0
}

func TestWhatIsAnAnomaly(t *testing.T) {
	nan := math.NaN()
	waits := level
	waits.Kind = anomaly.Waits
	for name, c := range map[string]struct {
		signal anomaly.Signal
		days   int
		values []float64
		after  int
	}{
		"four times as much, for three minutes":    {level, 3, []float64{400, 400, 400}, 3},
		"an eighth, for three minutes":             {level, 3, []float64{12, 12, 12}, 3},
		"fewer waits":                              {waits, 3, []float64{0, 0, 0, 0, 0, 0}, 0},
		"more waits":                               {waits, 3, []float64{400, 400, 400}, 3},
		"two minutes of any size":                  {level, 3, []float64{1e9, 1e9, 100, 100, 100, 1e9, 1e9, 100}, 0},
		"less than three times as much, for ever":  {level, 3, []float64{270, 270, 270, 270, 270, 270, 270, 270, 270, 270}, 0},
		"more than a third, for ever":              {level, 3, []float64{42, 42, 42, 42, 42, 42, 42, 42, 42, 42}, 0},
		"a quarter, for three minutes":             {level, 3, []float64{22, 22, 22}, 3},
		"a measurement that is missing in between": {level, 3, []float64{400, nan, 400, 400}, 4},
		"up and down":                              {level, 3, []float64{400, 10, 400, 10, 400, 10}, 0},
		"before the third day has passed":          {level, 2, []float64{400, 400, 400, 400, 400, 400}, 0},
		"on the first weekend":                     {level, 5, []float64{400, 400, 400, 400, 400, 400}, 0},
		"on the second weekend":                    {level, 12, []float64{400, 400, 400}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			d, now := learned(t, c.signal, c.days)
			if got := feed(d, now, c.values...); got != c.after {
				t.Errorf("found after %d measurements, want %d", got, c.after)
			}
		})
	}
}

// A job at the same hour of each day is as usual, and ten minutes sooner or later too. At
// another hour it is not, and that it does not come is not either.
func TestJobIsUsual(t *testing.T) {
	run := func(at int, day int) int {
		d := anomaly.NewDetector([]anomaly.Signal{level}, &anomaly.Model{})
		for i := range 4 * 1440 {
			start, minute := 120, i%1440
			if i >= day*1440 {
				start = at
			}
			value := 100.0
			if minute >= start && minute < start+60 {
				value = 900
			}
			if len(d.Add(monday.Add(time.Duration(i)*time.Minute), []float64{value})) > 0 {
				return minute
			}
		}
		return 0
	}
	for at, want := range map[int]int{120: 0, 112: 0, 128: 0, 600: 132, 100: 102} {
		if got := run(at, 3); got != want {
			t.Errorf("a job at minute %d is noticed at minute %d, want %d", at, got, want)
		}
	}
}

// An anomaly ends when the signal is as usual for five minutes. One that stays is what is
// usual after three hours.
func TestAnomalyEnds(t *testing.T) {
	d, now := learned(t, level, 3)
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	feed(d, now, 400, 400, 400)
	a := d.List(at(2))[0]
	if !a.Lasts() || !a.Since.Equal(now) || a.Observed != 400 || math.Abs(a.Expected-100) > 15 {
		t.Errorf("%+v", a)
	}
	feed(d, at(3), 400, 100, 100, 100, 400, 100, 100, 100, 100)
	if a := d.List(at(11))[0]; !a.Lasts() {
		t.Errorf("over after four minutes: %+v", a)
	}
	feed(d, at(12), 100)
	if a := d.List(at(12))[0]; a.Lasts() || !a.Until.Equal(at(12)) {
		t.Errorf("not over after five minutes: %+v", a)
	}
	if len(d.List(at(12+1441))) != 0 {
		t.Error("listed for more than a day")
	}
	began, minute := 0, 13
	for ; minute < 13+300; minute++ {
		began += len(d.Add(at(minute), []float64{800}))
	}
	a = d.List(at(minute))[0]
	if began != 1 || a.Lasts() || a.Until.Sub(a.Since) != 3*time.Hour {
		t.Errorf("%d began of a step that stays: %+v", began, a)
	}
}

// The rate of a counter is judged. One that begins anew is not.
func TestCounters(t *testing.T) {
	counter := anomaly.Signal{Name: "commits", Counter: true, Floor: 1}
	d := anomaly.NewDetector([]anomaly.Signal{counter}, &anomaly.Model{})
	total, now := 0.0, monday
	add := func(minutes int, perSecond float64) (began []anomaly.Anomaly) {
		for range minutes {
			total += 60 * perSecond
			began = append(began, d.Add(now, []float64{total})...)
			now = now.Add(time.Minute)
		}
		return began
	}
	began := add(3*1440, 50)
	total = 0
	began = append(began, add(10, 50)...)
	total += 1e6
	now = now.Add(30 * time.Minute) // not measured for half an hour
	began = append(began, add(10, 50)...)
	now = now.Add(-20 * time.Minute) // the clock is set back
	if began = append(began, add(15, 5000)...); len(began) > 0 {
		t.Errorf("%+v", began)
	}
	if began = add(10, 5000); len(began) != 1 || math.Abs(began[0].Observed-5000) > 1 {
		t.Errorf("%+v", began)
	}
}

// What is not as usual for a quarter of an hour after a planned change is neither judged nor
// learned. What goes on has its cause.
func TestMark(t *testing.T) {
	d, now := learned(t, level, 3)
	d.Mark(now, anomaly.RoleChanged)
	before := *d.Model
	for minute := range 15 {
		if feed(d, now.Add(time.Duration(minute)*time.Minute), 900) > 0 {
			t.Fatal("judged")
		}
	}
	before.Time, before.Days = d.Model.Time, d.Model.Days
	if before != *d.Model {
		t.Error("learned")
	}
	feed(d, now.Add(15*time.Minute), 900, 900, 900)
	if a := d.List(now); len(a) != 1 || a[0].Cause != anomaly.RoleChanged || !a[0].CausedAt.Equal(now) {
		t.Errorf("%+v", a)
	}
	d, now = learned(t, level, 3)
	d.Mark(now, anomaly.RoleChanged)
	feed(d, now, 100)
	for minute := range 60 {
		feed(d, now.Add(time.Duration(minute)*time.Minute), 100)
	}
	feed(d, now.Add(time.Hour), 900, 900, 900)
	if a := d.List(now); len(a) != 1 || a[0].Cause != "" {
		t.Errorf("an hour later: %+v", a)
	}
}

// What is learned fits into 55 KiB, and engines have no more signals than that is for.
func TestSizes(t *testing.T) {
	if size := binary.Size(anomaly.Model{}); size > 55<<10 {
		t.Errorf("%d bytes", size)
	}
	for _, list := range [][]anomaly.Signal{anomaly.PostgresSignals, anomaly.MySQLSignals, anomaly.EtcdSignals} {
		names := map[string]bool{}
		for _, s := range list {
			if names[s.Name] || s.Floor <= 0 || s.Title == "" {
				t.Errorf("%+v", s)
			}
			names[s.Name] = true
		}
		if len(list) > anomaly.MostSignals {
			t.Errorf("%d signals", len(list))
		}
	}
}

// What was measured before a long gap belongs to nothing after it, and a short one is borne.
func TestGaps(t *testing.T) {
	for name, c := range map[string]struct {
		gap   time.Duration
		after int
	}{
		"five minutes": {5 * time.Minute, 1},
		"six minutes":  {6 * time.Minute, 3},
	} {
		d, now := learned(t, level, 3)
		if feed(d, now, 400, 400) != 0 {
			t.Fatal("two measurements are an anomaly")
		}
		if got := feed(d, now.Add(time.Minute+c.gap), 400, 400, 400); got != c.after {
			t.Errorf("%s: found after %d more measurements, want %d", name, got, c.after)
		}
	}
}
