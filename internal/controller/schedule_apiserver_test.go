//go:build apiserver

package controller_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// Members give nothing back before a slot of the schedule. A slot that went by
// while no operator was there is made up once, with each member once. The one
// before it is skipped, and counted.
func TestDefragmentationBySchedule(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	g := groupOf(w.simulation)
	g.unused = 60
	c := w.cluster("orders", 3).(*v1alpha1.EtcdCluster)
	c.Spec.Defragmentation.Schedule, c.Spec.Defragmentation.TimeZone = "0 0 1 1 *", "Europe/Berlin"
	w.create(c)
	o := w.operate(0)
	w.awaitReady(c)
	w.awaitSteady(o)
	w.get(c)
	newYear := time.Date(time.Now().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Hour)
	want := []v1alpha1.ScheduleStatus{{Name: "Defragmentation", Schedule: "0 0 1 1 * Europe/Berlin", NextSlot: &metav1.Time{Time: newYear}}}
	if diff := cmp.Diff(want, c.Status.Schedules); diff != "" || g.turns() != nil {
		t.Fatalf("%v before the slot; status (-want +got):\n%s", g.turns(), diff)
	}
	o.stop()

	before := c.DeepCopy()
	c.Status.Schedules[0].NextSlot = &metav1.Time{Time: newYear.AddDate(-2, 0, 0)}
	if err := w.person.Status().Patch(t.Context(), c, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.operate(0)
	want[0].LastSlot = &metav1.Time{Time: newYear.AddDate(-1, 0, 0)}
	want[0].Skipped = 1
	want[0].LastSkipped = []v1alpha1.SkippedSlot{{Slot: metav1.Time{Time: newYear.AddDate(-2, 0, 0)}, Reason: "it went by before anybody could handle it"}}
	await(w, c, "the end of the run", func(c *v1alpha1.EtcdCluster) bool { return cmp.Equal(want, c.Status.Schedules) })
	turns := g.turns()
	if last := turns[len(turns)-1]; len(turns) != 3 || last != "orders-0" || len(slices.Compact(slices.Sorted(slices.Values(turns)))) != 3 {
		t.Errorf("defragmented: %v; want each member once, and orders-0, which led, at the end", turns)
	}
}

func (g *group) turns() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.defragmented)
}

// What the schema cannot see is wrong with a schedule stops nothing but its
// runs, and ends with the mistake.
func TestInvalidScheduleIsStalled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	c := w.cluster("orders", 1).(*v1alpha1.EtcdCluster)
	c.Spec.Defragmentation.Schedule = "0 0 31 2 *"
	w.create(c)
	w.operate(0)
	await(w, c, "Stalled", func(c *v1alpha1.EtcdCluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionStalled) == v1alpha1.ReasonInvalidSchedule && conditions.IsTrue(c, v1alpha1.ConditionAvailable)
	})
	edit(w, c, func(c *v1alpha1.EtcdCluster) { c.Spec.Defragmentation.Schedule = "0 0 28 2 *" })
	w.awaitReady(c)
}
