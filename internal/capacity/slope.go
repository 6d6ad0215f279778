package capacity

import (
	"time"

	"github.com/holdfast-db/holdfast/internal/stats"
)

// Sample is how many bytes of a volume were used at a time.
type Sample struct {
	// Time in seconds since 1970.
	Time int64
	// Used bytes.
	Used int64
}

func (s Sample) at() time.Time { return time.Unix(s.Time, 0) }

// estimateSlope is the rate at which use rises, in bytes per second: the median of the
// slopes between all pairs of samples (Theil 1950, Sen 1968), but no more than the median
// of those between neighbours. So what rises in less than half of the time, such as by one
// load, is no rate. NaN for fewer than two samples.
func estimateSlope(samples []Sample) float64 {
	var all, neighbours []float64
	for i, a := range samples {
		for j, b := range samples[i+1:] {
			if b.Time <= a.Time {
				continue
			}
			all = append(all, slopeBetween(a, b))
			if j == 0 {
				neighbours = append(neighbours, slopeBetween(a, b))
			}
		}
	}
	return min(stats.Median(all), stats.Median(neighbours))
}

// estimateTrend is the rate at which use rises from day to day, in bytes per second: the
// median of the slopes between all pairs of samples that are whole days apart (the seasonal
// slope of Hirsch, Slack and Smith 1982), but no more than the median of those that are one
// day apart in the last week. So what comes and goes each day is no trend, nor is one load,
// nor what has ended for half a week. NaN where no samples are.
func estimateTrend(samples []Sample) float64 {
	var all []float64
	for days := 1; days <= int(trendSpan/day); days++ {
		all = appendSlopes(all, samples, days)
	}
	return min(stats.Median(all), stats.Median(appendSlopes(nil, selectLast(samples, week), 1)))
}

// appendSlopes appends the slopes between samples that are so many days apart.
func appendSlopes(slopes []float64, samples []Sample, days int) []float64 {
	const off = int64(trendStep / time.Second / 2)
	apart, first := int64(days)*secondsPerDay, 0
	for _, a := range samples {
		for first < len(samples) && samples[first].Time < a.Time+apart-off {
			first++
		}
		for _, b := range samples[first:] {
			if b.Time > a.Time+apart+off {
				break
			}
			slopes = append(slopes, slopeBetween(a, b))
		}
	}
	return slopes
}

func slopeBetween(a, b Sample) float64 { return float64(b.Used-a.Used) / float64(b.Time-a.Time) }
