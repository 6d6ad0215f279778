package schedule

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// AdvanceStatus says where a schedule stands: what is on record of it, was, brought up
// to now, and the slot that is to be handled, zero for none. Of slots that
// nobody handled in time only the newest is, so that none is made up once the
// next one has come.
//
// A schedule that is new, or another than before, begins with its next slot. So
// does one whose next slot is further off than two: the clock was ahead when it
// was written, and would keep everything waiting until it is there again. One
// slot further is where a clock that was put back a little has it.
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
	// mostMissed slots are counted one by one: a cron of every minute that nobody
	// looked at for a year would take its time.
	mostMissed = 1000
)

// Done is the record once a slot was handled. The message says why nothing was
// done, empty where that is not so. Slots before it that nobody handled count as
// passed over.
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

// MarkUndone is the record once it shows that at its last slot nothing was done after
// all, and why.
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
