package stats

import (
	"math"
	"math/rand/v2"
	"slices"
)

// resamples of a bootstrap: the ends of an interval then vary in the third digit.
const resamples = 10000

// BootstrapMedian is an interval that has the median of what values were drawn from, with a
// confidence such as 0.95, by the percentile bootstrap: the medians of as many values, drawn
// from values with replacement. It is the same each time for the same values in the same
// order, and NaN of none.
func BootstrapMedian(values []float64, confidence float64) (low, high float64) {
	if len(values) == 0 {
		return math.NaN(), math.NaN()
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
	medians, drawn := make([]float64, resamples), make([]float64, len(values))
	for i := range medians {
		for j := range drawn {
			drawn[j] = values[random.IntN(len(values))]
		}
		medians[i] = Median(drawn)
	}
	slices.Sort(medians)
	outside := (1 - confidence) / 2
	at := func(share float64) float64 { return medians[int(math.Round(share*(resamples-1)))] }
	return at(outside), at(1 - outside)
}
