package etcd

import (
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/schedule"
)

const (
	// restBetween the defragmentations of one member that no request waits for.
	restBetween = 10 * time.Minute
	// never is the threshold that turns them off.
	never = 100
	// scheduleName of the runs, as status has it.
	scheduleName = "Defragmentation"
)

// run is one of the defragmentations that are kept to a schedule. That it is
// under way is recorded, as a slot that is not done with; which members still
// have something to give back, they say themselves.
type run struct {
	schedule schedule.Schedule
	// record in the status; nil without a schedule.
	record *v1alpha1.ScheduleStatus
	// slot that the run began at; zero while none is due.
	slot time.Time
	// fault of the schedule; nil for none.
	fault error
}

func runOf(c *v1alpha1.EtcdCluster, now time.Time) run {
	declared := c.Spec.Defragmentation
	if declared.Schedule == "" {
		return run{}
	}
	record := v1alpha1.ScheduleStatus{Name: scheduleName}
	for _, was := range c.Status.Schedules {
		if was.Name == scheduleName {
			record = was
		}
	}
	parsed, err := schedule.Parse(declared.Schedule, declared.TimeZone)
	if err != nil {
		return run{fault: err}
	}
	r := run{schedule: parsed}
	record, r.slot = parsed.AdvanceStatus(record, now)
	if !r.slot.IsZero() && c.Spec.Suspend {
		record, r.slot = parsed.Done(record, r.slot, "skipped: spec.suspend is true"), time.Time{}
	}
	r.record = &record
	return r
}

// isDefragmentationDue says whether members may be defragmented now for what they give back.
func (j *judgement) isDefragmentationDue() bool {
	return j.c.Spec.Defragmentation.Schedule == "" || !j.run.slot.IsZero()
}

// endRun ends the run: each member that had something to give back was defragmented.
func (r *run) endRun() {
	if r.slot.IsZero() {
		return
	}
	*r.record = r.schedule.Done(*r.record, r.slot, "")
	r.slot = time.Time{}
}

func (r *run) scheduleStatus() []v1alpha1.ScheduleStatus {
	if r.record == nil {
		return nil
	}
	return []v1alpha1.ScheduleStatus{*r.record}
}

// waitForRun is how long it is until the next slot; 0 when none is waited for.
func (r *run) waitForRun(now time.Time) time.Duration {
	if r.record == nil {
		return 0
	}
	return max(0, r.record.NextSlot.Sub(now))
}

// judgeRun says what is wrong with the schedule.
func (j *judgement) judgeRun() {
	if j.run.fault != nil {
		j.AddFact(v1alpha1.ConditionStalled, v1alpha1.ReasonInvalidSchedule, "spec.defragmentation.%v; no member is defragmented by schedule", j.run.fault)
	}
}

// defragmentStep gives back what is not in use, while nothing else is to be
// done and all members are well: in a run each member once, and otherwise whenever
// that is worth it.
func (j *judgement) defragmentStep() *engine.Step {
	threshold := 50
	if t := j.c.Spec.Defragmentation.ThresholdPercent; t != nil {
		threshold = int(*t)
	}
	if !j.isDefragmentationDue() || !j.g.led || len(j.g.healthy) < j.g.voters {
		return nil
	}
	for n := range j.Desired.Count {
		if !j.Standings[n].IsDone() {
			return nil
		}
	}
	if threshold >= never {
		j.run.endRun()
		return nil
	}
	wastes := func(n int) bool { return j.wastesSpace(n, threshold, j.run.slot) }
	s := j.defragmentMembersStep(wastes, "less of its data is in use than spec.defragmentation asks for")
	switch {
	case s == nil && !j.waits:
		j.run.endRun()
	case s != nil && j.run.slot.IsZero() && j.now.Sub(j.o.Tried[attemptKey(*s)]) < restBetween:
		return nil
	}
	return s
}

// defragmentMembersStep is the step for the next of some members: followers from the
// highest ordinal down, the leader last, when it leads no more. A member answers
// no client meanwhile.
func (j *judgement) defragmentMembersStep(which func(ordinal int) bool, why string) *engine.Step {
	for n := j.Desired.Count - 1; n >= 0; n-- {
		if n != j.g.leader && which(n) {
			return j.stepOn(n, stepDefragment, j.g.members[n].ID, "%s", why)
		}
	}
	if !which(j.g.leader) {
		return nil
	}
	if heir := j.chooseHeir(); heir >= 0 {
		return j.moveLeader(heir, "it is to be defragmented")
	}
	return j.stepOn(j.g.leader, stepDefragment, j.g.members[j.g.leader].ID, "%s", why)
}

// wastesSpace says whether so much of a member's data is not in use, and it was not
// defragmented since a time.
func (j *judgement) wastesSpace(ordinal, percent int, since time.Time) bool {
	at, tried := j.o.Tried[stepDefragment+" "+j.PodName(ordinal)]
	if tried && !since.IsZero() && !at.Before(since) {
		return false
	}
	// What the member says of its size may be older than its last one.
	lately := tried && j.now.Sub(at) < pauses[stepDefragment]
	return j.g.healthy[ordinal] && readGroup(j.o.Member(ordinal)).DataUnused >= percent && !lately
}
