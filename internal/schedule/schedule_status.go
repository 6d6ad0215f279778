package schedule

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// AdvanceStatus returns the recorded status of a schedule, advanced to now, and
// the slot to handle, which is zero for none. Of several missed slots only the
// newest is handled: an older one is not made up after the next has come.
//
// A schedule that is new or changed begins with its next slot. So does one whose
// recorded next slot is later than the second one from now: the clock was ahead
// when it was written, and everything would wait until that time. A clock that
// was set back a little has it one slot further, and is tolerated.
func (s Schedule) AdvanceStatus(was v1alpha1.ScheduleStatus, now time.Time) (v1alpha1.ScheduleStatus, time.Time) {
	next := s.NextSlot(now)
	if was.NextSlot == nil || was.Schedule != s.String() || was.NextSlot.After(s.NextSlot(next)) {
		was.Schedule, was.NextSlot = s.String(), newTime(next)
	}
	if last := s.LastSlot(now); !last.Before(was.NextSlot.Time) {
		return was, last
	}
	return was, time.Time{}
}

const (
	// mostSkipped slots are remembered each with its reason.
	mostSkipped = 5
	// mostMissed slots are counted one by one: to count a year of minutes would
	// take long.
	mostMissed = 1000
)

// Done is the record after a slot was handled. The message says why nothing was
// done, and is empty otherwise. Unhandled slots before it count as skipped.
func (s Schedule) Done(was v1alpha1.ScheduleStatus, slot time.Time, message string) v1alpha1.ScheduleStatus {
	if was.NextSlot != nil {
		missed := was.NextSlot.Time
		for n := 0; n < mostMissed && missed.Before(slot); n++ {
			was = skipSlot(was, missed, "it went by before anybody could handle it")
			missed = s.NextSlot(missed)
		}
	}
	if message != "" {
		was = skipSlot(was, slot, message)
	}
	was.LastSlot, was.NextSlot, was.Message = newTime(slot), newTime(s.NextSlot(slot)), message
	return was
}

// MarkUndone is the record when it turns out that nothing was done at the last
// slot, and why.
func MarkUndone(was v1alpha1.ScheduleStatus, message string) v1alpha1.ScheduleStatus {
	was = skipSlot(was, was.LastSlot.Time, message)
	was.Message = message
	return was
}

func skipSlot(was v1alpha1.ScheduleStatus, slot time.Time, reason string) v1alpha1.ScheduleStatus {
	was.Skipped++
	was.LastSkipped = append([]v1alpha1.SkippedSlot{{Slot: *newTime(slot), Reason: reason}}, was.LastSkipped...)
	was.LastSkipped = was.LastSkipped[:min(len(was.LastSkipped), mostSkipped)]
	return was
}

func newTime(t time.Time) *metav1.Time { return &metav1.Time{Time: t} }
