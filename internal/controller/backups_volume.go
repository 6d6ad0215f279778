package controller

import (
	"context"
	"errors"
	"slices"

	"github.com/fluxcd/pkg/runtime/jitter"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/condition"
)

// makeVolume makes the volume for backups once one of them is to be made. Where
// that is refused, such as by a quota, no backup is made and BackedUp says why:
// nobody may have asked for backups, so it is no reason to call the cluster
// stalled.
func (r *Reconciler[C, O]) makeVolume(ctx context.Context, p *pass[C], own []*v1alpha1.Backup) error {
	open := func(b *v1alpha1.Backup) bool { return !b.Finished() && b.DeletionTimestamp == nil }
	if p.plan.BackupVolume == nil || p.backups.removed != "" || p.c.Common().Suspend || !slices.ContainsFunc(own, open) {
		return nil
	}
	_, err := r.Applier.Sync(ctx, apply.Request{
		Owner: p.c, Objects: []runtime.ApplyConfiguration{p.plan.BackupVolume}, Drift: p.c.Common().Drift,
	})
	var rest error
	for _, e := range unjoin(err) {
		if apierrors.HasStatusCause(e, corev1.NamespaceTerminatingCause) {
			continue // the cluster is about to go with its namespace
		}
		why := blocked(e)
		if why == nil {
			rest = errors.Join(rest, e)
			continue
		}
		p.backups.unusable(&condition.Fact{
			Type: v1alpha1.ConditionBackedUp, Status: metav1.ConditionFalse, Reason: why.Reason,
			Message: "the volume for backups cannot be made: " + why.Message + "; or name a backup.destination, or set spec.backup.enabled to false",
		})
		p.backups.wait = soonest(p.backups.wait, jitter.JitteredIntervalDuration(conflictRecheck))
	}
	return rest
}
