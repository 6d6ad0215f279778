// Package stats has what several measurements are summed up by.
package stats

import (
	"math"
	"slices"
)

// Median sorts values, and returns the one in the middle or the mean of the two there. It is
// NaN of none.
func Median(values []float64) float64 {
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
