package sizing

import (
	"math"
	"time"
)

const (
	// bucketCount, firstBucket and bucketGrowth are those of the Vertical Pod Autoscaler for
	// CPU: the first bucket is ten millicores wide, and each one 5 % wider than the one before,
	// up to 500 cores. A quantile is off by a bucket at most.
	bucketCount  = 161
	firstBucket  = 10.0
	bucketGrowth = 1.05
	// halfLife is how old a value is that counts half as much as one of now.
	halfLife = 24 * time.Hour
	// longestScale is how many half-lives weights may grow before all are scaled down.
	longestScale = 16
)

// Histogram is how often values were seen. Older values may count less: a weight is then
// added that grows with time, instead of taking something from all that are there.
type Histogram struct {
	// Weights of the buckets, and Since in seconds since 1970, when a weight was one.
	Weights [bucketCount]float32
	Since   int64
}

// Add counts a value. It decays.
func (h *Histogram) Add(now time.Time, value float64) {
	age := float64(now.Unix()-h.Since) / halfLife.Seconds()
	if age > longestScale || age < 0 {
		h.scaleWeights(now, age)
		age = 0
	}
	h.Weights[findBucket(value)] += float32(math.Exp2(age))
}

// scaleWeights has a weight be one now. What is from a time to come counts as if it were of now:
// the clock was set back.
func (h *Histogram) scaleWeights(now time.Time, age float64) {
	factor := float32(math.Exp2(-max(age, 0)))
	for i := range h.Weights {
		h.Weights[i] *= factor
	}
	h.Since = now.Unix()
}

// Quantile is the value below which a share of the weight lies, rounded up to the end of
// its bucket; 0 of an empty histogram.
func (h *Histogram) Quantile(share float64) float64 {
	total, last := 0.0, -1
	for i, w := range h.Weights {
		total += float64(w)
		if w > 0 {
			last = i
		}
	}
	if last < 0 {
		return 0
	}
	below := 0.0
	for i, w := range h.Weights[:last] {
		if below += float64(w); below >= share*total {
			return bucketEnd(i)
		}
	}
	return bucketEnd(last)
}

func findBucket(value float64) int {
	if !(value > firstBucket) { // also where it is no number
		return 0
	}
	at := math.Log(value/firstBucket*(bucketGrowth-1)+1) / math.Log(bucketGrowth)
	return int(min(at, bucketCount-1))
}

func bucketEnd(i int) float64 {
	return firstBucket * (math.Pow(bucketGrowth, float64(i+1)) - 1) / (bucketGrowth - 1)
}
