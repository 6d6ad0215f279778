package capacity

import (
	"math"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/stats"
)

const (
	day           = 24 * time.Hour
	week          = 7 * day
	secondsPerDay = int64(day / time.Second)
	// leastTrend is how much history a trend needs: with less, one load on one of the days
	// would look like a trend.
	leastTrend = 4 * day
	// wholeDays is how many times its own length a history of whole days forecasts. One of a
	// part of a day forecasts its own length: what rose for an hour may end within the next.
	wholeDays = 4
	// jumpsEach is in how much history one large step of a volume's use counts as a single
	// event, such as a table that was dropped. More of them are how the volume is used.
	jumpsEach = week
	// swingWindow is over which time the highest use is looked for: two whole days.
	swingWindow = 2 * day
)

// recentWindows are the lengths of the last times whose rates count beside the trend.
var recentWindows = []time.Duration{30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, recentSpan, 12 * time.Hour, day}

// Forecast says when a volume will be full.
type Forecast struct {
	// Known says that the history is long enough.
	Known bool
	// Left is the time until the volume is full, and Fills says that it is within reach of
	// the history that shows the rate: four times its length for whole days, 56 days at
	// most, and once its length for a part of a day.
	Left  time.Duration
	Fills bool
	// Rate at which the volume fills, in bytes per day. It is negative where data shrinks.
	Rate float64
	// Shown is how long a history shows the rate: a last part of it, or all for the trend.
	Shown time.Duration
	// Trend says that the trend shows it.
	Trend bool
}

// ForecastFull says when a volume with so many free bytes is full. The soonest of several
// answers counts: that of the trend of 14 days, and those of the last half hour to the last
// day, while more is used than was ever used before.
func (h *History) ForecastFull(free int64) Forecast {
	f := Forecast{Known: span(h.Recent) >= recentWindows[0]}
	trend := math.NaN()
	if length := span(h.Trend); length >= leastTrend {
		level := removeJumps(h.Trend)
		trend = estimateTrend(level)
		f = f.sooner(Forecast{Known: true, Rate: trend * float64(secondsPerDay), Shown: length, Trend: true}, wholeDays*length, free-measureSwing(level, trend))
	}
	for _, length := range recentWindows {
		during, news := h.selectRecent(length), h.measureNews(length, trend)
		if span(during) < length-2*jitter || news <= 0 {
			continue
		}
		reach := length
		if length == day && span(h.Trend) >= 2*day {
			reach = wholeDays * length
		}
		if rate := estimateSlope(during); news > rate*length.Seconds()/2 {
			f = f.sooner(Forecast{Known: true, Rate: rate * float64(secondsPerDay), Shown: length}, reach, free)
		}
	}
	return f
}

// sooner is the forecast by another rate, if that fills so much free space sooner, and
// within reach.
func (f Forecast) sooner(other Forecast, reach time.Duration, free int64) Forecast {
	days := float64(max(free, 0)) / other.Rate
	if !(other.Rate > 0 && days < reach.Hours()/24) { // also where the rate is no number
		if !f.Fills && other.Trend {
			return other
		}
		return f
	}
	other.Fills, other.Left = true, time.Duration(days*float64(day))
	if f.Fills && f.Left <= other.Left {
		return f
	}
	return other
}

// selectRecent are the samples of the last time.
func (h *History) selectRecent(length time.Duration) []Sample {
	if length > recentSpan {
		return selectLast(h.Trend, length)
	}
	return selectLast(h.Recent, length)
}

func selectLast(samples []Sample, length time.Duration) []Sample {
	if len(samples) == 0 {
		return nil
	}
	from := samples[len(samples)-1].at().Add(-length - jitter)
	first := slices.IndexFunc(samples, func(s Sample) bool { return !s.at().Before(from) })
	return samples[first:]
}

// measureNews is by how many bytes more is used than at any time before the last length of
// time, with the trend taken into account. What a job takes each night, and gives back, is
// no news, and nor is a day's growth that a purge at night takes.
func (h *History) measureNews(length time.Duration, trend float64) float64 {
	last := h.Recent[len(h.Recent)-1]
	rising := 0.0
	if trend > 0 {
		rising = trend
	}
	news := math.Inf(1)
	for _, s := range h.Trend {
		if last.at().Sub(s.at()) < length+trendStep {
			break
		}
		news = min(news, float64(last.Used-s.Used)-rising*float64(last.Time-s.Time))
	}
	return news
}

// measureSwing is how far use is now below its highest of the last days, with the trend
// taken out: the volume is full at such a peak first, and not on average.
func measureSwing(samples []Sample, trend float64) int64 {
	last := samples[len(samples)-1]
	highest := 0.0
	for _, s := range samples {
		if last.at().Sub(s.at()) <= swingWindow {
			highest = max(highest, float64(s.Used-last.Used)+trend*float64(last.Time-s.Time))
		}
	}
	return int64(highest)
}

// removeJumps takes single large steps out of a series, so that the growth between them
// stays: a table that was dropped once is dropped once.
func removeJumps(samples []Sample) []Sample {
	var sizes []float64
	for i := 1; i < len(samples); i++ {
		sizes = append(sizes, math.Abs(float64(samples[i].Used-samples[i-1].Used)))
	}
	typical := stats.Median(slices.Clone(sizes))
	var jumps []int
	for i, size := range sizes {
		if size > 8*typical && size > 0.05*float64(samples[i].Used) {
			jumps = append(jumps, i+1)
		}
	}
	if len(jumps) == 0 || len(jumps) > int(span(samples)/jumpsEach) {
		return samples
	}
	level := slices.Clone(samples)
	for _, at := range jumps {
		step := samples[at].Used - samples[at-1].Used
		for i := at; i < len(level); i++ {
			level[i].Used -= step
		}
	}
	return level
}

func span(samples []Sample) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	return samples[len(samples)-1].at().Sub(samples[0].at())
}
