package tune

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

const (
	// dayHours are observed before a trial and in it where the spec does not say how many,
	// and leastMeasured is the share of them that must be measured.
	dayHours      = 24
	leastMeasured = 0.9
	// halfHour is what must be measured of an hour for it to count, in seconds.
	halfHour = 1800
	// mostLoad is how far the load of an hour may be from that of the same hour before, as a
	// factor, for the two to be compared, and mostTotalLoad that of all such hours together.
	mostLoad, mostTotalLoad = 1.5, 1.25
	// leastShare of the symptom must have been in hours that can be compared.
	leastShare = 0.5
	// mostLeft is what may be left of the symptom for a value to stay, and mostCost what the
	// cost may be, each as a share of that before.
	mostLeft, mostCost = 0.75, 1.25
	// hoursForWorse ends a trial that is much worse, once so many hours can be compared.
	hoursForWorse, muchMoreLeft, muchMoreCost = 3, 2, 1.5
	// shareForWorse of the symptom must have been in those hours: a few of them that had
	// hardly any before show nothing.
	shareForWorse = 0.25
	// mostPeriods is how many times the observed hours a trial may take.
	mostPeriods = 4
)

// HoursRead is how long before a trial, or before now where there is none, measurements are
// read: by a baseline, which is an hour more than a day, and by recommendations. Clocks may
// differ by the rest.
const HoursRead = longestEvidence + 2*time.Hour

// period is how many hours are observed, before a trial and in it: each hour is compared
// with the one so many hours before it.
type period int

func (s Spec) period() period { return period(min(max(s.ObserveHours, 1), dayHours)) }

// index of an hour in the period.
func (p period) index(at time.Time) int { return int(at.Unix() / 3600 % int64(p)) }

// least is how many different hours must be measured.
func (p period) least() int { return int(math.Ceil(leastMeasured * float64(p))) }

// baseAge is how long before a trial its baseline may begin.
func (p period) baseAge() time.Duration { return time.Duration(p+1) * time.Hour }

// longest ends a trial whose load is never like that before.
func (p period) longest() time.Duration { return mostPeriods * max(time.Duration(p), 2) * time.Hour }

// measure is by what a trial of a setting is judged. None of it is time: a session reports
// its own only when it ends.
type measure struct {
	// symptom is what a larger value is to lessen, but for the part of it that is other; empty
	// for none. least is what must have been seen of it in the period before.
	symptom, other string
	least          float64
	// load is what the symptom is divided by: it does not depend on the setting.
	load string
	// cost may not rise, for each costLoad: what a larger value could make worse.
	cost     []string
	costLoad string
	// words for the symptom by its load, and for the cost.
	words, costWords string
}

// findTried is the rule of a setting that may be tried: one that takes no restart.
func findTried(e Engine, name string) *rule {
	if r := findRule(e, name); r != nil && r.trial != nil && !r.restart {
		return r
	}
	return nil
}

// IsTried says whether a value is one of a setting that may be tried, as it is written.
func IsTried(e Engine, name, value string) bool {
	r := findTried(e, name)
	if r == nil {
		return false
	}
	v, known := r.parse(value)
	return known && r.format(v) == value
}

// isClose says whether a value that is in force is the one that was written.
func (r rule) isClose(setting, written float64) bool {
	return math.Abs(written-setting) < max(r.rounding, 1)
}

// splitTrial finds the hours with the value of a trial, up to now, and the period before
// them with the value before it. No other setting may differ.
func (r rule) splitTrial(slots []agentapi.TuningSlot, t Trial, p period) (base, tried []agentapi.TuningSlot) {
	from, fromKnown := r.parse(t.From)
	value, known := r.parse(t.Value)
	if !known || !fromKnown || len(slots) == 0 {
		return nil, nil
	}
	others := slots[len(slots)-1].Settings
	i := len(slots)
	for i > 0 && r.isClose(slots[i-1].Settings[r.name], value) && r.sameOthers(slots[i-1].Settings, others) {
		i--
	}
	tried = slots[i:]
	if len(tried) == 0 {
		return nil, nil
	}
	end := i
	for i > 0 && r.isClose(slots[i-1].Settings[r.name], from) && r.sameOthers(slots[i-1].Settings, others) &&
		tried[0].Start.Sub(slots[i-1].Start) < p.baseAge() {
		i--
	}
	return slots[i:end], tried
}

// listBefore are the slots of the last period in which every setting was what it is now.
func listBefore(slots []agentapi.TuningSlot, p period) []agentapi.TuningSlot {
	last := slots[len(slots)-1]
	i := len(slots)
	for i > 0 && maps.Equal(slots[i-1].Settings, last.Settings) && last.End.Sub(slots[i-1].Start) < p.baseAge() {
		i--
	}
	return slots[i:]
}

func (r rule) sameOthers(a, b map[string]float64) bool {
	for name, value := range a {
		if other, is := b[name]; name != r.name && (!is || other != value) {
			return false
		}
	}
	return len(a) == len(b)
}

// hourly adds slots up by the hour that they are in.
func hourly(slots []agentapi.TuningSlot) map[time.Time]agentapi.TuningSlot {
	hours := map[time.Time]agentapi.TuningSlot{}
	for _, slot := range slots {
		if !isHourly(slot) {
			continue
		}
		at := slot.End.Add(-time.Nanosecond).UTC().Truncate(time.Hour)
		if part, is := hours[at]; is {
			slot.Seconds += part.Seconds
			slot.Sums = maps.Clone(slot.Sums)
			for name, value := range part.Sums {
				slot.Sums[name] += value
			}
		}
		hours[at] = slot
	}
	maps.DeleteFunc(hours, func(_ time.Time, slot agentapi.TuningSlot) bool { return slot.Seconds < halfHour })
	return hours
}

// isHourly says whether a slot is of at most an hour and counts transactions. An agent of an
// earlier release adds hours up, and counts none.
func isHourly(slot agentapi.TuningSlot) bool {
	_, counts := slot.Sums[agentapi.TuningTransactions]
	return counts && slot.End.Sub(slot.Start) <= time.Hour+time.Minute
}

// covers says whether enough was measured of enough hours of the period.
func (p period) covers(slots []agentapi.TuningSlot) bool {
	measured := map[int]bool{}
	for at := range hourly(slots) {
		measured[p.index(at)] = true
	}
	return len(measured) >= p.least()
}

// isBaseline says whether slots are a period with which a trial can be compared.
func (q measure) isBaseline(slots []agentapi.TuningSlot, p period) bool {
	symptom := 0.0
	for _, slot := range slots {
		symptom += q.sumSymptom(slot)
	}
	return symptom >= q.least && p.covers(slots)
}

// comparison is a trial beside the period before it, hour by hour.
type comparison struct {
	// hours that could be compared: those with a load like that of the same hour before.
	hours int
	// left is the share of the symptom that is left for the load, and cost that of the cost.
	left, cost float64
	// share of the symptom before that was in such hours, and load of all of them together
	// as a share of that before.
	share, load float64
	// symptom before that was in such hours.
	symptom float64
	// costKnown says that in half of the hours there was a cost before, and something to
	// divide it by.
	costKnown bool
}

// compare compares each hour with the one that a period was before it, at the load that it
// had.
func (q measure) compare(base, tried []agentapi.TuningSlot, p period) comparison {
	before := map[int]agentapi.TuningSlot{}
	inOrder(hourly(base), func(at time.Time, slot agentapi.TuningSlot) { before[p.index(at)] = slot })
	var c comparison
	var left, cost, load ratio
	compared := map[int]bool{}
	costHours := 0
	inOrder(hourly(tried), func(at time.Time, now agentapi.TuningSlot) {
		then := before[p.index(at)]
		same := then.Seconds / now.Seconds // of what was measured
		grown := now.Sums[q.load] / then.Sums[q.load] * same
		if !isLike(grown) {
			return
		}
		c.hours++
		compared[p.index(at)] = true
		left.add(q.sumSymptom(now), q.sumSymptom(then)*grown/same)
		load.add(now.Sums[q.load], then.Sums[q.load]/same)
		if then.Sums[q.costLoad] > 0 && now.Sums[q.costLoad] > 0 {
			costHours++
			cost.add(q.sumCost(now), q.sumCost(then)/then.Sums[q.costLoad]*now.Sums[q.costLoad])
		}
	})
	var share ratio
	for hour := range int(p) {
		symptom := q.sumSymptom(before[hour])
		share.add(0, symptom)
		if compared[hour] {
			share.add(symptom, 0)
		}
	}
	c.share, c.symptom, c.costKnown = share.share(), share.is, cost.was > 0 && 2*costHours >= c.hours
	c.left, c.cost, c.load = left.share(), cost.share(), load.share()
	return c
}

// inOrder visits hours, the oldest first: sums of floating-point numbers depend on it.
func inOrder(hours map[time.Time]agentapi.TuningSlot, visit func(time.Time, agentapi.TuningSlot)) {
	for _, at := range slices.SortedFunc(maps.Keys(hours), time.Time.Compare) {
		visit(at, hours[at])
	}
}

// isLike says whether a load that is so many times that before can be compared with it. It is
// no number where there was none.
func isLike(grown float64) bool { return grown <= mostLoad && grown >= 1/mostLoad }

func (q measure) sumSymptom(slot agentapi.TuningSlot) float64 {
	return max(slot.Sums[q.symptom]-slot.Sums[q.other], 0)
}

func (q measure) sumCost(slot agentapi.TuningSlot) (sum float64) {
	for _, name := range q.cost {
		sum += slot.Sums[name]
	}
	return sum
}

// ratio is what was, and what it would have been.
type ratio struct{ is, was float64 }

func (r *ratio) add(is, was float64) { r.is, r.was = r.is+is, r.was+was }

// share is 1 where there was nothing.
func (r *ratio) share() float64 {
	if r.was <= 0 {
		return 1
	}
	return r.is / r.was
}

// isComparable says whether enough of the load was like that before.
func (c comparison) isComparable() bool {
	return c.costKnown && c.share >= leastShare && c.load <= mostTotalLoad && c.load >= 1/mostTotalLoad
}

// isMuchWorse says that the rest of the period is not needed.
func (c comparison) isMuchWorse(q measure) bool {
	isMore := c.left > muchMoreLeft && c.symptom >= q.least && c.share >= shareForWorse
	return c.hours >= hoursForWorse && (c.cost > muchMoreCost || isMore)
}

// describe says what a trial showed.
func (q measure) describe(c comparison) string {
	return fmt.Sprintf("in %d hours there were %.0f %% of the %s that the same hours had before, and %.0f %% of the %s",
		c.hours, 100*c.left, q.words, 100*c.cost, q.costWords)
}
