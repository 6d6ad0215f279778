//go:build apiserver

package controller_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// Where one backup is made at a time, the end of each wakes the next one: no queued backup
// waits until it looks again by itself, which is after more time than the test waits.
func TestQueuedBackupsFollowOneAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	w.concurrentBackups = 1
	w.simulation.jobs.set(func(j *jobs) { j.held = true })
	names := []string{"billing", "orders", "stock"}
	for _, name := range names {
		c := w.cluster(name, 1)
		c.Common().Backup = &v1alpha1.ClusterBackup{Schedule: yearly}
		w.create(c)
	}
	w.operate(0)
	var all []v1alpha1.Backup
	list := func(ctx context.Context) string {
		var found v1alpha1.BackupList
		if err := w.person.List(ctx, &found, client.InNamespace(w.Namespace)); err != nil {
			return err.Error()
		}
		all = found.Items
		said := ""
		for i := range all {
			said += fmt.Sprintf("%s: %s %s\n", all[i].Name, all[i].Status.Phase, conditions.GetReason(&all[i], v1alpha1.ConditionReconciling))
		}
		return said
	}
	count := func(reason string) int {
		n := 0
		for i := range all {
			if conditions.GetReason(&all[i], v1alpha1.ConditionReconciling) == reason {
				n++
			}
		}
		return n
	}
	apitest.Eventually(t, "one is made, and two are queued", func(ctx context.Context) (bool, string) {
		said := list(ctx)
		return count(v1alpha1.ReasonCopying) == 1 && count(v1alpha1.ReasonQueued) == len(names)-1 && w.simulation.jobs.verbs()["create"] <= 1, said
	})
	w.simulation.jobs.set(func(j *jobs) { j.held = false })
	apitest.Eventually(t, "all are made", func(ctx context.Context) (bool, string) {
		said := list(ctx)
		return len(all) == len(names) && !slices.ContainsFunc(all, func(b v1alpha1.Backup) bool { return !b.HasSucceeded() }), said
	})
	slices.SortFunc(all, func(a, b v1alpha1.Backup) int { // several may begin in one second
		return cmp.Or(a.Status.StartTime.Compare(b.Status.StartTime.Time), a.Status.CompletionTime.Compare(b.Status.CompletionTime.Time))
	})
	for i := range all[1:] {
		if next, before := all[i+1].Status.StartTime, all[i].Status.CompletionTime; next.Before(before) {
			t.Errorf("%s began at %s, before the end of %s at %s", all[i+1].Name, next, all[i].Name, before)
		}
	}
}
