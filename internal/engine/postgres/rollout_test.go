package postgres

import (
	"slices"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/condition"
)

// passWithoutProgress is a pass that found no progress for so long.
func (w *world) passWithoutProgress(stuck time.Duration) {
	w.t.Helper()
	condition.Resolve(w.c, condition.Input{Facts: w.plan().Facts, Stuck: stuck, Deadline: time.Minute})
	w.c.Status.ObservedGeneration = w.c.Generation
}

// A cluster that was rolled out and loses its primary, or holds it, is not being
// changed, and exceeds no deadline of a change; nor does it once what only a
// person could put right is right again.
func TestLostPrimaryIsNoChange(t *testing.T) {
	w := settled(t, 2)
	w.passWithoutProgress(time.Hour)
	if !conditions.IsTrue(w.c, v1alpha1.ConditionReady) {
		t.Fatal("not rolled out at first")
	}
	for _, step := range []struct {
		what   string
		change func()
	}{
		{"the primary is held", func() {
			m := w.status(0)
			m.State, m.Hold, m.Serving, m.Message = agentapi.StateHeld, agentapi.HoldDataStale, false, "its data is older"
		}},
		{"its pod is gone", func() { w.removePod(0) }},
		{"the replica is gone, too", func() { w.removePod(1) }},
	} {
		step.change()
		for range 2 {
			w.passWithoutProgress(time.Hour)
		}
		if conditions.Has(w.c, v1alpha1.ConditionReconciling) || conditions.GetReason(w.c, v1alpha1.ConditionStalled) == v1alpha1.ReasonProgressDeadline {
			t.Errorf("%s: %v", step.what, w.c.Status.Conditions)
		}
	}
}

// A member of what was rolled out is restarted; one beyond it is new.
func TestRestartIsNoScalingUp(t *testing.T) {
	scalingUp := func(w *world) bool {
		return slices.ContainsFunc(w.plan().Facts, func(f condition.Fact) bool { return f.Reason == v1alpha1.ReasonScalingUp })
	}
	w := settled(t, 3)
	w.passWithoutProgress(0)
	w.c.Generation, w.c.Spec.PodLabels = 2, map[string]string{"team": "shop"}
	w.removePod(2)
	if scalingUp(w) {
		t.Error("a roll-out of three members scales up")
	}
	w.declareReplicas(5)
	if !scalingUp(w) {
		t.Error("from three members to five nothing scales up")
	}
}
