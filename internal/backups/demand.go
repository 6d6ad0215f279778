package backups

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/schedule"
)

// FindRestorableFrom is when the oldest good backup was complete that an archive
// continues; nil for none. When its copy ended, the moment that a restore of it
// needs at least, is not later.
func FindRestorableFrom(own []*v1alpha1.Backup, archive *v1alpha1.ArchiveStatus) *metav1.Time {
	var oldest *v1alpha1.Backup
	for _, b := range own {
		at := b.Status.Location
		if archive.Since == nil || !b.HasSucceeded() || b.DeletionTimestamp != nil || at == nil || StartTime(b).Before(archive.Since.Time) ||
			!isSameLocation(at.URL, archive.URL) || at.Endpoint != archive.Endpoint {
			continue
		}
		if oldest == nil || StartTime(b).Before(StartTime(oldest)) {
			oldest = b
		}
	}
	if oldest == nil {
		return nil
	}
	return oldest.Status.CompletionTime.DeepCopy()
}

// AddDemand makes the backup that is wanted now due, once, unless the schedule makes
// one in this pass. Of all backups of the cluster's name only its own count. The
// backup is kept and dropped like one by schedule.
func (p *Plan) AddDemand(c v1alpha1.Cluster, kind string, all []*v1alpha1.Backup, wanted *engine.Demand, now time.Time) {
	if wanted == nil || p.Due != nil || p.Record == nil || p.Removed != "" || c.Common().Suspend || !c.Common().Backup.IsEnabled() {
		return
	}
	own := FilterOwn(c, all)
	if slices.ContainsFunc(all, func(b *v1alpha1.Backup) bool { return b.Name == wanted.Name && !slices.Contains(own, b) }) {
		p.ReportNameConflict(wanted.Name)
		return
	}
	if slices.ContainsFunc(own, func(b *v1alpha1.Backup) bool { return satisfiesDemand(b, wanted) }) {
		return
	}
	p.Due = &v1alpha1.Backup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.GetNamespace(), Name: wanted.Name,
			Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelCluster: c.GetName(),
				v1alpha1.LabelClusterUID: string(c.GetUID()), v1alpha1.LabelSchedule: schedule.SlotName(now),
			},
		},
		Spec: v1alpha1.BackupSpec{
			ClusterRef: v1alpha1.ClusterReference{Kind: kind, Name: c.GetName()}, DeletionPolicy: v1alpha1.DeletionDelete,
		},
	}
	if wanted.Before != "" {
		p.Due.Labels[v1alpha1.LabelBefore] = wanted.Before
	}
	p.Done, p.Taken = p.Record, p.Record
}

// satisfiesDemand says whether a backup is the one that is wanted, or is under way
// and does as well.
func satisfiesDemand(b *v1alpha1.Backup, wanted *engine.Demand) bool {
	return b.Name == wanted.Name ||
		!wanted.Since.IsZero() && !b.IsFinished() && b.DeletionTimestamp == nil && !StartTime(b).Before(wanted.Since)
}
