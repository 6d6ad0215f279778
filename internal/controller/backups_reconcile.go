package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fluxcd/pkg/runtime/jitter"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/controller/inventory"
	"github.com/holdfast-db/holdfast/internal/controller/requeue"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// reconcileBackups makes the backup that is due, and drops those that retention no
// longer keeps. What it could not do is done in the next pass.
func (r *Reconciler[C, O]) reconcileBackups(ctx context.Context, p *pass[C]) error {
	if len(p.plan.Facts) == 0 {
		return nil // the status, which has the record, stays as it is
	}
	gvk, err := apiutil.GVKForObject(p.c, r.Client.Scheme())
	if err != nil {
		return err
	}
	all, err := inventory.ListBackups(ctx, r.Client, v1alpha1.ClusterReference{Kind: gvk.Kind, Name: p.c.GetName()}, p.c.GetNamespace())
	if err != nil {
		return err
	}
	claim := &corev1.PersistentVolumeClaim{}
	name := types.NamespacedName{Namespace: p.c.GetNamespace(), Name: p.c.GetName() + v1alpha1.SuffixBackups}
	if err := r.Client.Get(ctx, name, claim); apierrors.IsNotFound(err) {
		claim = nil
	} else if err != nil {
		return err
	}
	p.backups = backups.PlanSchedule(p.c, gvk.Kind, all, claim, r.Clock.Now())
	own := backups.FilterOwn(p.c, all)
	if a := p.plan.Report.Archive; a != nil {
		a.RestorableFrom = backups.FindRestorableFrom(own, a)
	}
	err = r.checkStore(ctx, p, gvk.Kind, all)
	p.backups.AddDemand(p.c, gvk.Kind, all, backups.FindDemand(p.c, p.plan, own, p.store.mayBeUsed(p.c)), r.Clock.Now())
	err = errors.Join(err, r.ensureBackupVolume(ctx, p, own))
	due := r.createDueBackup(ctx, p)
	p.facts = append(p.facts, p.backups.Facts...)
	if due != nil {
		return errors.Join(err, p.extractBlocked(due))
	}
	r.reportSkippedSlots(p)
	return errors.Join(err, r.deleteSurplus(ctx, p, gvk.Kind))
}

// createDueBackup makes the backup that is due. A slot is done once its backup is there,
// by whichever pass; what another client has given its name is not it.
func (r *Reconciler[C, O]) createDueBackup(ctx context.Context, p *pass[C]) error {
	due := p.backups.Due
	if due == nil {
		return nil
	}
	err := r.Client.Create(ctx, due.DeepCopy(), client.FieldOwner(v1alpha1.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		there := &v1alpha1.Backup{}
		if err := r.Client.Get(ctx, client.ObjectKeyFromObject(due), there); err != nil {
			return fmt.Errorf("check whose backup %s is: %w", due.Name, err) // the cache is behind
		}
		if there.Spec.ClusterRef != due.Spec.ClusterRef || there.Labels[v1alpha1.LabelClusterUID] != string(p.c.GetUID()) {
			if p.backups.Taken == p.backups.Record {
				p.backups.ReportNameConflict(due.Name)
			}
			p.backups.Record, p.backups.Surplus = p.backups.Taken, nil
			return nil
		}
	} else if err != nil {
		return fmt.Errorf("make backup %s: %w", due.Name, err)
	}
	logf.FromContext(ctx).Info("backup", "name", due.Name)
	p.backups.Record = p.backups.Done
	return nil
}

// reportSkippedSlots says once that slots are being skipped, until one is not.
func (r *Reconciler[C, O]) reportSkippedSlots(p *pass[C]) {
	was, is := backups.FindScheduleRecord(p.c.CommonStatus()), p.backups.Record
	if was == nil || is == nil || is.Skipped == was.Skipped || was.Message != "" {
		return
	}
	newest := is.LastSkipped[0]
	r.recordEvent(p.c, warning, v1alpha1.ReasonBackupSkipped, "Schedule", "%d slots have made no backup, the last at %s: %s",
		is.Skipped-was.Skipped, newest.Slot.UTC().Format(time.RFC3339), newest.Reason)
}

// deleteSurplus deletes what retention no longer keeps.
func (r *Reconciler[C, O]) deleteSurplus(ctx context.Context, p *pass[C], kind string) error {
	drop, err := r.filterUnread(ctx, kind, p.c.GetNamespace(), p.backups.Surplus)
	if err != nil {
		return err
	}
	for _, b := range drop {
		uid := b.UID
		if err := r.Client.Delete(ctx, b, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("drop backup %s: %w", b.Name, err)
		}
		if p.backups.Early[b.Name] {
			r.recordEvent(p.c, warning, v1alpha1.ReasonBackupRetired, "Retention", "backup %s goes before spec.backup.retention is over: the next one has no disk space beside it; to keep more, raise spec.backup.volume.size", b.Name)
			continue
		}
		r.recordEvent(p.c, normal, v1alpha1.ReasonBackupRetired, "Retention", "backup %s is kept no longer, as spec.backup says", b.Name)
	}
	return nil
}

// ensureBackupVolume makes the volume for backups once one of them is to be made. Where
// that is refused, such as by a quota, no backup is made and BackedUp says why:
// backups are on by default, so it is no reason to call the cluster
// stalled.
func (r *Reconciler[C, O]) ensureBackupVolume(ctx context.Context, p *pass[C], own []*v1alpha1.Backup) error {
	open := func(b *v1alpha1.Backup) bool { return !b.IsFinished() && b.DeletionTimestamp == nil }
	if p.plan.BackupVolume == nil || p.backups.Removed != "" || p.c.Common().Suspend || !slices.ContainsFunc(own, open) {
		return nil
	}
	_, err := r.Applier.Sync(ctx, apply.Request{
		Owner: p.c, Objects: []runtime.ApplyConfiguration{p.plan.BackupVolume}, Drift: p.c.Common().Drift,
	})
	var rest error
	for _, e := range engine.SplitErrors(err) {
		if apierrors.HasStatusCause(e, corev1.NamespaceTerminatingCause) {
			continue // the cluster is about to go with its namespace
		}
		why := engine.FindBlocked(e)
		if why == nil {
			rest = errors.Join(rest, e)
			continue
		}
		p.trace.AddBlocked(why.Reason)
		p.backups.Verdicts.Volume = backups.NotBackedUp(why.Reason, "the volume for backups cannot be made: "+why.Message+"; or name a spec.backup.destination, or set spec.backup.enabled to false")

		p.backups.Wait = findSoonest(p.backups.Wait, jitter.JitteredIntervalDuration(requeue.AfterConflict))
	}
	return rest
}

// filterUnread leaves out the backups that a restore reads: retention takes them when
// that is done.
func (r *Reconciler[C, O]) filterUnread(ctx context.Context, kind, namespace string, surplus []*v1alpha1.Backup) ([]*v1alpha1.Backup, error) {
	if len(surplus) == 0 {
		return nil, nil
	}
	read, err := inventory.ListReaders(ctx, r.Client, kind, namespace)
	if err != nil {
		return nil, err
	}
	following, err := inventory.ListFollowers(ctx, r.Client, kind, namespace)
	return slices.DeleteFunc(surplus, func(b *v1alpha1.Backup) bool {
		return read[b.Name] != "" || slices.ContainsFunc(following, func(f backups.Follower) bool { return f.ChoosesBackup(b) })
	}), err
}
