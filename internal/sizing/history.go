package sizing

import (
	"math"
	"slices"
	"time"
)

const (
	day = 24 * time.Hour
	// daysKept is how many days count, beside the one that has not ended: two weeks, so that
	// what happens on one day of a week is seen twice.
	daysKept = 14
	// leastMinutes must have been measured before the use of a processor counts for the two
	// weeks: what a start takes is not what a member needs.
	leastMinutes = 12 * 60
	// killCounts is how long a kill for lack of memory counts: a job may come once a month.
	killCounts = 56 * day
	// killsKept bounds how many kills are kept.
	killsKept = 8
	// longestMinute is the longest time between two measurements that counts as one.
	longestMinute = 3 * time.Minute
	// cpuQuantile is the share of minutes in which a request should suffice.
	cpuQuantile = 0.95
)

// Usage is what a container used in about a minute.
type Usage struct {
	// CPU in millicores.
	CPU float64
	// Periods of its quota, and Throttled those in which it had to stop.
	Periods, Throttled float64
	// Stalled is for which share of the time something waited for a processor.
	Stalled float64
	// Memory that it needs, and Held with every file page that the kernel holds active: see
	// MeasureMemory.
	Memory, Held int64
}

// Day is what was used in 24 hours.
type Day struct {
	// Start in seconds since 1970, and Minutes that were measured.
	Start   int64
	Minutes int64
	// CPU is the largest that Estimate.CPU was, in millicores.
	CPU float64
	// Periods and Throttled of the quota, and Stalled in minutes.
	Periods, Throttled, Stalled float64
	// Memory and Held at their largest, in bytes.
	Memory, Held int64
}

// Kill is one for lack of memory.
type Kill struct {
	// Time in seconds since 1970.
	Time int64
	// Memory that the container had, in bytes.
	Memory int64
}

// History is what is kept of a container's use, in less than 2 KiB. The zero value is empty.
type History struct {
	// CPU of all minutes, in which older ones count less.
	CPU Histogram
	// Days, the oldest first.
	Days []Day
	// Kills, the oldest first.
	Kills []Kill
}

// Add takes in what was used in the last minute. What is from before the last day is left
// out: the clock was set back.
func (h *History) Add(now time.Time, u Usage) {
	d := h.findDay(now)
	if d == nil {
		return
	}
	h.CPU.Add(now, u.CPU)
	d.Minutes++
	d.Periods += u.Periods
	d.Throttled += u.Throttled
	d.Stalled += u.Stalled
	if h.countMinutes() >= leastMinutes {
		d.CPU = max(d.CPU, h.CPU.Quantile(cpuQuantile))
	}
	d.Memory, d.Held = max(d.Memory, u.Memory), max(d.Held, u.Held)
}

// findDay returns the day to add to; nil for none.
func (h *History) findDay(now time.Time) *Day {
	if n := len(h.Days); n > 0 {
		last := &h.Days[n-1]
		age := now.Sub(time.Unix(last.Start, 0))
		if age < 0 {
			return nil
		}
		if age < day {
			return last
		}
	}
	h.Days = slices.DeleteFunc(h.Days, func(d Day) bool { return now.Sub(time.Unix(d.Start, 0)) >= (daysKept+1)*day })
	h.Days = append(h.Days, Day{Start: now.Unix()})
	return &h.Days[len(h.Days)-1]
}

// countMinutes counts those that were measured.
func (h *History) countMinutes() (sum int64) {
	for _, d := range h.Days {
		sum += d.Minutes
	}
	return sum
}

// AddKill takes in a kill for lack of memory, once. A kill of a time that is known, or of an
// earlier one, is no other.
func (h *History) AddKill(at time.Time, memory int64) bool {
	if n := len(h.Kills); n > 0 && at.Unix() <= h.Kills[n-1].Time {
		return false
	}
	if len(h.Kills) == killsKept {
		h.Kills = slices.Delete(h.Kills, 0, 1)
	}
	h.Kills = append(h.Kills, Kill{Time: at.Unix(), Memory: memory})
	return true
}

// Estimate is what a container needs.
type Estimate struct {
	// Measured is the time that was measured, of the last two weeks.
	Measured time.Duration
	// CPU is what sufficed in 95 % of the minutes, in which older ones count less, and MostCPU
	// the largest that this was in the last two weeks; in millicores. A job that runs for an
	// hour each night is in CPU for some hours, and in MostCPU all the time.
	CPU, MostCPU float64
	// Throttled is the share of the quota's periods in which the container had to stop, and
	// Stalled that of the time in which something waited for a processor. Older days count
	// less.
	Throttled, Stalled float64
	// Memory is the peak that 95 % of the days stayed under, in which older ones count less,
	// MostMemory that of all of them, and MostHeld that of Usage.Held; in bytes.
	Memory, MostMemory, MostHeld int64
	// Kills for lack of memory in the last eight weeks, the last one's time, and the most
	// memory that did not suffice.
	Kills      int
	LastKill   time.Time
	KillMemory int64
}

// Estimate says what the container needs now.
func (h *History) Estimate(now time.Time) Estimate {
	e := Estimate{CPU: h.CPU.Quantile(cpuQuantile), Measured: time.Duration(h.countMinutes()) * time.Minute}
	var periods, throttled, stalled, minutes float64
	for _, d := range h.Days {
		weight := d.weightAt(now)
		periods, throttled = periods+weight*d.Periods, throttled+weight*d.Throttled
		minutes, stalled = minutes+weight*float64(d.Minutes), stalled+weight*d.Stalled
		e.MostCPU = max(e.MostCPU, d.CPU)
		e.MostMemory, e.MostHeld = max(e.MostMemory, d.Memory), max(e.MostHeld, d.Held)
	}
	e.Throttled, e.Stalled = shareOf(throttled, periods), shareOf(stalled, minutes)
	e.Memory = h.usualPeak(now)
	for _, k := range h.Kills {
		if at := time.Unix(k.Time, 0); now.Sub(at) < killCounts {
			e.Kills++
			e.LastKill, e.KillMemory = at.UTC(), max(e.KillMemory, k.Memory)
		}
	}
	return e
}

// weightAt is the weight of a day: that of now has one.
func (d Day) weightAt(now time.Time) float64 {
	age := now.Sub(time.Unix(d.Start, 0)) - day
	return math.Exp2(-max(age, 0).Hours() / halfLife.Hours())
}

// usualPeak is the peak of memory that 95 % of the days stay under, by weight. There are a
// few of them, so that no buckets are needed.
func (h *History) usualPeak(now time.Time) int64 {
	days := slices.SortedFunc(slices.Values(h.Days), func(a, b Day) int { return int(min(max(b.Memory-a.Memory, -1), 1)) })
	total := 0.0
	for _, d := range days {
		total += d.weightAt(now)
	}
	above := 0.0
	for _, d := range days {
		if above += d.weightAt(now); above > (1-cpuQuantile)*total {
			return d.Memory
		}
	}
	return 0
}

func shareOf(part, all float64) float64 {
	if all <= 0 {
		return 0
	}
	return part / all
}
