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
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/memberapi"
	"github.com/holdfast-db/holdfast/internal/schedule"
)

// drillSchedule is the name of the schedule of restore drills, as status has it.
const drillSchedule = "Drill"

// drillSeen is what stands around the restore drills of a cluster.
type drillSeen struct {
	cluster v1alpha1.Cluster
	kind    string
	how     engine.Restoring
	// own backups of the cluster.
	own []*v1alpha1.Backup
	// missing is the Secret with the keys of the store that the newest good
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

// planDrills is pure. What is to run is on record before its Job is made, and
// how it ended before the Job goes: an operator that dies anywhere goes on from
// there.
func planDrills(s drillSeen) drillPlan {
	st := s.cluster.CommonStatus()
	p := drillPlan{known: true, record: recordNamed(st, drillSchedule), status: st.Drill.DeepCopy()}
	declared := s.cluster.Common().Backup
	if !declared.Drills() {
		p.record = nil
		s.turnOff(&p)
		return p
	}
	if p.status == nil {
		p.status = &v1alpha1.DrillStatus{}
	}
	if p.status.Running != nil {
		s.goOn(&p)
	}
	s.slot(&p)
	s.tidy(&p)
	p.judge()
	return p
}

// turnOff removes all of it. There is a status until a pass has seen none of it
// left: without one nobody looks again.
func (s drillSeen) turnOff(p *drillPlan) {
	p.status = nil
	if len(s.jobs)+len(s.claims) > 0 {
		p.status, p.wait = &v1alpha1.DrillStatus{}, backupRecheck
	}
	s.tidy(p)
}

// slot begins the drill that is due, or says why none is.
func (s drillSeen) slot(p *drillPlan) {
	declared := s.cluster.Common().Backup
	parsed, err := schedule.Parse(declared.Verify.Schedule, declared.TimeZone)
	if err != nil {
		if strings.HasPrefix(err.Error(), "schedule") { // the time zone is that of backups, which say so
			p.facts = append(p.facts, stalled(v1alpha1.ReasonInvalidSchedule, fmt.Sprintf("spec.backup.verify.%v; no backup is restored on trial", err)))
		}
		return
	}
	record := v1alpha1.ScheduleStatus{Name: drillSchedule}
	if p.record != nil {
		record = *p.record
	}
	record, slot := parsed.Turn(record, s.now)
	if !slot.IsZero() {
		record = parsed.Done(record, slot, s.begin(p, slot))
	}
	p.record, p.status.NextTime = &record, record.NextSlot
	p.wait = soonest(p.wait, max(record.NextSlot.Sub(s.now), time.Millisecond))
}

// begin puts the drill of a slot on record, or says why it is passed over.
func (s drillSeen) begin(p *drillPlan, slot time.Time) (passedOver string) {
	newest := newestGood(s.own)
	switch {
	case s.cluster.Common().Suspend:
		return "passed over: spec.suspend is true"
	case p.status.Running != nil:
		return "passed over: drill " + p.status.Running.Job + " is still under way"
	case newest == nil:
		return "passed over: there is no good backup yet"
	case s.missing != "":
		return fmt.Sprintf("passed over: Secret %s, with the keys of the store that backup %s is in, is not there", s.missing, newest.Name)
	}
	p.status.Running = &v1alpha1.DrillRun{
		Job: s.cluster.GetName() + v1alpha1.InfixDrill + schedule.Name(slot), Backup: newest.Name, StartTime: metav1.NewTime(s.now.Truncate(time.Second)),
	}
	p.wait = stepPause // its Job is made once that is on record
	return ""
}

// goOn with the drill that is on record.
func (s drillSeen) goOn(p *drillPlan) {
	run := p.status.Running
	job := s.job(run.Job)
	p.wait = backupRecheck
	switch {
	case job == nil:
		s.start(p)
	case jobIs(job, batchv1.JobComplete), jobIs(job, batchv1.JobFailed):
		s.take(p, job)
	case job.DeletionTimestamp != nil: // once it is gone, it is made again
	case (backupSeen{job: job, pods: s.pods, now: s.now}).idle() > idleDeadline:
		s.giveUp(p, job)
	case !s.hasVolume():
		p.remove = append(p.remove, job) // its next pod would mount whatever has the name by then
	}
}

// start makes what the drill needs: its volume, and in a pass that sees that one,
// and that it is ours, its Job. A backup that is gone has nothing to restore.
func (s drillSeen) start(p *drillPlan) {
	run := p.status.Running
	i := slices.IndexFunc(s.own, func(b *v1alpha1.Backup) bool { return b.Name == run.Backup && b.Succeeded() })
	held, limit := s.cluster.Common().Suspend || s.how.Claim == nil, drillSeconds*time.Second // the engine says what stands against a volume
	if held {
		limit = idleDeadline
	}
	switch {
	case i < 0:
		p.untried("backup %s was gone before it could be restored", run.Backup)
	case s.now.Sub(run.StartTime.Time) > limit:
		p.untried("Job %s could not be made within %s", run.Job, limit)
	case held:
	case s.hasVolume():
		p.create = append(p.create, drillJob(s, s.own[i], run.Job))
	case s.claim(run.Job) == nil:
		p.create = append(p.create, drillClaim(s, s.own[i], run.Job))
	}
}

// hasVolume says whether the drill that is on record has its own.
func (s drillSeen) hasVolume() bool {
	claim := s.claim(s.cluster.CommonStatus().Drill.Running.Job)
	return claim != nil && claim.DeletionTimestamp == nil
}

// giveUp a Job whose program does not run. What an attempt before it found
// counts.
func (s drillSeen) giveUp(p *drillPlan, job *batchv1.Job) {
	fault := fmt.Sprintf("no program of Job %s has run for %s%s", job.Name, idleDeadline, because(podFault(s.pods, job)))
	if report, said := s.report(job); said && report.Error != "" {
		report.Error += "; then " + fault
		p.end(s.now, report)
		return
	}
	p.untried("%s", fault)
}

// take over how a Job ended, in its pod's own words.
func (s drillSeen) take(p *drillPlan, job *batchv1.Job) {
	report, said := s.report(job)
	if !said && s.now.Sub(endedAt(job)) < noPod {
		return // what the pod says is on its way
	}
	if jobIs(job, batchv1.JobFailed) {
		report.Error = cmp.Or(report.Error, podFault(s.pods, job), "the Job has failed, and its pods have said nothing")
		if pod := (restoreSeen{job: job, pods: s.pods}).outOfMemory(); pod != "" {
			report.Error = fmt.Sprintf("spec.backup.verify.resources: pod %s needed more memory than it may have (OOMKilled): raise the limit", pod)
		}
	} else {
		report.Error = ""
	}
	p.end(endedAt(job), report)
}

// report of the newest pod of a Job that has ended and said something.
func (s drillSeen) report(job *batchv1.Job) (report memberapi.DrillReport, said bool) {
	newest := time.Time{}
	for i := range s.pods {
		pod := &s.pods[i]
		if !metav1.IsControlledBy(pod, job) {
			continue
		}
		for _, c := range pod.Status.ContainerStatuses {
			t := c.State.Terminated
			if c.Name != containerJob || t == nil || said && t.FinishedAt.Time.Before(newest) {
				continue
			}
			var words memberapi.DrillReport
			if json.Unmarshal([]byte(t.Message), &words) == nil {
				report, said, newest = words, true, t.FinishedAt.Time
			}
		}
	}
	return report, said
}

// drillWords is how many bytes there are of what a drill failed with: its log
// goes with its Job.
const drillWords = 1024

// cut what is too long for where it is written.
func cut(text string, most int) string {
	const dots = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(dots)], "") + dots
}

// untried says that nothing was found out of the backup: its slot was passed
// over, and what the last drill has shown stands.
func (p *drillPlan) untried(format string, args ...any) {
	reason := cut(fmt.Sprintf(format, args...), drillWords)
	p.status.Running, p.wait = nil, stepPause
	if p.record != nil && p.record.LastSlot != nil {
		p.record = new(schedule.Undone(*p.record, "could not be tried: "+reason))
	}
}

// end puts on record how the drill has ended.
func (p *drillPlan) end(at time.Time, report memberapi.DrillReport) {
	run := p.status.Running
	began := run.StartTime
	p.status.Running, p.wait = nil, stepPause
	p.status.LastTime, p.status.Backup, p.status.Job = &began, run.Backup, run.Job
	p.status.Duration = max(at.Sub(began.Time), 0).Round(time.Second).String()
	p.status.Checked, p.status.Message = report.Checked, cut(report.Error, drillWords)
	p.status.Result = v1alpha1.DrillFailed
	if report.Error == "" {
		p.status.Result, p.status.LastPassedTime, p.status.LastPassedBackup = v1alpha1.DrillPassed, &began, run.Backup
	}
}

// tidy removes what has ended, and what nobody wants any more: a volume stays as
// long as there is a pod that names it, if only for its log.
func (s drillSeen) tidy(p *drillPlan) {
	stays := map[string]bool{}
	if p.status != nil && p.status.Running != nil {
		stays[p.status.Running.Job] = true
	}
	if d := s.cluster.CommonStatus().Drill; d != nil && d.Running != nil && s.cluster.Common().Backup.Drills() {
		stays[d.Running.Job] = true // how it ended is written first
	}
	for _, job := range s.jobs {
		if job.DeletionTimestamp == nil && !stays[job.Name] {
			p.remove = append(p.remove, job)
		}
	}
	for _, claim := range s.claims {
		if claim.DeletionTimestamp == nil && !stays[claim.Name] {
			p.remove = append(p.remove, claim)
		}
	}
}

// judge says whether the last drill has failed.
func (p *drillPlan) judge() {
	if p.status.Result != v1alpha1.DrillFailed {
		return
	}
	p.failing = &condition.Fact{
		Type: v1alpha1.ConditionBackedUp, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDrillFailed,
		Message: fmt.Sprintf("the restore drill of backup %s failed: %s; make another backup, and have it restored", p.status.Backup, p.status.Message),
	}
}

// job of a name; nil for none.
func (s drillSeen) job(name string) *batchv1.Job {
	for _, job := range s.jobs {
		if job.Name == name {
			return job
		}
	}
	return nil
}

// claim of a name; nil for none.
func (s drillSeen) claim(name string) *corev1.PersistentVolumeClaim {
	for _, claim := range s.claims {
		if claim.Name == name {
			return claim
		}
	}
	return nil
}

// endedAt is when a Job has come to its end.
func endedAt(job *batchv1.Job) time.Time {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobFailed || c.Type == batchv1.JobComplete) && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
