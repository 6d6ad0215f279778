package capacity

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var begin = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

const gib = 1 << 30

// world is how a volume is used over time.
type world struct {
	grow     float64 // bytes per day
	seasonal float64 // 0: evenly; 1: by day only
	weekend  float64 // share of a weekday's growth
	saw      float64 // bytes of WAL between two checkpoints
	purge    float64 // bytes that are deleted each night
	dropDay  int     // when a table is dropped; 0 for never
	drop     float64
	faster   int // from which day on it grows four times as fast; 0 for never
}

// simulate is the use of a volume every five minutes.
func (w world) simulate(random *rand.Rand, days int) []Sample {
	var samples []Sample
	data := 100.0 * gib
	const step = 5 * time.Minute
	for i := range days * 288 {
		at := begin.Add(time.Duration(i) * step)
		day := 1 + w.seasonal*math.Sin(2*math.Pi*(float64(at.Hour())+float64(at.Minute())/60-8)/24)
		if wd := at.Weekday(); w.weekend > 0 && (wd == time.Saturday || wd == time.Sunday) {
			day *= w.weekend
		}
		grow := w.grow / 288 * day * (0.5 + random.Float64())
		if w.faster > 0 && i >= w.faster*288 {
			grow *= 4
		}
		data += grow
		if i%288 == 24 {
			data -= w.purge
		}
		if w.dropDay > 0 && i == w.dropDay*288+100 {
			data -= w.drop
		}
		teeth := w.saw * float64(i%7) / 7
		samples = append(samples, Sample{at.Unix(), int64(data + teeth)})
	}
	return samples
}

// The forecast of a week and more is off by less than a fifth, and one of days by about a
// day, whichever way a volume is used.
func TestForecastErrorInSimulation(t *testing.T) {
	worlds := map[string]world{
		"even":                         {grow: 4 * gib},
		"by day":                       {grow: 4 * gib, seasonal: 1},
		"with saw-teeth":               {grow: 4 * gib, seasonal: 0.8, saw: 3 * gib},
		"with a nightly purge":         {grow: 12 * gib, seasonal: 0.8, saw: gib, purge: 8 * gib},
		"with a table dropped":         {grow: 4 * gib, seasonal: 0.8, saw: gib, dropDay: 9, drop: 30 * gib},
		"by day, and less on weekends": {grow: 4 * gib, seasonal: 0.8, weekend: 0.5, saw: gib},
	}
	for name, w := range worlds {
		t.Run(name, func(t *testing.T) {
			var e errorsOf
			for seed := range uint64(4) {
				e.measure(t, w.simulate(rand.New(rand.NewPCG(seed, 1)), 60))
			}
			t.Logf("1, 2 and 4 weeks before: at most %.1f %% off; 2 and 4 days before: at most %s too soon, %s too late",
				e.weeks*100, e.early.Round(time.Hour), e.late.Round(time.Hour))
			if e.weeks > 0.2 || e.early > 30*time.Hour || e.late > 18*time.Hour {
				t.Error("that is too much")
			}
		})
	}
}

// errorsOf forecasts: the largest share of the time that one of weeks is off, and by how
// much one of days is too soon or too late.
type errorsOf struct {
	weeks       float64
	early, late time.Duration
}

// measure forecasts when volumes of several sizes are full, from the second to the fourth
// week on.
func (e *errorsOf) measure(t *testing.T, samples []Sample) {
	var h History
	for i, s := range samples[:30*288] {
		h.Add(s.at(), s.Used)
		if i < 14*288 || i%102 != 0 { // at another hour each time
			continue
		}
		for _, after := range []int{2, 4, 7, 14, 28} {
			// The volume is as large as what is used then.
			size, left := fullAt(samples, i, after)
			got := h.ForecastFull(size - s.Used)
			if !got.Known || !got.Fills {
				t.Fatalf("day %.1f: no forecast: %+v", float64(i)/288, got)
			}
			if after >= 7 {
				e.weeks = max(e.weeks, math.Abs(got.Left.Hours()/left.Hours()-1))
			} else {
				e.early, e.late = max(e.early, left-got.Left), max(e.late, got.Left-left)
			}
		}
	}
}

// fullAt is the size of a volume that is full so many days later for the first time, and
// how long that is off.
func fullAt(samples []Sample, i, days int) (size int64, left time.Duration) {
	for _, s := range samples[:i+days*288] {
		size = max(size, s.Used)
	}
	for j := i; ; j++ {
		if samples[j].Used >= size {
			return size, samples[j].at().Sub(samples[i].at())
		}
	}
}

// What grows faster all at once is seen within a day, before the trend follows.
func TestRecentGrowthWins(t *testing.T) {
	w := world{grow: 4 * gib, seasonal: 0.8, faster: 20}
	samples := w.simulate(rand.New(rand.NewPCG(1, 2)), 22)
	var h History
	for _, s := range samples[:21*288] {
		h.Add(s.at(), s.Used)
	}
	got := h.ForecastFull(40 * gib)
	if got.Trend || !got.Fills || got.Rate < 12*gib || got.Left > 80*time.Hour {
		t.Errorf("%+v", got)
	}
	if trend := estimateTrend(h.Trend) * float64(secondsPerDay); trend > 6*gib {
		t.Errorf("the trend follows already: %v", trend)
	}
}

// A volume that does not fill has no date, and a short history no forecast.
func TestForecastWithoutGrowth(t *testing.T) {
	var h History
	for i := range 20 {
		h.Add(begin.Add(time.Duration(i)*time.Minute), int64(i)*gib)
	}
	if got := h.ForecastFull(gib); got.Known {
		t.Errorf("after 20 minutes: %+v", got)
	}
	h = History{}
	for i := range 3 * 288 {
		h.Add(begin.Add(time.Duration(i)*5*time.Minute), gib)
	}
	if got := h.ForecastFull(gib); !got.Known || got.Fills {
		t.Errorf("of a volume that does not fill: %+v", got)
	}
	if got := h.ForecastFull(-5); got.Fills {
		t.Errorf("of a full one that does not fill: %+v", got)
	}
}

// A history of whole days forecasts four times its own length, one of a part of a day its
// own length, and no more.
func TestForecastReachesAsFarAsItsHistory(t *testing.T) {
	const perHour = 10 * gib
	for name, test := range map[string]struct {
		history, left time.Duration
		fills         bool
	}{
		"half an hour, and full in half an hour":    {35 * time.Minute, 29 * time.Minute, true},
		"half an hour, and full in an hour":         {35 * time.Minute, time.Hour, false},
		"seven hours, and full in five":             {7 * time.Hour, 5 * time.Hour, true},
		"seven hours, and full in eight":            {7 * time.Hour, 8 * time.Hour, false},
		"a day, and full in less":                   {25 * time.Hour, 23 * time.Hour, true},
		"a day, and full in two":                    {25 * time.Hour, 48 * time.Hour, false},
		"two days, and full in three":               {49 * time.Hour, 3 * day, true},
		"two days, and full in a week":              {49 * time.Hour, week, false},
		"five days, and full in two weeks":          {5*day + time.Hour, 2 * week, true},
		"five days, and full in four weeks":         {5*day + time.Hour, 4 * week, false},
		"fourteen days, and full in seven weeks":    {2*week + time.Hour, 7 * week, true},
		"fourteen days, and full in a fifth of one": {2*week + time.Hour, 70 * time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			var h History
			for i := range int(test.history/(5*time.Minute)) + 1 {
				h.Add(begin.Add(time.Duration(i)*5*time.Minute), int64(i)*perHour/12)
			}
			got := h.ForecastFull(int64(test.left.Hours() * perHour))
			if got.Fills != test.fills || got.Fills && math.Abs(got.Left.Hours()/test.left.Hours()-1) > 0.05 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// What fills a volume within two hours is reported while more than a third is left.
func TestRunawayIsReportedSoon(t *testing.T) {
	for _, before := range []int{0, 2 * 1440, 20 * 1440} {
		var h History
		for minute := range before {
			h.Add(begin.Add(time.Duration(minute)*time.Minute), 10*gib)
		}
		const free = 50 * gib
		reported := 120
		for minute := range 120 {
			used := int64(minute) * free / 120
			h.Add(begin.Add(time.Duration(before+minute)*time.Minute), 10*gib+used)
			if f := h.ForecastFull(free - used); f.Fills && f.Left < 24*time.Hour {
				reported = minute
				break
			}
		}
		t.Logf("after %d days: reported after %d minutes of 120", before/1440, reported)
		if reported > 80 {
			t.Errorf("after %d days: reported after %d minutes", before/1440, reported)
		}
	}
}

// BenchmarkForecast is what a forecast takes with a history of two weeks.
func BenchmarkForecast(b *testing.B) {
	var h History
	for i := range 14 * 1440 {
		h.Add(begin.Add(time.Duration(i)*time.Minute), int64(i)*gib/1440)
	}
	b.ReportAllocs()
	for b.Loop() {
		h.ForecastFull(100 * gib)
	}
}

// A history has a bound, and the highest use of each step, and a clock that is set back changes nothing.
func TestHistoryIsBounded(t *testing.T) {
	var h History
	for i := range 60 * 1440 {
		h.Add(begin.Add(time.Duration(i)*time.Minute), int64(i)*gib)
	}
	if n := len(h.Trend) + len(h.Recent); n > 412 || len(h.Trend) < 330 || len(h.Recent) < 70 {
		t.Errorf("%d and %d samples", len(h.Trend), len(h.Recent))
	}
	last := h.Trend[len(h.Trend)-1].at()
	h.Add(last.Add(61*time.Minute), 5)
	h.Add(last.Add(63*time.Minute), 7)
	h.Add(last.Add(64*time.Minute), 6)
	if peaks := [2]int64{h.Trend[len(h.Trend)-1].Used, h.Recent[len(h.Recent)-1].Used}; peaks != [2]int64{7, 7} {
		t.Errorf("the highest use of an hour, and of five minutes: %v", peaks)
	}
	n := len(h.Trend)
	h.Add(begin.Add(time.Hour), 0)
	if len(h.Trend) != n {
		t.Error("a sample of the past was added")
	}
}
