package capacity

import (
	"math"
	"slices"
	"time"
)

// Sample is how many bytes of a volume were used at a time.
type Sample struct {
	// Time in seconds since 1970.
	Time int64
	// Used bytes.
	Used int64
}

func (s Sample) at() time.Time { return time.Unix(s.Time, 0) }

// estimateSlope is the median of the slopes between all pairs of samples, in bytes per
// second (Theil 1950, Sen 1968): up to 29 % of the samples may be anything. NaN for fewer
// than two.
func estimateSlope(samples []Sample) float64 {
	return slopeBetween(samples, func(time.Duration) bool { return true })
}

// estimateDailySlope is the median of the slopes between all pairs of samples that are whole
// days apart (the seasonal slope of Hirsch, Slack and Smith 1982): what comes and goes each
// day is no trend. NaN where no samples are.
func estimateDailySlope(samples []Sample) float64 {
	const day = 24 * time.Hour
	return slopeBetween(samples, func(apart time.Duration) bool {
		return apart >= day-trendStep/2 && (apart+trendStep/2)%day <= trendStep
	})
}

func slopeBetween(samples []Sample, isPair func(apart time.Duration) bool) float64 {
	var slopes []float64
	for i, a := range samples {
		for _, b := range samples[i+1:] {
			if b.Time > a.Time && isPair(b.at().Sub(a.at())) {
				slopes = append(slopes, float64(b.Used-a.Used)/float64(b.Time-a.Time))
			}
		}
	}
	return median(slopes)
}

// median sorts values. It is NaN of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}
