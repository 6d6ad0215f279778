package stats

import (
	"math"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, math.NaN()},
		{[]float64{4}, 4},
		{[]float64{9, 1}, 5},
		{[]float64{7, -3, 100}, 7},
		{[]float64{8, 2, 4, 1000}, 6},
	} {
		if got := Median(c.values); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("of %v it is %g, want %g", c.values, got, c.want)
		}
	}
}
