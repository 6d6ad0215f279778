package sizing

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var monday = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

const gibibyte = 1 << 30

// load is what a container uses at a time.
type load func(r *rand.Rand, at time.Time) Usage

func processor(cpu func(r *rand.Rand, at time.Time) float64) load {
	return func(r *rand.Rand, at time.Time) Usage { return Usage{CPU: max(cpu(r, at), 0)} }
}

// loads that go on for ever in the same way.
var steadyLoads = map[string]load{
	"the same all the time": processor(func(r *rand.Rand, _ time.Time) float64 { return 800 + 20*r.NormFloat64() }),
	"days and nights": processor(func(r *rand.Rand, at time.Time) float64 {
		return 600 - 500*math.Cos(2*math.Pi*at.Sub(monday).Hours()/24) + 50*r.NormFloat64()
	}),
	"working hours": processor(func(r *rand.Rand, at time.Time) float64 {
		if h := at.Hour(); h >= 9 && h < 17 {
			return 2000 + 200*r.NormFloat64()
		}
		return 150 + 20*r.NormFloat64()
	}),
	"short bursts": processor(func(r *rand.Rand, _ time.Time) float64 {
		if r.IntN(8) == 0 {
			return 3000 + 300*r.NormFloat64()
		}
		return 200 + 30*r.NormFloat64()
	}),
	"hardly anything": processor(func(r *rand.Rand, _ time.Time) float64 { return 5 + r.Float64() }),
}

// The request that is derived suffices in 95 % of the minutes at any hour from the fourth day
// on, and is at most 15 % and a bucket more than the exact quantile.
func TestCPUOfSteadyLoads(t *testing.T) {
	for name, u := range steadyLoads {
		r := rand.New(rand.NewPCG(7, 7))
		var h History
		var all []float64
		worst := 0.0
		for m := range 21 * 1440 {
			at := monday.Add(time.Duration(m) * time.Minute)
			use := u(r, at)
			all = append(all, use.CPU)
			h.Add(at, use)
			if m < 3*1440 || m%60 != 0 {
				continue
			}
			days := slices.Sorted(slices.Values(all[m-m%1440-2*1440 : m-m%1440]))
			exact := days[len(days)*95/100]
			e := h.Estimate(at)
			worst = max(worst, e.MostCPU/exact)
			if e.MostCPU < 0.98*exact || e.MostCPU > 1.15*exact+firstBucket || e.CPU > e.MostCPU {
				t.Fatalf("%s, at %s: %.0f, and %.0f at most, where %.0f is exact", name, at, e.CPU, e.MostCPU, exact)
			}
		}
		t.Logf("%s: at most %.2f of the exact quantile", name, worst)
	}
}

// A load that grows by a tenth each day is followed within a day and a half.
func TestCPUOfAGrowingLoad(t *testing.T) {
	var h History
	now := func(m int) float64 { return 500 * math.Pow(1.1, float64(m)/1440) }
	for m := range 14 * 1440 {
		at := monday.Add(time.Duration(m) * time.Minute)
		h.Add(at, Usage{CPU: now(m)})
		if e := h.Estimate(at); m > 2*1440 && (e.CPU < now(m-1440*3/2) || e.CPU > bucketGrowth*now(m)+firstBucket) {
			t.Fatalf("after %d minutes: %.0f, and now %.0f are used", m, e.CPU, now(m))
		}
	}
}

// A load that is gone is forgotten after two weeks, and one of an hour each night never.
func TestMostCPU(t *testing.T) {
	var h History
	nightly := func(at time.Time) float64 {
		if at.Hour() == 2 {
			return 2000
		}
		return 100
	}
	at := monday
	for range 7 * 1440 {
		h.Add(at, Usage{CPU: nightly(at)})
		at = at.Add(time.Minute)
	}
	for hour := range 48 {
		for range 60 {
			h.Add(at, Usage{CPU: nightly(at)})
			at = at.Add(time.Minute)
		}
		if e := h.Estimate(at); e.MostCPU < 2000 || e.MostCPU > 2200 {
			t.Fatalf("at hour %d: %+v", hour, e)
		}
	}
	for m := range 16 * 1440 {
		h.Add(at, Usage{CPU: 100})
		at = at.Add(time.Minute)
		e := h.Estimate(at)
		if m == 13*1440 && e.MostCPU < 2000 {
			t.Errorf("forgotten after 13 days: %+v", e)
		}
	}
	if e := h.Estimate(at); e.MostCPU > 120 || e.CPU > 120 {
		t.Errorf("not forgotten after 16 days: %+v", e)
	}
}

// What a start takes is not what a member needs.
func TestStartIsNoNeed(t *testing.T) {
	var h History
	at := monday
	for m := range 2 * 1440 {
		u := Usage{CPU: 50}
		if m < 20 {
			u.CPU = 4000
		}
		h.Add(at, u)
		at = at.Add(time.Minute)
	}
	if e := h.Estimate(at); e.MostCPU > 70 || e.Measured != 48*time.Hour {
		t.Errorf("%+v", e)
	}
}

// The peak of each day counts: what a job takes for minutes on one day is in the most for two
// weeks, and what every day takes is usual.
func TestMemoryPeaks(t *testing.T) {
	var h History
	at := monday
	for m := range 20 * 1440 {
		u := Usage{Memory: gibibyte, Held: 2 * gibibyte}
		if m%1440 == 130 {
			u.Memory = 2 * gibibyte // each night
		}
		if m == 4*1440+700 {
			u.Memory = 5 * gibibyte // once
		}
		h.Add(at, u)
		at = at.Add(time.Minute)
		e := h.Estimate(at)
		switch {
		case m < 131:
		case m < 4*1440+700 && (e.Memory != 2*gibibyte || e.MostMemory != 2*gibibyte || e.MostHeld != 2*gibibyte):
			t.Fatalf("after %d minutes: %+v", m, e)
		case m == 4*1440+700 && (e.Memory != 5*gibibyte || e.MostMemory != 5*gibibyte):
			t.Fatalf("at the peak: %+v", e)
		case m == 10*1440 && (e.Memory != 2*gibibyte || e.MostMemory != 5*gibibyte):
			t.Fatalf("after six days: %+v", e)
		}
	}
	if e := h.Estimate(at); e.MostMemory != 2*gibibyte || len(h.Days) > daysKept+1 {
		t.Errorf("after two weeks: %+v of %d days", e, len(h.Days))
	}
}

// A kill counts once, for eight weeks.
func TestKills(t *testing.T) {
	var h History
	if !h.AddKill(monday, gibibyte) || h.AddKill(monday, gibibyte) || h.AddKill(monday.Add(-time.Hour), gibibyte) || !h.AddKill(monday.Add(time.Hour), 2*gibibyte) {
		t.Error("a kill counts twice, or not at all")
	}
	e := h.Estimate(monday.Add(24 * time.Hour))
	if e.Kills != 2 || !e.LastKill.Equal(monday.Add(time.Hour)) || e.KillMemory != 2*gibibyte {
		t.Errorf("%+v", e)
	}
	if e := h.Estimate(monday.Add(57 * 24 * time.Hour)); e.Kills != 0 || e.KillMemory != 0 || !e.LastKill.IsZero() {
		t.Errorf("after eight weeks: %+v", e)
	}
	for n := range 20 {
		h.AddKill(monday.Add(time.Duration(n+2)*time.Hour), gibibyte)
	}
	if len(h.Kills) != killsKept {
		t.Errorf("%d kills are kept", len(h.Kills))
	}
}

// Periods and waits of a day ago count half.
func TestShares(t *testing.T) {
	var h History
	at := monday
	for m := range 2 * 1440 {
		u := Usage{Periods: 600}
		if m < 1440 {
			u.Throttled, u.Stalled = 300, 0.3
		}
		h.Add(at, u)
		at = at.Add(time.Minute)
	}
	if e := h.Estimate(at); math.Abs(e.Throttled-0.5/3) > 0.01 || math.Abs(e.Stalled-0.3/3) > 0.01 {
		t.Errorf("%+v", e)
	}
}

// A clock that is set back, or far ahead, and numbers that are none, do no harm.
func TestOddTimes(t *testing.T) {
	var h History
	h.Add(monday, Usage{CPU: 500, Memory: gibibyte})
	h.Add(monday.Add(-time.Hour), Usage{CPU: 9000, Memory: 9 * gibibyte})
	if e := h.Estimate(monday); e.CPU > 550 || e.Memory != gibibyte {
		t.Errorf("%+v", e)
	}
	far := monday.Add(10 * 365 * 24 * time.Hour)
	for range 10 {
		h.Add(far, Usage{CPU: 300})
	}
	if e := h.Estimate(far); e.CPU < 300 || e.CPU > 330 || e.MostMemory != 0 {
		t.Errorf("ten years later: %+v", e)
	}
	h.Add(far, Usage{CPU: math.NaN()})
	h.Add(far, Usage{CPU: math.Inf(1)})
	if e := h.Estimate(far); math.IsNaN(e.CPU) || e.CPU < 300 {
		t.Errorf("%+v", e)
	}
	var none History
	if e := none.Estimate(monday); e != (Estimate{}) {
		t.Errorf("of nothing: %+v", e)
	}
}

// A bucket ends where the next begins, and none is wider than 5 % and ten millicores.
func TestBuckets(t *testing.T) {
	for v := 0.0; v < 500000; v = v*1.01 + 1 {
		end := bucketEnd(findBucket(v))
		if end < v-1e-6 || end > v*bucketGrowth+firstBucket+1e-6 {
			t.Fatalf("%v is in a bucket that ends at %v", v, end)
		}
	}
}
