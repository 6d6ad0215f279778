package backups

import (
	"fmt"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
)

// Verdicts are what the parts of a pass say of the condition BackedUp; each is nil
// where there is nothing to say.
type Verdicts struct {
	// Runs is the verdict on the backups that the schedule has made.
	Runs *condition.Fact
	// Volume says that the volume for backups is refused, destination that the spec
	// names none any more, and Store that it cannot be used or checked.
	Volume, destination, Store *condition.Fact
	// name says that a Backup of another cluster has a name that is needed.
	name *condition.Fact
	// Drill says that the last restore drill has failed.
	Drill *condition.Fact
}

// JudgeBackedUp merges the verdicts by the rank of their reasons; nil without any.
func (v Verdicts) JudgeBackedUp() *condition.Fact {
	name := v.name
	if v.Runs == nil && v.Store == nil {
		name = nil // without a schedule no backup is asked for
	}
	var facts []condition.Fact
	for _, fact := range []*condition.Fact{v.Volume, name, v.Store, v.destination, v.Runs, v.Drill} {
		if fact != nil {
			facts = append(facts, *fact)
		}
	}
	return condition.Merge(facts, v1alpha1.ConditionBackedUp)
}

// NotBackedUp is a verdict that backups are not made, or not good.
func NotBackedUp(reason, message string) *condition.Fact {
	return &condition.Fact{Type: v1alpha1.ConditionBackedUp, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// ReportNameConflict says that a backup which is wanted beside the schedule cannot
// be made, since another one has its name.
func (p *Plan) ReportNameConflict(name string) {
	p.Verdicts.name = NotBackedUp(v1alpha1.ReasonNameConflict,
		fmt.Sprintf("backup %s is wanted now, and there is one of that name that is not of this cluster: delete it", name))
}

// judgeRuns says whether the newest backup by schedule is good, and not too old.
// Of a cluster that is new to its schedule it is not known before the first
// backup has ended. The hint says what to do about a volume that is too small.
func judgeRuns(own []*v1alpha1.Backup, overdue, isNew bool, next time.Time, hint string) *condition.Fact {
	var newest *v1alpha1.Backup
	if ended := ListEndedRuns(own); len(ended) > 0 {
		newest = ended[0]
	}
	var fact *condition.Fact
	last := describeNewestGood(own)
	obstacle, stuck := describeObstacle(own)
	switch {
	case newest != nil && !newest.HasSucceeded() && last != nil:
		fact = NotBackedUp(v1alpha1.ReasonBackupFailed, fmt.Sprintf("backup %s failed: %s; the last good one is %s", newest.Name, newest.Status.Error, last.Name))
	case newest != nil && !newest.HasSucceeded():
		fact = NotBackedUp(v1alpha1.ReasonBackupFailed, fmt.Sprintf("backup %s failed: %s; there is no good one", newest.Name, newest.Status.Error))
	case newest == nil && isNew:
		fact = NotBackedUp(v1alpha1.ReasonNoBackup, "the first backup is made as soon as the cluster serves, and has not ended yet")
		if !stuck {
			fact.Status = metav1.ConditionUnknown
		}
	case newest == nil:
		fact = NotBackedUp(v1alpha1.ReasonNoBackup, "the schedule has made no backup yet")
	case overdue:
		fact = NotBackedUp(v1alpha1.ReasonBackupOverdue, fmt.Sprintf("the last good backup is %s, and none of the last two slots has made another: status.schedules says what was skipped", last.Name))
	default:
		fact = NotBackedUp(v1alpha1.ReasonBackedUp, fmt.Sprintf("backup %s is complete and verified", newest.Name))
		fact.Status = metav1.ConditionTrue
	}
	fact.Message += obstacle
	if !next.IsZero() {
		fact.Message += "; the next one is due at " + next.UTC().Format(time.RFC3339)
	}
	if fact.Reason == v1alpha1.ReasonBackupFailed {
		fact.Message += hint
	}
	return fact
}

// describeObstacle says why a backup that has not ended does not get on, and
// whether it is stuck: of a cluster without any other, that is a failure.
func describeObstacle(own []*v1alpha1.Backup) (message string, stuck bool) {
	for _, b := range own {
		if b.IsFinished() || b.DeletionTimestamp != nil {
			continue
		}
		if run := b.Status.Run; run != nil && run.Error != "" {
			return fmt.Sprintf("; backup %s is trying again: %s", b.Name, run.Error), false
		}
		if conditions.IsTrue(b, v1alpha1.ConditionStalled) {
			return fmt.Sprintf("; backup %s cannot go on: %s", b.Name, conditions.GetMessage(b, v1alpha1.ConditionStalled)), true
		}
	}
	return "", false
}
