package controller

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/controller/eventseries"
	"github.com/holdfast-db/holdfast/internal/controller/requeue"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/job"
	"github.com/holdfast-db/holdfast/internal/schedule"
)

// drillObservation is what stands around the restore drills of a cluster.
type drillObservation struct {
	cluster v1alpha1.Cluster
	kind    string
	how     engine.RestorePlan
	// own backups of the cluster.
	own []*v1alpha1.Backup
	// missing is the Secret with the credentials of the store that the newest good
	// backup is in, where it is not there.
	missing string
	// jobs of drills, the oldest first, their pods, and the volumes that they
	// restore to.
	jobs       []*batchv1.Job
	pods       []corev1.Pod
	claims     []*corev1.PersistentVolumeClaim
	agentImage string
	now        time.Time
}

// drillPlan is what to do about restore drills in a pass.
type drillPlan struct {
	// known is false where nothing could be read: what was said before stands.
	known  bool
	status *v1alpha1.DrillStatus
	// record of the schedule; nil without one.
	record *v1alpha1.ScheduleStatus
	// create are objects to make, each only where nothing has its name.
	create []runtime.ApplyConfiguration
	// remove are objects that are of no more use.
	remove []client.Object
	facts  []condition.Fact
	// failing says that the last drill has failed.
	failing *condition.Fact
	// wait until something is to be done; 0 for nothing.
	wait time.Duration
}

// planDrills is pure. What is to run is recorded before its Job is made, and
// how it ended before the Job goes: an operator that dies anywhere goes on from
// there.
func planDrills(s drillObservation) drillPlan {
	st := s.cluster.CommonStatus()
	p := drillPlan{known: true, record: backups.FindRecord(st, backups.DrillSchedule), status: st.Drill.DeepCopy()}
	declared := s.cluster.Common().Backup
	if !declared.RunsDrills() {
		p.record = nil
		s.removeDrills(&p)
		return p
	}
	if p.status == nil {
		p.status = &v1alpha1.DrillStatus{}
	}
	if p.status.Running != nil {
		s.continueDrill(&p)
	}
	s.planSlot(&p)
	s.removeLeftovers(&p)
	p.judgeLastDrill()
	return p
}

// removeDrills removes all of it. There is a status until a pass has seen none of it
// left: without one it is never checked again.
func (s drillObservation) removeDrills(p *drillPlan) {
	p.status = nil
	if len(s.jobs)+len(s.claims) > 0 {
		p.status, p.wait = &v1alpha1.DrillStatus{}, job.RecheckInterval
	}
	s.removeLeftovers(p)
}

// planSlot begins the drill that is due, or says why none is.
func (s drillObservation) planSlot(p *drillPlan) {
	declared := s.cluster.Common().Backup
	parsed, err := schedule.Parse(declared.Verify.Schedule, declared.TimeZone)
	if err != nil {
		if strings.HasPrefix(err.Error(), "schedule") { // the time zone is that of backups, which say so
			p.facts = append(p.facts, condition.Stalled(v1alpha1.ReasonInvalidSchedule, fmt.Sprintf("spec.backup.verify.%v; no backup is restored on trial", err)))
		}
		return
	}
	record := v1alpha1.ScheduleStatus{Name: backups.DrillSchedule}
	if p.record != nil {
		record = *p.record
	}
	record, slot := parsed.AdvanceStatus(record, s.now)
	if !slot.IsZero() {
		record = parsed.Done(record, slot, s.recordDrill(p, slot))
	}
	p.record, p.status.NextTime = &record, record.NextSlot
	p.wait = findSoonest(p.wait, max(record.NextSlot.Sub(s.now), time.Millisecond))
}

// recordDrill records the drill of a slot, or says why it is skipped.
func (s drillObservation) recordDrill(p *drillPlan, slot time.Time) (passedOver string) {
	newest := backups.FindNewestGood(s.own)
	switch {
	case s.cluster.Common().Suspend:
		return "skipped: spec.suspend is true"
	case p.status.Running != nil:
		return "skipped: drill " + p.status.Running.Job + " is still under way"
	case newest == nil:
		return "skipped: there is no good backup yet"
	case s.missing != "":
		return fmt.Sprintf("skipped: Secret %s, with the credentials of the store that backup %s is in, is not there", s.missing, newest.Name)
	}
	p.status.Running = &v1alpha1.DrillRun{
		Job: s.cluster.GetName() + v1alpha1.InfixDrill + schedule.SlotName(slot), Backup: newest.Name, StartTime: metav1.NewTime(s.now.Truncate(time.Second)),
	}
	p.wait = requeue.AfterStep // its Job is made once that is recorded
	return ""
}

// continueDrill goes on with the drill that is recorded in status.
func (s drillObservation) continueDrill(p *drillPlan) {
	run := p.status.Running
	j := s.findJob(run.Job)
	p.wait = job.RecheckInterval
	switch {
	case j == nil:
		s.createDrill(p)
	case job.HasCondition(j, batchv1.JobComplete), job.HasCondition(j, batchv1.JobFailed):
		s.recordOutcome(p, j)
	case j.DeletionTimestamp != nil: // once it is gone, it is made again
	case job.IdleTime(j, s.pods, s.now) > job.IdleDeadline:
		s.abandonDrill(p, j)
	case !s.hasVolume():
		p.remove = append(p.remove, j) // its next pod would mount whatever has the name by then
	}
}

// createDrill makes what the drill needs: its volume, and in a pass that sees that one,
// and that it is ours, its Job. A backup that is gone has nothing to restore.
func (s drillObservation) createDrill(p *drillPlan) {
	run := p.status.Running
	i := slices.IndexFunc(s.own, func(b *v1alpha1.Backup) bool { return b.Name == run.Backup && b.HasSucceeded() })
	held, limit := s.cluster.Common().Suspend || s.how.Claim == nil, drillSeconds*time.Second // the engine says what stands against a volume
	if held {
		limit = job.IdleDeadline
	}
	switch {
	case i < 0:
		p.reportUntried("backup %s was gone before it could be restored", run.Backup)
	case s.now.Sub(run.StartTime.Time) > limit:
		p.reportUntried("Job %s could not be made within %s", run.Job, limit)
	case held:
	case s.hasVolume():
		p.create = append(p.create, drillJob(s, s.own[i], run.Job))
	case s.findClaim(run.Job) == nil:
		p.create = append(p.create, drillClaim(s, s.own[i], run.Job))
	}
}

// hasVolume says whether the recorded drill has its own.
func (s drillObservation) hasVolume() bool {
	claim := s.findClaim(s.cluster.CommonStatus().Drill.Running.Job)
	return claim != nil && claim.DeletionTimestamp == nil
}

// abandonDrill ends a Job whose program does not run. What an attempt before it found
// counts.
func (s drillObservation) abandonDrill(p *drillPlan, j *batchv1.Job) {
	fault := fmt.Sprintf("no program of Job %s has run for %s%s", j.Name, job.IdleDeadline, job.DescribeCause(job.DescribeFault(s.pods, j)))
	if report, said := s.readReport(j); said && report.Error != "" {
		report.Error += "; then " + fault
		p.recordEnd(s.now, report)
		return
	}
	p.reportUntried("%s", fault)
}

// recordOutcome records how a Job ended, in its pod's own words.
func (s drillObservation) recordOutcome(p *drillPlan, j *batchv1.Job) {
	report, said := s.readReport(j)
	if !said && s.now.Sub(job.EndTime(j)) < job.PodDeadline {
		return // what the pod says is on its way
	}
	if job.HasCondition(j, batchv1.JobFailed) {
		report.Error = cmp.Or(report.Error, job.DescribeFault(s.pods, j), "the Job has failed, and its pods have said nothing")
		if pod := job.FindPodOutOfMemory(j, s.pods); pod != "" {
			report.Error = fmt.Sprintf("spec.backup.verify.resources: pod %s needed more memory than it may have (OOMKilled): raise the limit", pod)
		}
	} else {
		report.Error = ""
	}
	p.recordEnd(job.EndTime(j), report)
}

// readReport reads the report of the newest pod of a Job that has ended and said something.
func (s drillObservation) readReport(j *batchv1.Job) (report agentapi.DrillReport, said bool) {
	newest := time.Time{}
	for _, t := range job.FindTerminations(j, s.pods) {
		if said && t.FinishedAt.Time.Before(newest) {
			continue
		}
		var words agentapi.DrillReport
		if json.Unmarshal([]byte(t.Message), &words) == nil {
			report, said, newest = words, true, t.FinishedAt.Time
		}
	}
	return report, said
}

// maxDrillMessage is how many bytes of a drill's error are recorded: its log
// goes with its Job.
const maxDrillMessage = 1024

// reportUntried says that nothing was found out of the backup: its slot was passed
// over, and what the last drill has shown stands.
func (p *drillPlan) reportUntried(format string, args ...any) {
	reason := eventseries.TruncateText(fmt.Sprintf(format, args...), maxDrillMessage)
	p.status.Running, p.wait = nil, requeue.AfterStep
	if p.record != nil && p.record.LastSlot != nil {
		p.record = new(schedule.MarkUndone(*p.record, "could not be tried: "+reason))
	}
}

// recordEnd records how the drill has ended.
func (p *drillPlan) recordEnd(at time.Time, report agentapi.DrillReport) {
	run := p.status.Running
	began := run.StartTime
	p.status.Running, p.wait = nil, requeue.AfterStep
	p.status.LastTime, p.status.Backup, p.status.Job = &began, run.Backup, run.Job
	p.status.Duration = max(at.Sub(began.Time), 0).Round(time.Second).String()
	p.status.Checked, p.status.Message = report.Checked, eventseries.TruncateText(report.Error, maxDrillMessage)
	p.status.Result = v1alpha1.DrillFailed
	if report.Error == "" {
		p.status.Result, p.status.LastPassedTime, p.status.LastPassedBackup = v1alpha1.DrillPassed, &began, run.Backup
	}
}

// removeLeftovers removes what has ended, and what is not wanted any more: a volume stays as
// long as there is a pod that names it, if only for its log.
func (s drillObservation) removeLeftovers(p *drillPlan) {
	stays := map[string]bool{}
	if p.status != nil && p.status.Running != nil {
		stays[p.status.Running.Job] = true
	}
	if d := s.cluster.CommonStatus().Drill; d != nil && d.Running != nil && s.cluster.Common().Backup.RunsDrills() {
		stays[d.Running.Job] = true // how it ended is written first
	}
	for _, j := range s.jobs {
		if j.DeletionTimestamp == nil && !stays[j.Name] {
			p.remove = append(p.remove, j)
		}
	}
	for _, claim := range s.claims {
		if claim.DeletionTimestamp == nil && !stays[claim.Name] {
			p.remove = append(p.remove, claim)
		}
	}
}

// judgeLastDrill says whether the last drill has failed.
func (p *drillPlan) judgeLastDrill() {
	if p.status.Result != v1alpha1.DrillFailed {
		return
	}
	p.failing = &condition.Fact{
		Type: v1alpha1.ConditionBackedUp, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDrillFailed,
		Message: fmt.Sprintf("the restore drill of backup %s failed: %s; make another backup, and have it restored", p.status.Backup, p.status.Message),
	}
}

// findJob finds the Job of a name; nil for none.
func (s drillObservation) findJob(name string) *batchv1.Job {
	for _, j := range s.jobs {
		if j.Name == name {
			return j
		}
	}
	return nil
}

// findClaim finds the volume of a name; nil for none.
func (s drillObservation) findClaim(name string) *corev1.PersistentVolumeClaim {
	for _, claim := range s.claims {
		if claim.Name == name {
			return claim
		}
	}
	return nil
}
