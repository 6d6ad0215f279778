package anomaly_test

import (
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/anomaly"
)

const days = 28

// listSeeds are the seeds of the members that are simulated: HOLDFAST_HISTORIES asks for
// another number, and HOLDFAST_SEED for another first one.
func listSeeds() (seeds []uint64) {
	number, err := strconv.ParseUint(os.Getenv("HOLDFAST_HISTORIES"), 10, 64)
	if err != nil {
		number = 6
	}
	first, _ := strconv.ParseUint(os.Getenv("HOLDFAST_SEED"), 10, 64)
	for n := range number {
		seeds = append(seeds, first+n)
	}
	return seeds
}

// Members that live as usual have at most one alarm in a week, on average.
func TestUsualMembersAreQuiet(t *testing.T) {
	alarms := map[string]int{}
	total, seeds := 0, listSeeds()
	for _, seed := range seeds {
		m := newMember(seed)
		d := anomaly.NewDetector(m.listSignals(seed), &anomaly.Model{})
		var last time.Time
		for minute := range days * 1440 {
			now := m.start.Add(time.Duration(minute) * time.Minute)
			values := m.measure(now)
			if values == nil {
				continue
			}
			for _, a := range d.Add(now, values) {
				t.Logf("member %d, %s: %s %g instead of %g", seed, now.Format("Mon Jan 2 15:04"), a.Signal.Name, a.Observed, a.Expected)
				if now.Sub(last) > 30*time.Minute {
					total++
					alarms[a.Signal.Name]++
				}
				last = now
			}
		}
	}
	weeks := float64(len(seeds)) * days / 7
	t.Logf("%d alarms in %.0f weeks of members: %v", total, weeks, alarms)
	if float64(total) > weeks {
		t.Errorf("%d alarms in %.0f weeks of members", total, weeks)
	}
}

// direction is one of the steps that a signal makes.
type direction struct {
	name   string
	factor func(m *member) float64
	// kinds of signals of which such a step is an anomaly.
	kinds []anomaly.Kind
	// share of the steps that has to be found.
	share float64
}

// Steps of a factor of four to sixteen up, and of work down to an eighth, are found within five
// minutes.
func TestStepsAreFound(t *testing.T) {
	for _, direction := range []direction{
		{"up by four to sixteen", func(m *member) float64 { return 4 * math.Pow(4, m.rand.Float64()) }, []anomaly.Kind{anomaly.Load, anomaly.Errors, anomaly.Waits}, 0.94},
		{"down to an eighth", func(*member) float64 { return 1. / 8 }, []anomaly.Kind{anomaly.Load}, 0.94},
	} {
		t.Run(direction.name, func(t *testing.T) {
			steps, found := 0, 0
			for _, seed := range listSeeds() {
				s, f := stepMember(t, seed, direction)
				steps, found = steps+s, found+f
			}
			t.Logf("%d of %d steps are found within five minutes: %.1f %%", found, steps, 100*float64(found)/float64(steps))
			if steps < 100 || float64(found) < direction.share*float64(steps) {
				t.Errorf("%d of %d steps are found", found, steps)
			}
		})
	}
}

// stepMember makes a step of some signal of a member every few hours, and counts those that
// are found.
func stepMember(t *testing.T, seed uint64, direction direction) (steps, found int) {
	m := newMember(seed)
	signals := m.listSignals(seed)
	d := anomaly.NewDetector(signals, &anomaly.Model{})
	next, begun := m.start.Add(4*24*time.Hour), time.Time{}
	for minute := range days * 1440 {
		now := m.start.Add(time.Duration(minute) * time.Minute)
		if i := m.rand.IntN(len(signals)); now.After(next) && isLearned(m.start, now) && isNoticeable(m, i, signals[i]) && slices.Contains(direction.kinds, signals[i].Kind) {
			begun = now
			m.step(i, direction.factor(m), now.Add(20*time.Minute))
			next = now.Add(time.Duration(3+m.rand.IntN(6)) * time.Hour)
			steps++
		}
		values := m.measure(now)
		if values == nil {
			continue
		}
		for _, a := range d.Add(now, values) {
			if a.Signal.Name == signals[max(m.stepped, 0)].Name && now.Sub(begun) < 5*time.Minute {
				found++
			}
		}
		if now.Sub(begun) == 5*time.Minute && os.Getenv("HOLDFAST_MISSES") != "" {
			t.Logf("member %d, %s: %s", seed, now.Format("Mon 15:04"), signals[m.stepped].Name)
		}
	}
	return steps, found
}

// isLearned says whether the slot has been measured on three weekdays, or on two days of
// weekends.
func isLearned(start, now time.Time) bool {
	isWeekend := func(t time.Time) bool { return t.Weekday() == time.Saturday || t.Weekday() == time.Sunday }
	before := 0
	for t := now.Add(-24 * time.Hour); !t.Before(start.Add(10 * time.Minute)); t = t.Add(-24 * time.Hour) {
		if isWeekend(t) == isWeekend(now) {
			before++
		}
	}
	return before >= 3 || isWeekend(now) && before >= 2
}

// isNoticeable says whether a signal is at least eight times of what makes no difference: less
// is not said to be found.
func isNoticeable(m *member, i int, s anomaly.Signal) bool {
	return m.signals[i].now >= 8*s.Floor && m.signals[i].seldom == 1
}
