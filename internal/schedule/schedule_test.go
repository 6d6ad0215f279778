package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// timeAt reads a time of a table, in UTC.
func timeAt(t *testing.T, text string) time.Time {
	t.Helper()
	got, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		if got, err = time.Parse("2006-01-02 15:04", text); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

func mustParse(t *testing.T, line, zone string) Schedule {
	t.Helper()
	s, err := Parse(line, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The clock of Berlin jumps from 02:00 to 03:00 at 01:00 UTC on 29 March 2026,
// and back from 03:00 to 02:00 at 01:00 UTC on 25 October; that of Lord Howe
// jumps by half an hour, that of Cairo at midnight, and in Samoa 30 December
// 2011 was left out.
func TestSlots(t *testing.T) {
	const berlin = "Europe/Berlin"
	cases := []struct {
		name, line, zone, after string
		want                    []string
	}{
		{"every night", "0 2 * * *", "", "2026-03-01 02:00", []string{"2026-03-02 02:00", "2026-03-03 02:00"}},
		{"a slot follows the second before it", "0 2 * * *", "", "2026-03-01 01:59:59", []string{"2026-03-01 02:00"}},
		{"a word", "@weekly", "", "2026-03-01 12:00", []string{"2026-03-08 00:00", "2026-03-15 00:00"}},
		{"names of days and months", "30 4 * mar SAT", "UTC", "2026-03-01 00:00", []string{"2026-03-07 04:30"}},
		{"a day of the month or of the week", "0 0 13 * 5", "", "2026-03-01 00:00", []string{"2026-03-06 00:00", "2026-03-13 00:00", "2026-03-20 00:00"}},
		{"a leap day", "0 0 29 2 *", "", "2026-03-01 00:00", []string{"2028-02-29 00:00", "2032-02-29 00:00"}},
		{"a leap day over a century without one", "0 0 29 2 *", "", "2096-03-01 00:00", []string{"2104-02-29 00:00"}},
		{"a year's last minute", "59 23 31 12 *", "Pacific/Auckland", "2026-06-01 00:00", []string{"2026-12-31 10:59"}},

		{"night of the jump: a time that is left out comes at the jump", "30 2 * * *", berlin, "2026-03-27 12:00",
			[]string{"2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30"}},
		{"several such times come once", "*/15 2 * * *", berlin, "2026-03-29 00:59",
			[]string{"2026-03-29 01:00", "2026-03-30 00:00"}},
		{"one with its neighbour at the jump comes once", "0,30 2,3 * * *", berlin, "2026-03-29 00:00",
			[]string{"2026-03-29 01:00", "2026-03-29 01:30", "2026-03-30 00:00"}},
		{"night of the jump back: a time that is shown twice comes once", "30 2 * * *", berlin, "2026-10-24 12:00",
			[]string{"2026-10-25 00:30", "2026-10-26 01:30"}},
		{"and not again in the hour that is shown again", "30 2 * * *", berlin, "2026-10-25 01:10", []string{"2026-10-26 01:30"}},
		{"every two hours misses no night", "0 */2 * * *", berlin, "2026-10-24 22:30",
			[]string{"2026-10-25 00:00", "2026-10-25 03:00"}},
		{"every hour goes by elapsed time at the jump", "0 * * * *", berlin, "2026-03-28 23:30",
			[]string{"2026-03-29 00:00", "2026-03-29 01:00", "2026-03-29 02:00"}},
		{"and at the jump back", "*/30 * * * *", berlin, "2026-10-25 00:00",
			[]string{"2026-10-25 00:30", "2026-10-25 01:00", "2026-10-25 01:30", "2026-10-25 02:00"}},
		{"every hour where it is half an hour that is left out", "15 * * * *", "Australia/Lord_Howe", "2026-10-03 14:00",
			[]string{"2026-10-03 14:45", "2026-10-03 16:15"}},
		{"the last day of a leap year", "0 * * * *", berlin, "2028-12-31 12:00", []string{"2028-12-31 13:00", "2028-12-31 14:00"}},
		{"a minute of a day that is years away", "* * 29 2 *", "America/St_Johns", "2096-03-02 00:00", []string{"2104-02-29 03:30", "2104-02-29 03:31"}},
		{"a midnight that is left out", "0 0 * * *", "Africa/Cairo", "2026-04-23 12:00",
			[]string{"2026-04-23 22:00", "2026-04-24 21:00"}},
		{"a day that is left out", "0 12 30 12 *", "Pacific/Apia", "2011-12-01 00:00",
			[]string{"2011-12-30 10:00", "2012-12-29 22:00"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := mustParse(t, tc.line, tc.zone)
			var got []string
			slot := timeAt(t, tc.after)
			for range tc.want {
				slot = s.NextSlot(slot)
				got = append(got, slot.Format("2006-01-02 15:04"))
				for _, moment := range []time.Time{slot, slot.Add(time.Second), s.NextSlot(slot).Add(-time.Second)} {
					if last := s.LastSlot(moment); !last.Equal(slot) {
						t.Errorf("the last slot at %s is %s, not %s", moment, last, slot)
					}
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("slots (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	cases := []struct{ line, zone, want string }{
		{"", "", "schedule is empty: write five fields"},
		{" \t", "", "schedule is empty"},
		{"0 2 * *", "", "has not five fields: write minute, hour"},
		{"0 0 2 * * *", "", "there is none for seconds"},
		{"60 2 * * *", "", "above maximum (59)"},
		{"0 2 * * 7", "", "above maximum (6)"},
		{"0 2 * * noday", "", "is no line of cron"},
		{"*/0 * * * *", "", "is no line of cron"},
		{"0 2 31 2 *", "", "never comes"},
		{"0 2 31 4,6,9,11 *", "", "never comes"},
		{"@nightly", "", "is no line of cron"},
		{"@every 5h", "", "*/30 * * * *"},
		{"CRON_TZ=Europe/Berlin 0 2 * * *", "", "write it into timeZone"},
		{"TZ=UTC", "", "write it into timeZone"},
		{"0 2 * * *", "Mars/Olympus", `timeZone "Mars/Olympus" is unknown`},
		{"0 2 * * *", "Local", "timeZone"},
		{"0 2 * * *", "+02:00", "timeZone"},
		{"0 2 * * *", "../etc/passwd", "timeZone"},
	}
	for _, tc := range cases {
		_, err := Parse(tc.line, tc.zone)
		switch {
		case err == nil:
			t.Errorf("%q in %q is taken", tc.line, tc.zone)
		case !strings.Contains(err.Error(), tc.want):
			t.Errorf("%q in %q: %v; want %q", tc.line, tc.zone, err, tc.want)
		}
	}
}

func TestStringAndName(t *testing.T) {
	if got := mustParse(t, "  0  2 * * * ", "").String(); got != "0 2 * * *" {
		t.Error(got)
	}
	s := mustParse(t, "0 2 * * *", "Europe/Berlin")
	if got := s.String(); got != "0 2 * * * Europe/Berlin" {
		t.Error(got)
	}
	if got := SlotName(s.NextSlot(timeAt(t, "2026-07-01 12:00")).In(s.zone)); got != "20260702-0000" {
		t.Error(got)
	}
}

// A cluster without a schedule of its own has a minute that never changes, and
// many clusters have many.
func TestNightly(t *testing.T) {
	// A minute that moved with a newer operator would be another schedule.
	for name, want := range map[string]string{"shop/orders": "14 2 * * *", "shop/orders-copy": "35 2 * * *", "other/orders": "2 2 * * *"} {
		namespace, cluster, _ := strings.Cut(name, "/")
		if got := NightlyLine(namespace, cluster); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	minutes := map[string]int{}
	for n := range 600 {
		line := NightlyLine("shop", fmt.Sprint("orders-", n))
		if s := mustParse(t, line, ""); s.NextSlot(timeAt(t, "2026-03-01 00:00")).Hour() != 2 {
			t.Errorf("%q does not come between two and three", line)
		}
		minutes[line]++
	}
	for line, count := range minutes {
		if len(minutes) != 60 || count > 30 {
			t.Errorf("of 600 clusters %d have %q, of %d lines", count, line, len(minutes))
		}
	}
}

// zones with every kind of change of the clock.
var zones = []string{"", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Africa/Cairo", "Pacific/Apia", "America/Sao_Paulo", "Asia/Kathmandu", "Africa/Casablanca"}

// What the clock shows at each minute says when every slot is.
func TestSlotsByTheClock(t *testing.T) {
	periods := []string{"2026-03-28 18:00", "2026-10-24 18:00", "2026-03-07 18:00", "2026-10-31 18:00", "2026-04-04 06:00", "2026-10-03 06:00",
		"2026-04-23 12:00", "2026-10-29 12:00", "2011-12-29 18:00", "2018-11-03 18:00", "2026-02-14 18:00", "2026-03-21 18:00", "2028-12-30 12:00"}
	lines := []string{"*/15 2 * * *", "30 1,2,3 * * *", "0 0 * * *", "45 23 * * *", "0 */2 * * *", "*/20 * * * *", "7 * * * *", "0 0 30 12 *"}
	for _, zone := range zones {
		for _, line := range lines {
			for _, period := range periods {
				slotsByTheClock(t, mustParse(t, line, zone), timeAt(t, period))
			}
		}
	}
}

// slotsByTheClock looks at two days: a slot comes when the clock shows it and,
// of a line that does not name every hour, has not shown it or a later time
// before.
func slotsByTheClock(t *testing.T, s Schedule, from time.Time) {
	names := func(shown time.Time) bool { return s.wall.Next(shown.Add(-time.Second)).Equal(shown) }
	slot := s.NextSlot(from)
	latest := shownTime(from.In(s.zone)) // no zone of these tests changes its clock just before
	for minute := range 48 * 60 {
		now := from.Add(time.Duration(minute+1) * time.Minute)
		shown := shownTime(now.In(s.zone))
		want := s.everyHour && names(shown)
		for ; !s.everyHour && shown.After(latest); latest = latest.Add(time.Minute) {
			want = want || names(latest.Add(time.Minute))
		}
		comes := slot.Equal(now)
		if want != comes {
			t.Fatalf("%s at %s: %v, want %v", s, now.In(s.zone), comes, want)
		}
		if comes {
			slot = s.NextSlot(slot)
		}
	}
}

func FuzzSchedule(f *testing.F) {
	f.Add("30 2 * * *", uint8(1), int64(1774742400), uint32(7200))
	f.Add("*/7 * * * *", uint8(3), int64(1793000000), uint32(1))
	f.Add("0 0 29 2 *", uint8(0), int64(3981312000), uint32(1<<31))
	f.Add("* 2 1-7 */2 1", uint8(4), int64(1776988800), uint32(1800))
	f.Add("TZ=", uint8(0), int64(0), uint32(0))
	f.Fuzz(func(t *testing.T, line string, zone uint8, unix int64, later uint32) {
		s, err := Parse(line, zones[int(zone)%len(zones)])
		if err != nil {
			return
		}
		const years = 200 * 365 * 24 * 3600
		now := time.Unix((unix%years+years)%years, 0)
		next, last := s.NextSlot(now), s.LastSlot(now)
		switch {
		case !next.After(now):
			t.Fatalf("Next(%s) = %s", now, next)
		case last.After(now):
			t.Fatalf("Last(%s) = %s", now, last)
		case !s.LastSlot(next).Equal(next):
			t.Fatalf("Last(%s) = %s", next, s.LastSlot(next))
		case !s.NextSlot(last).Equal(next):
			t.Fatalf("Next(%s) = %s after Next(%s) = %s", last, s.NextSlot(last), now, next)
		case SlotName(next) == SlotName(last):
			t.Fatalf("two slots are called %s", SlotName(next))
		}
		if between := now.Add(time.Duration(later) * time.Second); between.Before(next) && !s.NextSlot(between).Equal(next) {
			t.Fatalf("Next(%s) = %s, and Next(%s) = %s", now, next, between, s.NextSlot(between))
		}
	})
}
