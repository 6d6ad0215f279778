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

// The forecast is off by less than a fifth, whichever way a volume is used.
func TestForecastErrorInSimulation(t *testing.T) {
	worlds := map[string]world{
		"even":                         {grow: 4 * gib},
		"by day":                       {grow: 4 * gib, seasonal: 1},
		"with saw-teeth":               {grow: 4 * gib, seasonal: 0.8, saw: 3 * gib},
		"with a nightly purge":         {grow: 12 * gib, seasonal: 0.8, saw: gib, purge: 8 * gib},
		"with a table dropped":         {grow: 4 * gib, seasonal: 0.8, saw: gib, dropDay: 9, drop: 30 * gib},
		"by day, and less on weekends": {grow: 4 * gib, seasonal: 0.8, weekend: 0.5, saw: gib},
	}
	const days = 60
	for name, w := range worlds {
		t.Run(name, func(t *testing.T) {
			worst := 0.0
			for seed := range uint64(4) {
				samples := w.simulate(rand.New(rand.NewPCG(seed, 1)), days)
				var h History
				for i, s := range samples[:30*288] {
					h.Add(s.at(), s.Used)
					if i < 14*288 || i%102 != 0 { // at another hour each time
						continue
					}
					for _, after := range []int{7, 14, 28} {
						// The volume is as large as what is used then.
						size, left := fullAt(samples, i, after)
						got := h.ForecastFull(size - s.Used)
						if !got.Known || !got.Fills {
							t.Fatalf("seed %d, day %.1f: no forecast: %+v", seed, float64(i)/288, got)
						}
						off := math.Abs(got.Left.Hours()-left.Hours()) / left.Hours()
						worst = max(worst, off)
						if off > 0.2 {
							t.Fatalf("seed %d, day %.1f: %s is said, and it is %s (%+v)", seed, float64(i)/288, got.Left, left, got)
						}
					}
				}
			}
			t.Logf("at most %.1f %% off", worst*100)
		})
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
	if trend := estimateDailySlope(h.Trend) * secondsPerDay; trend > 6*gib {
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

// A history forecasts four times its own length, and no more.
func TestForecastReachesAsFarAsItsHistory(t *testing.T) {
	const perHour = 10 * gib
	for name, test := range map[string]struct {
		history, left time.Duration
		fills         bool
	}{
		"half an hour, and full in an hour and a half": {35 * time.Minute, 90 * time.Minute, true},
		"half an hour, and full in four hours":         {35 * time.Minute, 4 * time.Hour, false},
		"seven hours, and full in eighteen":            {7 * time.Hour, 18 * time.Hour, true},
		"seven hours, and full in two days":            {7 * time.Hour, 48 * time.Hour, false},
		"two days, and full in a week":                 {49 * time.Hour, 7 * 24 * time.Hour, true},
		"two days, and full in two weeks":              {49 * time.Hour, 14 * 24 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			var h History
			for i := range int(test.history / time.Minute) {
				h.Add(begin.Add(time.Duration(i)*time.Minute), int64(i)*perHour/60)
			}
			got := h.ForecastFull(int64(test.left.Hours() * perHour))
			if got.Fills != test.fills || got.Fills && math.Abs(got.Left.Hours()/test.left.Hours()-1) > 0.05 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// steady are volumes that never fill, each with its use in bytes at a minute and its size.
var steady = map[string]struct {
	size int64
	// cycle is after how many days all has happened once.
	cycle int
	use   func(random *rand.Rand, minute int) float64
}{
	"idle": {10 * gib, 0, func(*rand.Rand, int) float64 { return gib }},
	// WAL is kept up to max_wal_size, which a light load reaches within the first hours.
	"a new server whose WAL grows to its limit": {10 * gib, 0, func(_ *rand.Rand, minute int) float64 {
		return gib + min(gib, float64(minute)*gib/400)
	}},
	"checkpoints": {20 * gib, 0, func(random *rand.Rand, minute int) float64 {
		return 8*gib + gib*(float64(minute%17)/17+0.1*random.Float64())
	}},
	"a purge at night takes what the day has written": {100 * gib, 3, func(random *rand.Rand, minute int) float64 {
		return 60*gib + 20*gib*float64(minute%1440)/1440 + 0.5*gib*random.Float64()
	}},
	// Temporary files of a report, at about two o'clock each night.
	"a job at night takes half of what is free for an hour": {100 * gib, 1, func(random *rand.Rand, minute int) float64 {
		use := 40*gib + gib*random.Float64()
		if of := (minute + minute/1440%3) % 1440; of >= 120 && of < 180 {
			use += 30 * gib * float64(of-120) / 60
		}
		return use
	}},
	"tables that are loaded anew, once a week": {200 * gib, 7, func(random *rand.Rand, minute int) float64 {
		use := 60*gib + gib*random.Float64()
		if of := minute % (7 * 1440); of >= 3000 && of < 3240 {
			use += 60 * gib * float64(of-3000) / 240
		}
		return use
	}},
}

// Volumes that never fill are not reported, once they were as full as they get: for weeks.
func TestSteadyVolumesAreNotReported(t *testing.T) {
	const days, seeds = 28, 2
	for name, w := range steady {
		t.Run(name, func(t *testing.T) {
			first, later := 0, 0
			for seed := range uint64(seeds) {
				random := rand.New(rand.NewPCG(seed, 3))
				var h History
				was := false
				for minute := 0; minute < days*1440; minute += 5 {
					used := int64(w.use(random, minute))
					if h.Add(begin.Add(time.Duration(minute)*time.Minute), used); minute%20 != 0 {
						continue
					}
					f := h.ForecastFull(w.size - used)
					is := f.Fills && f.Left < 14*24*time.Hour
					switch {
					case !is || was:
					case minute < w.cycle*1440:
						first++
					default:
						later++
						t.Logf("seed %d, day %.2f: %+v", seed, float64(minute)/1440, f)
					}
					was = is
				}
			}
			t.Logf("%d reports in the first %d days, %d in %d member-weeks later", first, w.cycle, later, seeds*days/7)
			if later > 0 || w.cycle == 0 && first > 0 {
				t.Errorf("%d reports", later)
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

// A history has a bound, and a clock that is set back changes nothing.
func TestHistoryIsBounded(t *testing.T) {
	var h History
	for i := range 60 * 1440 {
		h.Add(begin.Add(time.Duration(i)*time.Minute), int64(i)*gib)
	}
	if n := len(h.Trend) + len(h.Recent); n > 412 || len(h.Trend) < 330 || len(h.Recent) < 70 {
		t.Errorf("%d and %d samples", len(h.Trend), len(h.Recent))
	}
	n := len(h.Trend)
	h.Add(begin.Add(time.Hour), 0)
	if len(h.Trend) != n {
		t.Error("a sample of the past was added")
	}
}
