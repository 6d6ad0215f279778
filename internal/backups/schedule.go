// Package backups is pure: the schedule of a cluster's backups, their retention, the
// disk space that they take, and queries over a list of Backups. Time is an
// argument, and nothing here reads or writes an object.
package backups

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/schedule"
)

// backupSchedule is the name of the schedule of backups, as status has it.
const backupSchedule = "Backup"

// DrillSchedule is the name of the schedule of restore drills, as status has it.
const DrillSchedule = "Drill"

// Plan is what a cluster's backups should be now: which one to make, which to drop,
// and what to report.
type Plan struct {
	// Known is false where nothing could be read: what was said before stands.
	Known bool
	// Record of the schedule; nil without one.
	Record *v1alpha1.ScheduleStatus
	// Done is the record once the backup that is due was made, and taken where
	// its name is another client's.
	Done, Taken *v1alpha1.ScheduleStatus
	// Due is the backup to make; nil for none.
	Due *v1alpha1.Backup
	// Surplus are those that retention no longer keeps.
	Surplus []*v1alpha1.Backup
	// Early are those of them, by name, that go only since the volume is short of
	// disk space.
	Early map[string]bool
	Last  *v1alpha1.LastBackup
	// Place is where backups go, as the status has it from now on.
	Place *v1alpha1.BackupPlace
	// Removed is the URL of the destination that the spec names no more; empty
	// where backups are made. No backup is made, nor dropped, while it is set.
	Removed string
	Facts   []condition.Fact
	// Verdicts are what there is to say of BackedUp.
	Verdicts Verdicts
	// Wait until the next slot; 0 for none.
	Wait time.Duration
}

// PlanSchedule is pure. All are the backups of the cluster's name, the oldest
// first; those of another cluster that had it do not count. The claim is that of
// the volume for backups; nil for none.
func PlanSchedule(c v1alpha1.Cluster, kind string, all []*v1alpha1.Backup, claim *corev1.PersistentVolumeClaim, now time.Time) Plan {
	own := FilterOwn(c, all)
	r := Plan{Known: true, Last: describeNewestGood(own), Place: planPlace(c, own), Removed: FindRemovedDestination(c, own)}
	declared := c.Common().Backup
	if !declared.IsEnabled() {
		return r
	}
	was := FindScheduleRecord(c.CommonStatus())
	parsed, err := ParseSchedule(c)
	if err != nil {
		r.Record = was
		r.Facts = append(r.Facts, condition.Stalled(v1alpha1.ReasonInvalidSchedule, fmt.Sprintf("spec.backup.%v; no backup is made by schedule", err)))
		return r
	}
	record := v1alpha1.ScheduleStatus{Name: backupSchedule}
	if was != nil {
		record = *was
	}
	record, slot := parsed.AdvanceStatus(record, now)
	if !slot.IsZero() {
		record = r.planSlot(c, kind, own, parsed, record, slot)
	}
	r.Record = &record
	if !c.Common().Suspend && r.Removed == "" {
		r.Surplus = listSurplus(own, declared, findProven(c))
	}
	space := measureDiskSpace(declared, all, own, claim)
	if newest := FindNewestGood(own); r.Due != nil && newest != nil {
		// What will be kept no longer is counted from the slot that follows the
		// newest good one, and not from a clock that may be ahead.
		if follows := parsed.NextSlot(newest.CreationTimestamp.Time); follows.Before(slot) {
			slot = follows
		}
		drop, early := space.planEarlyRemoval(own, c, slot)
		r.Surplus, r.Early = append(r.Surplus, drop...), early
	}
	next := record.NextSlot.Time
	if r.Done != nil {
		next = r.Done.NextSlot.Time
	}
	r.Wait = max(next.Sub(now), time.Millisecond)
	if r.Removed != "" {
		next = time.Time{} // none is due
		message := DescribeRemovedDestination(r.Removed)
		r.Facts = append(r.Facts, condition.Stalled(v1alpha1.ReasonDestinationRemoved, message))
		r.Verdicts.destination = NotBackedUp(v1alpha1.ReasonDestinationRemoved, message)
	}
	r.Verdicts.Runs = judgeRuns(own, IsOverdue(own, parsed, now), record.LastSlot == nil, next, space.describeShortage())
	return r
}

// ParseSchedule reads the schedule of a cluster's backups, the one by default
// where it declares none.
func ParseSchedule(c v1alpha1.Cluster) (schedule.Schedule, error) {
	declared := c.Common().Backup
	return schedule.Parse(cmp.Or(declared.Schedule, schedule.NightlyLine(c.GetNamespace(), c.GetName())), declared.TimeZone)
}

// FindScheduleRecord finds the record of the schedule of backups in the status; nil
// for none.
func FindScheduleRecord(st *v1alpha1.CommonStatus) *v1alpha1.ScheduleStatus {
	return FindRecord(st, backupSchedule)
}

// FindRecord finds the record of a schedule in the status; nil for none.
func FindRecord(st *v1alpha1.CommonStatus, name string) *v1alpha1.ScheduleStatus {
	for i := range st.Schedules {
		if st.Schedules[i].Name == name {
			return st.Schedules[i].DeepCopy()
		}
	}
	return nil
}

// IsOverdue says whether two slots have come since the newest good backup was
// begun: whatever became of their backups, none of them is good.
func IsOverdue(own []*v1alpha1.Backup, s schedule.Schedule, now time.Time) bool {
	last := FindNewestGood(own)
	return last != nil && StartTime(last).Before(FindPreviousSlot(s, now))
}

// FindPreviousSlot is the slot before the newest one.
func FindPreviousSlot(s schedule.Schedule, now time.Time) time.Time {
	return s.LastSlot(s.LastSlot(now).Add(-time.Second))
}

// planSlot handles a slot: a backup is made, or the slot is skipped, and why.
func (p *Plan) planSlot(c v1alpha1.Cluster, kind string, all []*v1alpha1.Backup, s schedule.Schedule, record v1alpha1.ScheduleStatus, slot time.Time) v1alpha1.ScheduleStatus {
	if c.Common().Suspend {
		return s.Done(record, slot, "skipped: spec.suspend is true")
	}
	if p.Removed != "" {
		return s.Done(record, slot, "skipped: spec.backup.destination was removed")
	}
	if filling := c.CommonStatus().Import; filling != nil && !filling.Done() {
		return s.Done(record, slot, "skipped: the import is under way")
	}
	name := c.GetName() + "-" + schedule.SlotName(slot)
	for _, b := range all {
		if isScheduled(b) && !b.IsFinished() && b.DeletionTimestamp == nil && b.Name != name {
			return s.Done(record, slot, "skipped: backup "+b.Name+" is still under way")
		}
	}
	p.Due = &v1alpha1.Backup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.GetNamespace(), Name: name,
			Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelCluster: c.GetName(),
				v1alpha1.LabelClusterUID: string(c.GetUID()), v1alpha1.LabelSchedule: schedule.SlotName(slot),
			},
		},
		Spec: v1alpha1.BackupSpec{
			ClusterRef: v1alpha1.ClusterReference{Kind: kind, Name: c.GetName()}, DeletionPolicy: v1alpha1.DeletionDelete,
		},
	}
	done := s.Done(record, slot, "")
	taken := s.Done(record, slot, "skipped: there is a Backup "+name+" that the schedule has not made")
	p.Done, p.Taken = &done, &taken
	return record
}
