package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Of a hundred samples from a known distribution, about as many intervals have its median as
// the confidence says.
func TestBootstrapMedianCoversTheMedian(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	covered := 0
	for range 100 {
		values := make([]float64, 21)
		for i := range values {
			values[i] = 0.98 + 0.03*random.NormFloat64()
		}
		if low, high := BootstrapMedian(values, 0.95); low <= 0.98 && 0.98 <= high {
			covered++
		}
	}
	if covered < 87 || covered > 99 {
		t.Errorf("%d of 100 intervals have the median, want about 95", covered)
	}
}

func TestBootstrapMedianOfFew(t *testing.T) {
	if low, high := BootstrapMedian(nil, 0.95); !math.IsNaN(low) || !math.IsNaN(high) {
		t.Errorf("of none it is %g to %g", low, high)
	}
	if low, high := BootstrapMedian([]float64{3}, 0.95); low != 3 || high != 3 {
		t.Errorf("of one it is %g to %g", low, high)
	}
	values := []float64{5, 1, 4, 2, 3}
	low, high := BootstrapMedian(values, 0.95)
	if low < 1 || high > 5 || low >= 3 || high <= 3 {
		t.Errorf("of one to five it is %g to %g", low, high)
	}
	if again, _ := BootstrapMedian(values, 0.95); again != low || values[0] != 5 {
		t.Errorf("the second time it begins at %g, and the values are %v", again, values)
	}
	if l, h := BootstrapMedian(values, 0.5); l < low || h > high || h-l >= high-low {
		t.Errorf("with less confidence it is %g to %g, not within %g to %g", l, h, low, high)
	}
}
