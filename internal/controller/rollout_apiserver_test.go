//go:build apiserver

package controller_test

import (
	"context"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// A cluster of whichever kind that was rolled out and whose members all fall
// silent for longer than the deadline of a change is not available, and is not
// being changed, by any status that it ever had.
func TestSilentMembersAreNoChange(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, w *world) {
		c := w.cluster("orders", w.kind.several)
		c.Common().ProgressDeadlineSeconds = new(int32(10))
		w.create(c)
		w.operate(0)
		w.awaitReady(c)
		generation := c.GetGeneration()

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		wrong := make(chan string, 1)
		go func() {
			for ctx.Err() == nil {
				now := w.kind.cluster(w)
				if err := w.person.Get(ctx, types.NamespacedName{Namespace: w.Namespace, Name: "orders"}, now); err != nil {
					continue
				}
				reconciling, stalled := conditions.GetReason(now, v1alpha1.ConditionReconciling), conditions.GetReason(now, v1alpha1.ConditionStalled)
				if now.GetGeneration() == generation && (reconciling != "" || stalled != "") {
					select {
					case wrong <- describeDrifts(now):
					default:
					}
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		w.simulation.silence(true)
		await(w, c, "not Available", func(c v1alpha1.Cluster) bool { return conditions.IsFalse(c, v1alpha1.ConditionAvailable) })
		// Longer than the deadline: what must not happen has no event to wait for.
		time.Sleep(12 * time.Second)
		w.simulation.Wake(types.NamespacedName{Namespace: w.Namespace, Name: "orders"})
		await(w, c, "still not Available", func(c v1alpha1.Cluster) bool { return conditions.IsFalse(c, v1alpha1.ConditionAvailable) })
		w.simulation.silence(false)
		w.awaitReady(c)
		select {
		case status := <-wrong:
			t.Errorf("a rolled out generation said: %s", status)
		default:
		}
	})
}
