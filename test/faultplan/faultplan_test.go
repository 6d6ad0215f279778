package faultplan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	kinds  = []string{"cut", "freeze", "kill", "lease"}
	limits = Limits{Shortest: 5 * time.Second, Longest: time.Minute, Alone: []string{"lease"}}
)

func drawSteps(seed uint64, count int) []Step {
	source := New(seed, kinds, limits)
	var steps []Step
	for range count {
		steps = append(steps, source.Next())
	}
	return steps
}

func TestSeedDecides(t *testing.T) {
	if diff := cmp.Diff(drawSteps(7, 50), drawSteps(7, 50)); diff != "" {
		t.Errorf("one seed draws two plans:\n%s", diff)
	}
	if cmp.Equal(drawSteps(7, 50), drawSteps(8, 50)) {
		t.Error("two seeds draw the same plan")
	}
}

func TestStepsAreWithinLimits(t *testing.T) {
	drawn, overlaps, primaries := map[string]int{}, 0, 0
	for _, step := range drawSteps(1, 1000) {
		if step.Pause < limits.Shortest/4 || step.Pause > limits.Longest/2 {
			t.Errorf("a pause of %s", step.Pause)
		}
		if len(step.Faults) == 2 {
			overlaps++
		}
		for _, f := range step.Faults {
			drawn[f.Kind]++
			if f.Primary {
				primaries++
			}
			if f.Length < limits.Shortest || f.Length > limits.Longest || f.After > step.Faults[0].Length || f.Pick < 0 || f.Variant < 0 {
				t.Errorf("drawn: %+v", f)
			}
			if f.Kind == "lease" && len(step.Faults) > 1 {
				t.Errorf("%s overlaps: %s", f.Kind, step)
			}
		}
	}
	for _, kind := range kinds {
		if drawn[kind] < 100 {
			t.Errorf("%s was drawn %d times", kind, drawn[kind])
		}
	}
	if overlaps < 100 || primaries < 400 {
		t.Errorf("%d steps have two faults, %d faults are the primary's", overlaps, primaries)
	}
}
