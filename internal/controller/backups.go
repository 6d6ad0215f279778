package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/schedule"
)

// backupSchedule is the name of the schedule of backups, as status has it.
const backupSchedule = "Backup"

// regimen is what a cluster's backups should be now: which one to make, which
// to drop, and what to say.
type regimen struct {
	// known is false where nothing could be read: what was said before stands.
	known bool
	// record of the schedule; nil without one.
	record *v1alpha1.ScheduleStatus
	// done is the record once the backup that is due was made, and taken where
	// its name is somebody else's.
	done, taken *v1alpha1.ScheduleStatus
	// due is the backup to make; nil for none.
	due *v1alpha1.Backup
	// surplus are those that retention no longer keeps.
	surplus []*v1alpha1.Backup
	// early are those of them, by name, that go only since the volume is short of
	// room.
	early map[string]bool
	last  *v1alpha1.LastBackup
	// place is where backups go, as the status has it from now on.
	place *v1alpha1.BackupPlace
	// removed is the URL of the destination that the spec names no more; empty
	// where backups are made. No backup is made, nor dropped, while it is set.
	removed string
	facts   []condition.Fact
	// wait until the next slot; 0 for none.
	wait time.Duration
}

// planBackups is pure. All are the backups of the cluster's name, the oldest
// first; those of another cluster that had it do not count. The claim is that of
// the volume for backups; nil for none.
func planBackups(c v1alpha1.Cluster, kind string, all []*v1alpha1.Backup, claim *corev1.PersistentVolumeClaim, now time.Time) regimen {
	own := ownBackups(c, all)
	r := regimen{known: true, last: lastGood(own), place: backupPlace(c, own), removed: removedDestination(c, own)}
	declared := c.Common().Backup
	if !declared.On() {
		return r
	}
	was := recordOf(c.CommonStatus())
	parsed, err := parseSchedule(c)
	if err != nil {
		r.record = was
		r.facts = append(r.facts, stalled(v1alpha1.ReasonInvalidSchedule, fmt.Sprintf("spec.backup.%v; no backup is made by schedule", err)))
		return r
	}
	record := v1alpha1.ScheduleStatus{Name: backupSchedule}
	if was != nil {
		record = *was
	}
	record, slot := parsed.Turn(record, now)
	if !slot.IsZero() {
		record = r.turn(c, kind, own, parsed, record, slot)
	}
	r.record = &record
	if !c.Common().Suspend && r.removed == "" {
		r.surplus = surplus(own, declared, proven(c))
	}
	space := spaceOf(declared, all, own, claim)
	if newest := newestGood(own); r.due != nil && newest != nil {
		// What will be kept no longer is counted from the slot that follows the
		// newest good one, and not from a clock that may be ahead.
		if follows := parsed.Next(newest.CreationTimestamp.Time); follows.Before(slot) {
			slot = follows
		}
		drop, early := space.room(own, c, slot)
		r.surplus, r.early = append(r.surplus, drop...), early
	}
	next := record.NextSlot.Time
	if r.done != nil {
		next = r.done.NextSlot.Time
	}
	r.wait = max(next.Sub(now), time.Millisecond)
	if r.removed != "" {
		next = time.Time{} // none is due
	}
	fact := backedUp(own, overdue(own, parsed, now), record.LastSlot == nil, next)
	if fact.Reason == v1alpha1.ReasonBackupFailed {
		fact.Message += space.hint()
	}
	r.facts = append(r.facts, fact)
	r.sayRemoved()
	return r
}

// sayRemoved says that no backup is made since the spec names no destination any
// more: the change that took it away cannot be followed before a person says
// where backups are to go.
func (r *regimen) sayRemoved() {
	if r.removed == "" {
		return
	}
	message := removedMessage(r.removed)
	r.facts = append(r.facts, stalled(v1alpha1.ReasonDestinationRemoved, message))
	r.unusable(&condition.Fact{Type: v1alpha1.ConditionBackedUp, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDestinationRemoved, Message: message})
}

// parseSchedule reads the schedule of a cluster's backups, the one by default
// where it declares none.
func parseSchedule(c v1alpha1.Cluster) (schedule.Schedule, error) {
	declared := c.Common().Backup
	return schedule.Parse(cmp.Or(declared.Schedule, schedule.Nightly(c.GetNamespace(), c.GetName())), declared.TimeZone)
}

// recordOf the schedule of backups, as the status has it; nil for none.
func recordOf(st *v1alpha1.CommonStatus) *v1alpha1.ScheduleStatus {
	return recordNamed(st, backupSchedule)
}

func recordNamed(st *v1alpha1.CommonStatus, name string) *v1alpha1.ScheduleStatus {
	for i := range st.Schedules {
		if st.Schedules[i].Name == name {
			return st.Schedules[i].DeepCopy()
		}
	}
	return nil
}

// overdue says whether two slots have come since the newest good backup was
// begun: whatever became of their backups, none of them is good.
func overdue(own []*v1alpha1.Backup, s schedule.Schedule, now time.Time) bool {
	last := newestGood(own)
	return last != nil && began(last).Before(lastButOne(s, now))
}

// lastButOne is the slot before the newest one.
func lastButOne(s schedule.Schedule, now time.Time) time.Time {
	return s.Last(s.Last(now).Add(-time.Second))
}

// turn handles a slot: a backup is made, or the slot passed over, and why.
func (r *regimen) turn(c v1alpha1.Cluster, kind string, all []*v1alpha1.Backup, s schedule.Schedule, record v1alpha1.ScheduleStatus, slot time.Time) v1alpha1.ScheduleStatus {
	if c.Common().Suspend {
		return s.Done(record, slot, "passed over: spec.suspend is true")
	}
	if r.removed != "" {
		return s.Done(record, slot, "skipped: spec.backup.destination was removed")
	}
	name := c.GetName() + "-" + schedule.Name(slot)
	for _, b := range all {
		if bySchedule(b) && !b.Finished() && b.DeletionTimestamp == nil && b.Name != name {
			return s.Done(record, slot, "passed over: backup "+b.Name+" is still under way")
		}
	}
	r.due = &v1alpha1.Backup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.GetNamespace(), Name: name,
			Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelCluster: c.GetName(),
				v1alpha1.LabelClusterUID: string(c.GetUID()), v1alpha1.LabelSchedule: schedule.Name(slot),
			},
		},
		Spec: v1alpha1.BackupSpec{
			ClusterRef: v1alpha1.ClusterReference{Kind: kind, Name: c.GetName()}, DeletionPolicy: v1alpha1.DeletionDelete,
		},
	}
	done := s.Done(record, slot, "")
	taken := s.Done(record, slot, "passed over: there is a Backup "+name+" that the schedule has not made")
	r.done, r.taken = &done, &taken
	return record
}

// backedUp says whether the newest backup by schedule is good, and not too old.
// Of a cluster that is new to its schedule it is not known before the first
// backup has ended.
func backedUp(own []*v1alpha1.Backup, overdue, isNew bool, next time.Time) condition.Fact {
	var newest *v1alpha1.Backup
	if ended := endedRuns(own); len(ended) > 0 {
		newest = ended[0]
	}
	fact := condition.Fact{Type: v1alpha1.ConditionBackedUp, Status: metav1.ConditionFalse}
	last := lastGood(own)
	switch {
	case newest != nil && !newest.Succeeded() && last != nil:
		fact.Reason = v1alpha1.ReasonBackupFailed
		fact.Message = fmt.Sprintf("backup %s failed: %s; the last good one is %s", newest.Name, newest.Status.Error, last.Name)
	case newest != nil && !newest.Succeeded():
		fact.Reason = v1alpha1.ReasonBackupFailed
		fact.Message = fmt.Sprintf("backup %s failed: %s; there is no good one", newest.Name, newest.Status.Error)
	case newest == nil && isNew:
		fact.Status, fact.Reason = metav1.ConditionUnknown, v1alpha1.ReasonNoBackup
		fact.Message = "the first backup is made as soon as the cluster serves, and has not ended yet"
	case newest == nil:
		fact.Reason, fact.Message = v1alpha1.ReasonNoBackup, "the schedule has made no backup yet"
	case overdue:
		fact.Reason = v1alpha1.ReasonBackupOverdue
		fact.Message = fmt.Sprintf("the last good backup is %s, and none of the last two slots has made another: status.schedules says what was passed over", last.Name)
	default:
		fact.Status, fact.Reason = metav1.ConditionTrue, v1alpha1.ReasonBackedUp
		fact.Message = fmt.Sprintf("backup %s is complete and verified", newest.Name)
	}
	sayWhatHolds(&fact, own)
	if !next.IsZero() {
		fact.Message += "; the next one is due at " + next.UTC().Format(time.RFC3339)
	}
	return fact
}

// sayWhatHolds adds why a backup that has not ended does not get on. Of a cluster
// without any other, that it cannot go on is a failure.
func sayWhatHolds(fact *condition.Fact, own []*v1alpha1.Backup) {
	for _, b := range own {
		if b.Finished() || b.DeletionTimestamp != nil {
			continue
		}
		if run := b.Status.Run; run != nil && run.Error != "" {
			fact.Message += fmt.Sprintf("; backup %s is trying again: %s", b.Name, run.Error)
			return
		}
		if conditions.IsTrue(b, v1alpha1.ConditionStalled) {
			fact.Message += fmt.Sprintf("; backup %s cannot go on: %s", b.Name, conditions.GetMessage(b, v1alpha1.ConditionStalled))
			if fact.Status == metav1.ConditionUnknown {
				fact.Status = metav1.ConditionFalse
			}
			return
		}
	}
}

// keepBackups makes the backup that is due, and drops those that retention no
// longer keeps. What it could not do is done in the next pass.
func (r *Reconciler[C, O]) keepBackups(ctx context.Context, p *pass[C]) error {
	if len(p.plan.Facts) == 0 {
		return nil // the status, which has the record, stays as it is
	}
	gvk, err := apiutil.GVKForObject(p.c, r.Client.Scheme())
	if err != nil {
		return err
	}
	all, err := backupsOf(ctx, r.Client, v1alpha1.ClusterReference{Kind: gvk.Kind, Name: p.c.GetName()}, p.c.GetNamespace())
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
	p.backups = planBackups(p.c, gvk.Kind, all, claim, r.Clock.Now())
	own := ownBackups(p.c, all)
	if a := p.plan.Report.Archive; a != nil {
		a.RestorableFrom = restorableFrom(own, a)
	}
	err = r.checkStore(ctx, p, gvk.Kind, all)
	p.backups.demand(p.c, gvk.Kind, all, wantedBackup(p.c, p.plan, own, p.store), r.Clock.Now())
	err = errors.Join(err, r.makeVolume(ctx, p, own))
	due := r.makeDue(ctx, p)
	p.facts = append(p.facts, p.backups.facts...)
	if due != nil {
		return errors.Join(err, p.block(due))
	}
	r.tellPassedOver(p)
	return errors.Join(err, r.dropSurplus(ctx, p, gvk.Kind))
}

// makeDue makes the backup that is due. A slot is done once its backup is there,
// by whichever pass; what somebody else has given its name is not it.
func (r *Reconciler[C, O]) makeDue(ctx context.Context, p *pass[C]) error {
	due := p.backups.due
	if due == nil {
		return nil
	}
	err := r.Client.Create(ctx, due.DeepCopy(), client.FieldOwner(v1alpha1.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		there := &v1alpha1.Backup{}
		if err := r.Client.Get(ctx, client.ObjectKeyFromObject(due), there); err != nil {
			return fmt.Errorf("look whose backup %s is: %w", due.Name, err) // the cache is behind
		}
		if there.Spec.ClusterRef != due.Spec.ClusterRef || there.Labels[v1alpha1.LabelClusterUID] != string(p.c.GetUID()) {
			if p.backups.taken == p.backups.record {
				p.backups.nameTaken(due.Name)
			}
			p.backups.record, p.backups.surplus = p.backups.taken, nil
			return nil
		}
	} else if err != nil {
		return fmt.Errorf("make backup %s: %w", due.Name, err)
	}
	logf.FromContext(ctx).Info("backup", "name", due.Name)
	p.backups.record = p.backups.done
	return nil
}

// tellPassedOver says once that slots are being passed over, until one is not.
func (r *Reconciler[C, O]) tellPassedOver(p *pass[C]) {
	was, is := recordOf(p.c.CommonStatus()), p.backups.record
	if was == nil || is == nil || is.PassedOver == was.PassedOver || was.Message != "" {
		return
	}
	newest := is.LastPassedOver[0]
	r.event(p.c, warning, v1alpha1.ReasonBackupPassedOver, "Schedule", "%d slots have made no backup, the last at %s: %s",
		is.PassedOver-was.PassedOver, newest.Slot.UTC().Format(time.RFC3339), newest.Reason)
}

// dropSurplus deletes what retention no longer keeps.
func (r *Reconciler[C, O]) dropSurplus(ctx context.Context, p *pass[C], kind string) error {
	drop, err := r.unread(ctx, kind, p.c.GetNamespace(), p.backups.surplus)
	if err != nil {
		return err
	}
	for _, b := range drop {
		uid := b.UID
		if err := r.Client.Delete(ctx, b, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("drop backup %s: %w", b.Name, err)
		}
		if p.backups.early[b.Name] {
			r.event(p.c, warning, v1alpha1.ReasonBackupRetired, "Retention", "backup %s goes before spec.backup.retention is over: the next one has no room beside it; to keep more, raise spec.backup.volume.size", b.Name)
			continue
		}
		r.event(p.c, normal, v1alpha1.ReasonBackupRetired, "Retention", "backup %s is kept no longer, as spec.backup says", b.Name)
	}
	return nil
}
