package metrics

import (
	"math"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/anomaly"
)

// Each signal has its variables, which are asked for, and is missing without one of them.
func TestSignals(t *testing.T) {
	if len(signals) != len(anomaly.MySQLSignals) {
		t.Fatalf("%d signals of %d", len(signals), len(anomaly.MySQLSignals))
	}
	status, next := map[string]float64{}, 1.0
	for i, names := range signals {
		for _, name := range names {
			if !strings.Contains(strings.ToLower(signalStatus), "'"+name+"'") {
				t.Errorf("%s is not asked for", name)
			}
			status[name] = next
			next *= 2
		}
		if got := sumSignals(status)[i]; math.IsNaN(got) || got < next/2 {
			t.Errorf("%s is %g", anomaly.MySQLSignals[i].Name, got)
		}
		delete(status, names[0])
		if got := sumSignals(status)[i]; !math.IsNaN(got) {
			t.Errorf("without %s, %s is %g", names[0], anomaly.MySQLSignals[i].Name, got)
		}
	}
}
