package etcd

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// Slots of @hourly around now, which is noon.
var (
	lastSlot = now.Add(-time.Hour)
	nextSlot = now.Add(time.Hour)
)

func recordSchedule(last, next time.Time, message string) []v1alpha1.ScheduleStatus {
	s := v1alpha1.ScheduleStatus{Name: "Defragmentation", Schedule: "@hourly", NextSlot: &metav1.Time{Time: next}, Message: message}
	if !last.IsZero() {
		s.LastSlot = &metav1.Time{Time: last}
	}
	return []v1alpha1.ScheduleStatus{s}
}

// hourly is a cluster whose members all have something to give back, with a
// schedule whose slot is now.
func hourly(t *testing.T) *world {
	w := settled(t, 3)
	w.c.Spec.Defragmentation.Schedule = "@hourly"
	w.c.Status.Schedules = recordSchedule(lastSlot, now, "")
	for n := range 3 {
		w.changeGroup(n, func(g *etcdapi.GroupStatus) { g.DataUnused = 60 })
	}
	return w
}

// waiting is the same between two slots.
func waiting(t *testing.T) *world {
	w := hourly(t)
	w.c.Status.Schedules = recordSchedule(now, nextSlot, "")
	return w
}

// missed is the same half an hour after a slot of every day.
func missed(t *testing.T) *world {
	w := hourly(t)
	w.c.Spec.Defragmentation.Schedule = "30 11 * * *"
	w.c.Status.Schedules = missedRecord()
	return w
}

func missedRecord() []v1alpha1.ScheduleStatus {
	s := recordSchedule(now.AddDate(0, 0, -1), now.Add(-30*time.Minute), "")
	s[0].Schedule = "30 11 * * *"
	return s
}

func (w *world) tried(step string, ago time.Duration) { w.o.Tried[step] = now.Add(-ago) }

// passedOver is a record with its last slot among those at which nothing was
// done.
func passedOver(records []v1alpha1.ScheduleStatus) []v1alpha1.ScheduleStatus {
	r := &records[0]
	r.Skipped, r.LastSkipped = 1, []v1alpha1.SkippedSlot{{Slot: *r.LastSlot, Reason: r.Message}}
	return records
}

func TestDefragmentationBySchedule(t *testing.T) {
	cases := []struct {
		name    string
		world   func(t *testing.T) *world
		step    string
		record  []v1alpha1.ScheduleStatus
		recheck time.Duration
	}{
		{"a new schedule begins with its next slot",
			func(t *testing.T) *world { w := hourly(t); w.c.Status.Schedules = nil; return w },
			"", recordSchedule(time.Time{}, nextSlot, ""), time.Hour},
		{"between two slots no member is defragmented",
			waiting, "", recordSchedule(now, nextSlot, ""), time.Hour},
		{"a run begins with the follower of the highest ordinal",
			hourly, "Defragment config-2", recordSchedule(lastSlot, now, ""), 0},
		{"goes on with the next one",
			func(t *testing.T) *world { w := hourly(t); w.tried("Defragment config-2", 0); return w },
			"Defragment config-1", recordSchedule(lastSlot, now, ""), 0},
		{"hands the lead over before the leader's turn",
			func(t *testing.T) *world {
				w := hourly(t)
				w.tried("Defragment config-2", 0)
				w.tried("Defragment config-1", 0)
				return w
			},
			"MoveLeader config-1", recordSchedule(lastSlot, now, ""), 0},
		{"waits for that",
			func(t *testing.T) *world {
				w := hourly(t)
				w.tried("Defragment config-2", 0)
				w.tried("Defragment config-1", 0)
				w.tried("MoveLeader config-1", time.Second)
				return w
			},
			"", recordSchedule(lastSlot, now, ""), time.Second},
		{"does the leader's turn when it leads no more",
			func(t *testing.T) *world {
				w := hourly(t)
				w.tried("Defragment config-2", 0)
				w.tried("Defragment config-1", 0)
				w.leader = w.data[1]
				w.say()
				w.changeGroup(0, func(g *etcdapi.GroupStatus) { g.DataUnused = 60 })
				return w
			},
			"Defragment config-0", recordSchedule(lastSlot, now, ""), 0},
		{"and ends when each had its turn, whatever came of it",
			func(t *testing.T) *world {
				w := hourly(t)
				for _, pod := range []string{"config-0", "config-1", "config-2"} {
					w.tried("Defragment "+pod, 0)
				}
				return w
			},
			"", recordSchedule(now, nextSlot, ""), time.Hour},
		{"a turn of another run does not count",
			func(t *testing.T) *world { w := hourly(t); w.tried("Defragment config-2", 5*time.Minute); return w },
			"Defragment config-2", recordSchedule(lastSlot, now, ""), 0},
		{"a run in which no member has enough to give back ends at once",
			func(t *testing.T) *world {
				w := hourly(t)
				for n := range 3 {
					w.changeGroup(n, func(g *etcdapi.GroupStatus) { g.DataUnused = 45 })
				}
				return w
			},
			"", recordSchedule(now, nextSlot, ""), time.Hour},
		{"a run waits while a member is away",
			func(t *testing.T) *world {
				w := hourly(t)
				w.gone(2)
				w.say()
				w.changeGroup(1, func(g *etcdapi.GroupStatus) { g.DataUnused = 60 })
				return w
			},
			"", recordSchedule(lastSlot, now, ""), 0},
		{"and while pods are replaced",
			func(t *testing.T) *world {
				w := hourly(t)
				w.outdate()
				w.say()
				return w
			},
			"ReplaceMember config-2", recordSchedule(lastSlot, now, ""), 0},
		{"a slot that was missed is made up until the next one",
			missed, "Defragment config-2", missedRecord(), 0},
		{"with one turn for each, though their own word is long after it that they have as much to give back",
			func(t *testing.T) *world {
				w := missed(t)
				w.tried("Defragment config-2", 10*time.Minute)
				w.tried("Defragment config-1", 10*time.Minute)
				w.tried("Defragment config-0", 30*time.Minute)
				w.changeGroup(1, func(g *etcdapi.GroupStatus) { g.DataUnused = 95 })
				return w
			},
			"", func() []v1alpha1.ScheduleStatus {
				s := missedRecord()
				s[0].LastSlot, s[0].NextSlot = s[0].NextSlot, &metav1.Time{Time: now.Add(23*time.Hour + 30*time.Minute)}
				return s
			}(), 23*time.Hour + 30*time.Minute},
		{"slots skip a suspended cluster, and it says so",
			func(t *testing.T) *world { w := hourly(t); w.c.Spec.Suspend = true; return w },
			"", passedOver(recordSchedule(now, nextSlot, "skipped: spec.suspend is true")), time.Hour},
		{"and one where the spec says never, without a word",
			func(t *testing.T) *world {
				w := hourly(t)
				w.c.Spec.Defragmentation.ThresholdPercent = new(int32(100))
				return w
			},
			"", recordSchedule(now, nextSlot, ""), time.Hour},
		{"a line that can never come stops the runs",
			func(t *testing.T) *world { w := hourly(t); w.c.Spec.Defragmentation.Schedule = "0 2 31 2 *"; return w },
			"", nil, 0},
		{"without a schedule nothing is recorded",
			func(t *testing.T) *world { w := hourly(t); w.c.Spec.Defragmentation.Schedule = ""; return w },
			"Defragment config-2", nil, 0},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			p := tc.world(t).plan()
			if got := judge(p).Step; got != tc.step {
				t.Errorf("step %q, want %q", got, tc.step)
			}
			if diff := cmp.Diff(tc.record, p.Report.Schedules); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
			if tc.recheck > 0 && p.Recheck != tc.recheck {
				t.Errorf("looks again in %s, want %s", p.Recheck, tc.recheck)
			}
		})
	}
}

// What the schema lets through is refused with the field and the remedy, and
// nothing else stops.
func TestInvalidSchedule(t *testing.T) {
	for _, tc := range []struct{ schedule, timeZone, want string }{
		{"0 2 31 2 *", "", `spec.defragmentation.schedule "0 2 31 2 *" never comes: none of its months has such a day; name one that it has`},
		{"0 25 * * *", "", `spec.defragmentation.schedule "0 25 * * *" is no line of cron`},
		{"@daily", "Mars/Olympus", `spec.defragmentation.timeZone "Mars/Olympus" is unknown`},
	} {
		w := settled(t, 1)
		w.replicas(3)
		w.c.Spec.Defragmentation.Schedule, w.c.Spec.Defragmentation.TimeZone = tc.schedule, tc.timeZone
		p := w.plan()
		want := outcome{"AddLearner config-1", []string{"Reconciling/ScalingUp", "Stalled/InvalidSchedule", "Available/Available"}, 1}
		if diff := cmp.Diff(want, judge(p)); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tc.schedule, tc.timeZone, diff)
		}
		for _, f := range p.Facts {
			if f.Type == v1alpha1.ConditionStalled && !strings.HasPrefix(f.Message, tc.want) {
				t.Errorf("%q, want %q", f.Message, tc.want)
			}
		}
	}
}

// A quota that is used up does not wait for a slot.
func TestSpaceDoesNotWaitForTheSchedule(t *testing.T) {
	w := full(t, 60)
	w.c.Spec.Defragmentation.Schedule = "@hourly"
	w.c.Status.Schedules = recordSchedule(now, nextSlot, "")
	if got := judge(w.plan()).Step; got != "Defragment config-2" {
		t.Error(got)
	}
}

// Compactions that led to space for writes say nothing of the next time that
// space runs out.
func TestCompactionsAreForgottenWithTheAlarm(t *testing.T) {
	tried := map[string]time.Time{}
	compact, disarm := engine.Step{Type: stepCompact, Target: "config-0"}, engine.Step{Type: stepDisarm, Target: "config-0"}
	noteIn(tried, compact, now)
	noteIn(tried, engine.Step{Type: stepCompact, Target: "config-1"}, now.Add(time.Minute))
	if first, last := tried[firstCompact], tried[stepCompact]; !first.Equal(now) || !last.Equal(now.Add(time.Minute)) {
		t.Errorf("the first at %s, the last at %s", first, last)
	}
	noteIn(tried, disarm, now.Add(2*time.Minute))
	if first, last := tried[firstCompact], tried[stepCompact]; !first.IsZero() || !last.IsZero() {
		t.Errorf("with the alarm: the first at %s, the last at %s", first, last)
	}
}
