package etcd

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
)

// A group that answers and refuses writes, for want of disk space or of quota, is
// neither ready nor available, and the message names the field and the remedy. One
// that goes on without the members whose volumes are full is both.
func TestRefusedWrites(t *testing.T) {
	const volume = "volume data-config-0 has no disk space left, and writes fail: set spec.storage.size to more, let volumes grow by themselves with spec.storage.autoGrow.maxSize, or remove data"
	const tried = "etcd refuses writes (NOSPACE): the data fills its quota of 409Mi. Holdfast compacts the history of keys and defragments members; " +
		"if that is not enough, delete keys, or set spec.quota to more, and spec.storage.size to twice as much at least"
	const inVain = "etcd refuses writes (NOSPACE): the data fills its quota of 409Mi, also after the history of keys was compacted and members were defragmented: " +
		"delete keys, or set spec.quota to more, and spec.storage.size to twice as much at least"
	full := func(ordinals ...int) func(w *world) {
		return func(w *world) {
			for _, n := range ordinals {
				w.status(n).DiskFull = true
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(w *world)
		want   map[string]string
	}{
		{"all have disk space", func(*world) {}, map[string]string{
			"Ready": "True Ready: 3 of 3 members serve, config-0 leads", "Available": "True Available: 3 of 3 members serve, config-0 leads"}},
		{"one volume of three is full", full(0), map[string]string{
			"Ready":     "True Ready: 3 of 3 members serve, config-0 leads; member config-0: " + volume,
			"Available": "True Available: 3 of 3 members serve, config-0 leads",
			"Degraded":  "True VolumeFull: member config-0: " + volume}},
		{"the volumes of a majority are full", full(0, 2), map[string]string{
			"Ready":     "False VolumeFull: member config-0: " + volume + " (and 1 more: see Stalled)",
			"Stalled":   "True VolumeFull: member config-0: " + volume + "; member config-2: " + strings.ReplaceAll(volume, "config-0", "config-2"),
			"Available": "False VolumeFull: etcd refuses writes: volumes data-config-0, data-config-2 have no disk space left, and 2 of 3 members must write"}},
		{"the quota is used up", func(w *world) { w.fill(0) }, map[string]string{
			"Ready":     "False QuotaExceeded: " + tried,
			"Available": "False QuotaExceeded: " + tried,
			"Degraded":  "True QuotaExceeded: " + tried}},
		{"and stays so", func(w *world) {
			w.fill(0)
			w.tried("FirstCompact", 6*time.Minute)
			w.tried("Compact", time.Minute)
		}, map[string]string{
			"Ready":     "False QuotaExceeded: " + inVain,
			"Stalled":   "True QuotaExceeded: " + inVain,
			"Available": "False QuotaExceeded: " + inVain}},
	} {
		w := settled(t, 3)
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
