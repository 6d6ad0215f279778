package capacity

import "time"

const (
	// trendSpan is how far back the trend looks, with a sample each trendStep.
	trendSpan = 2 * week
	trendStep = time.Hour
	// recentSpan is how far back samples are dense: one each recentStep.
	recentSpan = 6 * time.Hour
	recentStep = 5 * time.Minute
	// jitter is how much too soon a sample may come.
	jitter = 5 * time.Second
)

// History is what is kept of the use of a volume: at most 410 samples. The zero value is
// empty.
type History struct {
	// Trend has the highest use of each hour of the last 14 days, and Recent that of each
	// five minutes of the last six hours; both the oldest first, by when they began.
	Trend, Recent []Sample
}

// Add takes in what is used now, and says whether that began a sample: else there is little
// news. What is from before the last sample is left out: the clock was set back.
func (h *History) Add(now time.Time, used int64) bool {
	s := Sample{now.Unix(), used}
	h.Trend, _ = appendSample(h.Trend, s, trendStep, trendSpan)
	began := false
	h.Recent, began = appendSample(h.Recent, s, recentStep, recentSpan)
	return began
}

func appendSample(samples []Sample, s Sample, step, length time.Duration) (list []Sample, began bool) {
	if n := len(samples); n > 0 {
		last := &samples[n-1]
		if s.Time < last.Time {
			return samples, false
		}
		if s.at().Sub(last.at()) < step-jitter {
			last.Used = max(last.Used, s.Used)
			return samples, false
		}
	}
	first := 0
	for first < len(samples) && s.at().Sub(samples[first].at()) > length+jitter {
		first++
	}
	kept := append(samples[:0], samples[first:]...) // in place: the array does not grow
	return append(kept, s), true
}
