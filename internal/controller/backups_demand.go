package controller

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/schedule"
)

// restorableFrom is when the oldest good backup was complete that an archive
// continues; nil for none. When its copy ended, the moment that a restore of it
// needs at least, is not later.
func restorableFrom(own []*v1alpha1.Backup, archive *v1alpha1.ArchiveStatus) *metav1.Time {
	var oldest *v1alpha1.Backup
	for _, b := range own {
		at := b.Status.Location
		if archive.Since == nil || !b.Succeeded() || b.DeletionTimestamp != nil || at == nil || began(b).Before(archive.Since.Time) ||
			!sameObjects(at.URL, archive.URL) || at.Endpoint != archive.Endpoint {
			continue
		}
		if oldest == nil || began(b).Before(began(oldest)) {
			oldest = b
		}
	}
	if oldest == nil {
		return nil
	}
	return oldest.Status.CompletionTime.DeepCopy()
}

// demand makes the backup that is wanted now due, once, where the schedule makes
// none in this pass. All are those of the cluster's name; only its
// own do. It is kept and dropped as one by schedule.
func (r *regimen) demand(c v1alpha1.Cluster, kind string, all []*v1alpha1.Backup, wanted *engine.Demand, now time.Time) {
	if wanted == nil || r.due != nil || r.record == nil || r.removed != "" || c.Common().Suspend || !c.Common().Backup.On() {
		return
	}
	own := ownBackups(c, all)
	if slices.ContainsFunc(all, func(b *v1alpha1.Backup) bool { return b.Name == wanted.Name && !slices.Contains(own, b) }) {
		r.nameTaken(wanted.Name)
		return
	}
	if slices.ContainsFunc(own, func(b *v1alpha1.Backup) bool { return answers(b, wanted) }) {
		return
	}
	r.due = &v1alpha1.Backup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.GetNamespace(), Name: wanted.Name,
			Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelCluster: c.GetName(),
				v1alpha1.LabelClusterUID: string(c.GetUID()), v1alpha1.LabelSchedule: schedule.Name(now),
			},
		},
		Spec: v1alpha1.BackupSpec{
			ClusterRef: v1alpha1.ClusterReference{Kind: kind, Name: c.GetName()}, DeletionPolicy: v1alpha1.DeletionDelete,
		},
	}
	if wanted.Before != "" {
		r.due.Labels[v1alpha1.LabelBefore] = wanted.Before
	}
	r.done, r.taken = r.record, r.record
}

// answers says whether a backup is the one that is wanted, or does as well and is
// under way.
func answers(b *v1alpha1.Backup, wanted *engine.Demand) bool {
	return b.Name == wanted.Name ||
		!wanted.Since.IsZero() && !b.Finished() && b.DeletionTimestamp == nil && !began(b).Before(wanted.Since)
}

// nameTaken says that a backup which is wanted beside the schedule cannot be
// made, since another one has its name.
func (r *regimen) nameTaken(name string) {
	for i := range r.facts {
		if fact := &r.facts[i]; fact.Type == v1alpha1.ConditionBackedUp {
			fact.Status, fact.Reason = metav1.ConditionFalse, v1alpha1.ReasonNameConflict
			fact.Message = fmt.Sprintf("backup %s is wanted now, and there is one of that name that is not of this cluster: delete it; %s", name, fact.Message)
		}
	}
}
