package capacity

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// steadyVolume never fills.
type steadyVolume struct {
	size int64
	// lives are how many are simulated: more where chance has a say.
	lives int
	// cycle is how many days it takes until all has happened once, and been forgotten.
	cycle float64
	// live begins a life of the volume: what is used at a minute, in bytes.
	live func(random *rand.Rand) func(minute int) float64
}

var steadyVolumes = map[string]steadyVolume{
	"idle": {10 * gib, 1, 0, func(*rand.Rand) func(int) float64 {
		return func(int) float64 { return gib }
	}},
	// WAL is kept up to max_wal_size, which a light load reaches within the first hours.
	"a new server whose WAL grows to its limit": {10 * gib, 1, 0, func(*rand.Rand) func(int) float64 {
		return func(minute int) float64 { return gib + min(gib, float64(minute)*gib/400) }
	}},
	"checkpoints": {20 * gib, 1, 0, func(random *rand.Rand) func(int) float64 {
		return func(minute int) float64 { return 8*gib + gib*(float64(minute%17)/17+0.1*random.Float64()) }
	}},
	"a purge at night takes what the day has written": {100 * gib, 1, 0, func(random *rand.Rand) func(int) float64 {
		return func(minute int) float64 { return 60*gib + 20*gib*float64(minute%1440)/1440 + 0.5*gib*random.Float64() }
	}},
	// Temporary files of a report, at about two o'clock each night.
	"a job at night takes half of what is free for an hour": {100 * gib, 1, 0, func(random *rand.Rand) func(int) float64 {
		return func(minute int) float64 {
			of := (minute + minute/1440%3) % 1440
			return 40*gib + gib*random.Float64() + 30*gib*during(of, 120, 60)
		}
	}},
	"tables are loaded anew, once a week": {200 * gib, 1, 0, func(random *rand.Rand) func(int) float64 {
		return func(minute int) float64 {
			return 60*gib + gib*random.Float64() + 60*gib*during(minute%(7*1440), 3000, 240)
		}
	}},
	"one load of 40 % of what is free, at any time, in up to eight hours": {130 * gib, 12, 0, func(random *rand.Rand) func(int) float64 {
		from, takes := random.IntN(20*1440), 20+random.IntN(460)
		return func(minute int) float64 {
			done := min(1, max(0, float64(minute-from)/float64(takes)))
			return 30*gib + 40*gib*done + 0.2*gib*random.Float64()
		}
	}},
	"an index is built now and then": {60 * gib, 3, 0, func(random *rand.Rand) func(int) float64 {
		next, use := random.IntN(2880), 20.0*gib
		takes, size := 0, 0.0
		return func(minute int) float64 {
			if minute >= next+takes {
				use += size / 20 // what stays of it
				next, takes, size = minute+random.IntN(4*2880), 10+random.IntN(110), 12*gib*random.Float64()
			}
			return use + size*during(minute, next, takes) + 0.2*gib*random.Float64()
		}
	}},
	"queries spill to temporary files at any time": {100 * gib, 3, 0, func(random *rand.Rand) func(int) float64 {
		until, spilled := 0, 0.0
		return func(minute int) float64 {
			if minute >= until {
				if spilled = 0; random.IntN(30) == 0 {
					spilled, until = min(20*gib, 5*gib*random.ExpFloat64()), minute+5+random.IntN(60)
				}
			}
			return 50*gib + spilled
		}
	}},
	// Of such a volume no one can know before that it stops.
	"rows are kept for a week, from an empty table on": {100 * gib, 1, 7 + 4, func(random *rand.Rand) func(int) float64 {
		return func(minute int) float64 {
			return 10*gib + 60*gib*min(1, float64(minute)/7/1440) + 0.5*gib*random.Float64()
		}
	}},
	"use wanders within days": {100 * gib, 3, 0, func(random *rand.Rand) func(int) float64 {
		use := 0.0
		const slow = 288 * 1.5 // steps of five minutes
		return func(int) float64 {
			use += -use/slow + 4*gib*math.Sqrt(2/slow)*random.NormFloat64()
			return 60*gib + use
		}
	}},
}

// during rises from 0 to 1 from a minute on, and is 0 before and after.
func during(minute, from, takes int) float64 {
	if minute < from || minute >= from+takes {
		return 0
	}
	return float64(minute-from) / float64(takes)
}

// reports are how often a volume begins to be reported in four weeks: early in its life,
// and later.
func (w steadyVolume) reports(t *testing.T, seed uint64) (early, later int) {
	random := rand.New(rand.NewPCG(seed, 3))
	use := w.live(random)
	var h History
	reported := false
	for minute := 0; minute < 28*1440; minute += 5 {
		used := int64(use(minute))
		if h.Add(begin.Add(time.Duration(minute)*time.Minute), used); minute%35 != 0 {
			continue
		}
		f := h.ForecastFull(w.size - used)
		is := f.Fills && f.Left < 2*week
		switch days := float64(minute) / 1440; {
		case days < w.cycle:
			if is && !reported {
				early++
			}
		case is && (!reported || later == 0):
			later++
			t.Logf("seed %d, day %.2f: %+v", seed, days, f)
		}
		reported = is
	}
	return early, later
}

// Volumes that never fill are not reported in four weeks, but where no one could know that
// they stop.
func TestSteadyVolumesAreNotReported(t *testing.T) {
	for name, w := range steadyVolumes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			early, later := 0, 0
			for seed := range w.lives {
				e, l := w.reports(t, uint64(seed))
				early, later = early+e, later+l
			}
			t.Logf("%d reports in %d member-weeks, and %d in their first %g days", later, 4*w.lives, early, w.cycle)
			if later > 0 {
				t.Errorf("%d reports", later)
			}
		})
	}
}
