package backup

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/job"
)

// observeTurn finds whether a backup waits since as many of other clusters are
// made as may be at the same time. One that an upgrade waits for does not.
func (r *Reconciler) observeTurn(ctx context.Context, s *observation) error {
	if r.Concurrent <= 0 || !s.isOpen() || s.job != nil || s.backup.Status.Location != nil || s.backup.Labels[v1alpha1.LabelBefore] != "" {
		return nil
	}
	var all v1alpha1.BackupList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list backups: %w", err)
	}
	if !hasTurn(s.backup, all.Items, r.Concurrent, s.now) {
		s.most = r.Concurrent
	}
	return nil
}

// hasTurn says whether a backup may begin beside all others, of which it changes
// nothing: those that are made count, and older ones that wait for the same.
// Whatever else a backup waits for, it keeps no other from its turn.
func hasTurn(b *v1alpha1.Backup, all []v1alpha1.Backup, most int, now time.Time) bool {
	before := 0
	for i := range all {
		other := &all[i]
		if other.UID != b.UID && (isMade(other, now) || isQueued(other) && isOlder(other, b)) {
			before++
		}
	}
	return before < most
}

// isMade says whether a backup has a Job, or is about to. A Job without a program
// is withdrawn after a while: what has said nothing for longer has none.
func isMade(b *v1alpha1.Backup, now time.Time) bool {
	if b.IsFinished() || b.DeletionTimestamp != nil || b.Status.Location == nil {
		return false
	}
	if started := b.Status.StartTime; b.Status.Run == nil && started != nil && now.Sub(started.Time) > job.IdleDeadline+job.PodDeadline {
		return false
	}
	switch conditions.GetReason(b, v1alpha1.ConditionReconciling) {
	case v1alpha1.ReasonCopying, v1alpha1.ReasonVerifying:
		return true
	}
	// Its pod waits for a node, or an image.
	return conditions.IsTrue(b, v1alpha1.ConditionStalled) && conditions.GetReason(b, v1alpha1.ConditionStalled) == v1alpha1.ReasonWaitingForSource
}

// isQueued says whether a backup waits for nothing but its turn among all.
func isQueued(b *v1alpha1.Backup) bool {
	return !b.IsFinished() && b.DeletionTimestamp == nil && conditions.GetReason(b, v1alpha1.ConditionReconciling) == v1alpha1.ReasonQueued
}

func isOlder(a, b *v1alpha1.Backup) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) < 0
}
