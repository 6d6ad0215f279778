package postgres

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
)

// A primary that answers, and whose writes fail for want of disk space, is not
// available; the message names the volume and the fields that help.
func TestDiskFull(t *testing.T) {
	const remedy = "has no disk space left, and writes fail: set spec.storage.size to more, let volumes grow by themselves with spec.storage.autoGrow.maxSize, or remove data"
	for _, c := range []struct {
		name   string
		change func(w *world)
		want   map[string]string
	}{
		{"it has space", func(*world) {}, map[string]string{
			"Ready": "True Ready: 2 of 2 members serve, orders-0 takes writes", "Available": "True Available: 2 of 2 members serve, orders-0 takes writes"}},
		{"the primary's volume is full", func(w *world) { w.status(0).DiskFull = true }, map[string]string{
			"Ready": "False VolumeFull: member orders-0: volume data-orders-0 " + remedy, "Stalled": "True VolumeFull: member orders-0: volume data-orders-0 " + remedy,
			"Available": "False VolumeFull: orders-0 answers, and its writes fail: volume data-orders-0 has no disk space left"}},
		{"a replica's is", func(w *world) { w.status(1).DiskFull = true }, map[string]string{
			"Ready":     "True Ready: 2 of 2 members serve, orders-0 takes writes; member orders-1: volume data-orders-1 " + remedy,
			"Available": "True Available: 2 of 2 members serve, orders-0 takes writes",
			"Degraded":  "True VolumeFull: member orders-1: volume data-orders-1 " + remedy}},
	} {
		w := settled(t, 2)
		c.change(w)
		condition.Resolve(w.c, condition.Input{Facts: w.plan().Facts})
		got := map[string]string{}
		for _, cond := range w.c.Status.Conditions {
			if cond.Type != v1alpha1.ConditionSynced {
				got[cond.Type] = string(cond.Status) + " " + cond.Reason + ": " + cond.Message
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
