package etcd

import (
	"slices"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
)

// resolve is a pass that found no progress for so long.
func (w *world) resolve(stuck time.Duration) {
	w.t.Helper()
	condition.Resolve(w.c, condition.Input{Facts: w.plan().Facts, Stuck: stuck, Deadline: time.Minute})
	w.c.Status.ObservedGeneration = w.c.Generation
}

// A group that was rolled out and loses its quorum, without or with the data of
// its members, is not being changed, and exceeds no deadline of a change.
func TestLostQuorumIsNoChange(t *testing.T) {
	for name, lose := range map[string]func(*world, int){
		"pods are gone": (*world).gone,
		"pods are back with empty volumes": func(w *world, n int) {
			w.emptied(n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := settled(t, 3)
			w.resolve(time.Hour)
			if !conditions.IsTrue(w.c, v1alpha1.ConditionReady) {
				t.Fatal("not rolled out at first")
			}
			for _, lost := range []int{2, 1} {
				lose(w, lost)
				w.elect()
				w.say()
				w.resolve(time.Hour)
				w.resolve(time.Hour)
				if conditions.Has(w.c, v1alpha1.ConditionReconciling) || conditions.GetReason(w.c, v1alpha1.ConditionStalled) == v1alpha1.ReasonProgressDeadline {
					t.Errorf("without member %d: %v", lost, w.c.Status.Conditions)
				}
			}
			if available := conditions.Get(w.c, v1alpha1.ConditionAvailable); available.Reason != v1alpha1.ReasonQuorumLost {
				t.Errorf("Available/%s: the quorum is not lost", available.Reason)
			}
		})
	}
}

// A member of what was rolled out is restarted; one beyond it is new.
func TestRestartIsNoScalingUp(t *testing.T) {
	scalingUp := func(w *world) bool {
		return slices.ContainsFunc(w.plan().Facts, func(f condition.Fact) bool { return f.Reason == v1alpha1.ReasonScalingUp })
	}
	w := settled(t, 3)
	w.resolve(0)
	w.c.Generation, w.c.Spec.PodLabels = 2, map[string]string{"team": "shop"}
	w.gone(2)
	w.say()
	if scalingUp(w) {
		t.Error("a roll-out of three members scales up")
	}
	w.replicas(5)
	if !scalingUp(w) {
		t.Error("from three members to five nothing scales up")
	}
}
