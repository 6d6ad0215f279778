//go:build apiserver

package controller_test

import (
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// A pod that admission keeps out is said with the field of the spec, and a
// StatefulSet that the API server refuses, too; each is over when the spec is.
func TestWhatAdmissionRefusesIsNamed(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, w *world) {
		c := w.cluster("orders", 1)
		c.Common().PriorityClassName = "databases"
		w.create(c)
		w.operate(0)
		stalled := func(reason string, says ...string) func(v1alpha1.Cluster) bool {
			return func(c v1alpha1.Cluster) bool {
				message := conditions.GetMessage(c, v1alpha1.ConditionStalled)
				for _, want := range says {
					if !strings.Contains(message, want) {
						return false
					}
				}
				return conditions.GetReason(c, v1alpha1.ConditionStalled) == reason
			}
		}
		await(w, c, "Stalled for a PriorityClass", stalled(v1alpha1.ReasonForbidden,
			"pod orders-0 cannot be created", `spec.priorityClassName "databases" does not exist`))
		edit(w, c, func(c v1alpha1.Cluster) { c.Common().PriorityClassName = "" })
		w.awaitReady(c)
		edit(w, c, func(c v1alpha1.Cluster) { c.Common().PodLabels = map[string]string{"team": "no label"} })
		await(w, c, "Stalled for a label", stalled(v1alpha1.ReasonInvalidObject, "spec.podLabels", "change spec.podLabels"))
		edit(w, c, func(c v1alpha1.Cluster) { c.Common().PodLabels = nil })
		w.awaitReady(c)
	})
}
