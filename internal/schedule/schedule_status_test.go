package schedule

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

func TestAdvanceStatus(t *testing.T) {
	record := func(line, last, next, message string) v1alpha1.ScheduleStatus {
		r := v1alpha1.ScheduleStatus{Name: "test", Schedule: line, Message: message}
		if last != "" {
			r.LastSlot = newTime(timeAt(t, last))
		}
		if next != "" {
			r.NextSlot = newTime(timeAt(t, next))
		}
		return r
	}
	const line = "0 2 * * *"
	cases := []struct {
		name string
		was  v1alpha1.ScheduleStatus
		now  string
		want v1alpha1.ScheduleStatus
		due  string
	}{
		{"a new schedule begins with its next slot",
			record("", "", "", ""), "2026-03-01 12:00", record(line, "", "2026-03-02 02:00", ""), ""},
		{"nothing before it comes",
			record(line, "", "2026-03-02 02:00", ""), "2026-03-02 01:59:59", record(line, "", "2026-03-02 02:00", ""), ""},
		{"the slot that comes",
			record(line, "", "2026-03-02 02:00", ""), "2026-03-02 02:00", record(line, "", "2026-03-02 02:00", ""), "2026-03-02 02:00"},
		{"a slot that was missed is made up",
			record(line, "2026-03-01 02:00", "2026-03-02 02:00", ""), "2026-03-03 01:59", record(line, "2026-03-01 02:00", "2026-03-02 02:00", ""), "2026-03-02 02:00"},
		{"only the newest of several",
			record(line, "2026-03-01 02:00", "2026-03-02 02:00", ""), "2026-03-08 12:00", record(line, "2026-03-01 02:00", "2026-03-02 02:00", ""), "2026-03-08 02:00"},
		{"another line begins with its next slot",
			record("0 4 * * *", "2026-03-01 04:00", "2026-03-02 04:00", "why"), "2026-03-02 12:00", record(line, "2026-03-01 04:00", "2026-03-03 02:00", "why"), ""},
		{"a clock that was years ahead is right again",
			record(line, "2031-03-01 02:00", "2031-03-02 02:00", ""), "2026-03-01 12:00", record(line, "2031-03-01 02:00", "2026-03-02 02:00", ""), ""},
		{"a clock that was put back over the slot brings it no second time",
			record(line, "2026-03-02 02:00", "2026-03-03 02:00", ""), "2026-03-02 01:59", record(line, "2026-03-02 02:00", "2026-03-03 02:00", ""), ""},
	}
	s := mustParse(t, line, "")
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got, due := s.AdvanceStatus(tc.was, timeAt(t, tc.now))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
			var want time.Time
			if tc.due != "" {
				want = timeAt(t, tc.due)
			}
			if !due.Equal(want) {
				t.Errorf("due: %s, want %s", due, want)
			}
		})
	}
}

// Every slot that went by without being done is recorded.
func TestDone(t *testing.T) {
	s := mustParse(t, "0 2 * * *", "")
	record := func(last, next, message string, count int64, over ...v1alpha1.SkippedSlot) v1alpha1.ScheduleStatus {
		return v1alpha1.ScheduleStatus{LastSlot: newTime(timeAt(t, last)), NextSlot: newTime(timeAt(t, next)), Message: message, Skipped: count, LastSkipped: over}
	}
	over := func(slot, why string) v1alpha1.SkippedSlot {
		return v1alpha1.SkippedSlot{Slot: *newTime(timeAt(t, slot)), Reason: why}
	}
	const missed = "it went by before anybody could handle it"
	was := v1alpha1.ScheduleStatus{NextSlot: newTime(timeAt(t, "2026-03-02 02:00")), Message: "before"}
	steps := []struct {
		slot, message string
		want          v1alpha1.ScheduleStatus
	}{
		{"2026-03-02 02:00", "", record("2026-03-02 02:00", "2026-03-03 02:00", "", 0)},
		{"2026-03-03 02:00", "full", record("2026-03-03 02:00", "2026-03-04 02:00", "full", 1, over("2026-03-03 02:00", "full"))},
		{"2026-03-06 02:00", "", record("2026-03-06 02:00", "2026-03-07 02:00", "", 3,
			over("2026-03-05 02:00", missed), over("2026-03-04 02:00", missed), over("2026-03-03 02:00", "full"))},
		{"2026-03-10 02:00", "full", record("2026-03-10 02:00", "2026-03-11 02:00", "full", 7,
			over("2026-03-10 02:00", "full"), over("2026-03-09 02:00", missed), over("2026-03-08 02:00", missed), over("2026-03-07 02:00", missed), over("2026-03-05 02:00", missed))},
	}
	for _, step := range steps {
		was = s.Done(was, timeAt(t, step.slot), step.message)
		if diff := cmp.Diff(step.want, was); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", step.slot, diff)
		}
	}
}
