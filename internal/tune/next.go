package tune

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

const (
	// worseCost is by what factor work may cost more after a change.
	worseCost = 1.15
	// betterSymptom is the share of a symptom that may be left, and betterCost that of the
	// cost, for a change to have shown its use. One of them is enough.
	betterSymptom, betterCost = 0.8, 0.95
	// leastParts is the share of the parts of a day that must have been measured before
	// and after.
	leastParts = 0.5
)

// Next is the state to persist, and what to say. At most one setting changes. What changes
// takes effect once the state is persisted.
func Next(s Spec, e Evidence, st State, was []Recommendation, now time.Time) (State, []Recommendation) {
	next := st.clone()
	next.dropDeclared(s)
	maps.DeleteFunc(next.Quarantine, func(_ string, until time.Time) bool { return !now.Before(until) })
	if s.Mode != Apply {
		next.Tuned, next.Trial = nil, nil
		return next, next.report(s, e, was, now)
	}
	switch t := next.Trial; {
	case t != nil && (e.Broken || strings.Contains(e.Refused, t.Name)):
		next.rollBack(s, now) // now: the database does not serve with it
	case t != nil && t.Failed != "":
		if s.Open || !findRule(s.Engine, t.Name).restart {
			next.rollBack(s, now)
		}
	case t != nil:
		next.judgeTrial(s, e, now)
	case s.Open && e.Settled && e.Refused == "" && !e.Broken:
		next.beginTrial(s, e, was, now)
	}
	return next, next.report(s, e, was, now)
}

// dropDeclared forgets what the spec declares now, or excludes: it is no longer ours.
func (st *State) dropDeclared(s Spec) {
	gone := func(name string) bool { return !s.mayChange(name) }
	maps.DeleteFunc(st.Tuned, func(name, _ string) bool { return gone(name) })
	if st.Trial != nil && gone(st.Trial.Name) {
		st.Trial = nil
	}
}

// beginTrial begins with the most urgent advice for which a whole day was measured.
func (st *State) beginTrial(s Spec, e Evidence, was []Recommendation, now time.Time) {
	for _, advice := range Recommendations(s, e, was, st.Quarantine, now) {
		if !s.mayChange(advice.Name) {
			continue
		}
		r := findRule(s.Engine, advice.Name)
		baseline := measure(s, e.Slots, *r, now.Add(-s.Times.Observe), now)
		if !isWhole(s, baseline) {
			continue
		}
		st.Trial = &Experiment{
			Name: advice.Name, Value: advice.Value, Before: advice.Current, Evidence: advice.Evidence,
			Began: now.UTC().Truncate(time.Second), Baseline: baseline,
		}
		return
	}
}

// judgeTrial keeps a change that has shown its use, and takes back any other, once it was
// observed for as long as the time before.
func (st *State) judgeTrial(s Spec, e Evidence, now time.Time) {
	t, r := st.Trial, findRule(s.Engine, st.Trial.Name)
	since := now.Sub(t.Began)
	if since >= 0 && since < s.Times.Observe {
		return
	}
	value, _ := r.parse(t.Value)
	var slots []agentapi.TuningSlot
	for _, slot := range e.Slots {
		if slot.Settings[t.Name] > value-r.unit && slot.Settings[t.Name] < value+r.unit {
			slots = append(slots, slot)
		}
	}
	after := measure(s, slots, *r, t.Began, now)
	verdict, known := compare(s, t.Baseline, after)
	switch {
	case !known && since < s.Times.GiveUp:
		return
	case !known:
		t.Failed = "too little was measured to show its use"
	case verdict != "":
		t.Failed = verdict
	default:
		if st.Tuned == nil {
			st.Tuned = map[string]string{}
		}
		st.Tuned[t.Name] = t.Value
		st.Trial = nil
		return
	}
	if s.Open || !r.restart {
		st.rollBack(s, now)
	}
}

// rollBack ends a trial: what was in force before is again, and the setting is left alone.
func (st *State) rollBack(s Spec, now time.Time) {
	if st.Quarantine == nil {
		st.Quarantine = map[string]time.Time{}
	}
	st.Quarantine[st.Trial.Name] = now.UTC().Truncate(time.Second).Add(s.Times.Quarantine)
	st.Trial = nil
}

// measure sums up what was measured between two times, by the part of the day.
func measure(s Spec, slots []agentapi.TuningSlot, r rule, from, until time.Time) []Measured {
	parts := map[int]Measured{}
	for _, slot := range slots {
		if slot.Start.Before(from) || slot.Start.After(until) {
			continue
		}
		part := int(slot.Start.Unix() / int64(s.Times.Slot/time.Second) % int64(s.Times.Observe/s.Times.Slot))
		m := parts[part]
		work := slot.Sums[agentapi.TuningWork]
		if s.Engine == Etcd {
			work = slot.Sums[agentapi.TuningSamples]
		}
		m.Part = part
		m.Seconds += slot.Seconds
		m.Work += work
		m.Cost += slot.Sums[agentapi.TuningCost]
		m.Symptom += slot.Sums[r.symptom]
		parts[part] = m
	}
	var list []Measured
	for _, part := range slices.Sorted(maps.Keys(parts)) {
		list = append(list, parts[part])
	}
	return list
}

func isWhole(s Spec, parts []Measured) bool {
	return float64(len(parts)) >= leastParts*float64(s.Times.Observe/s.Times.Slot)
}

// compare says what speaks against a change; known is false where too few of the same
// parts of the day were measured before and after.
func compare(s Spec, before, after []Measured) (verdict string, known bool) {
	byPart := map[int]Measured{}
	for _, m := range after {
		byPart[m.Part] = m
	}
	var was, is Measured
	var common []Measured
	for _, b := range before {
		a, both := byPart[b.Part]
		if !both || a.Work <= 0 || b.Work <= 0 {
			continue
		}
		common = append(common, a)
		was.Work, was.Cost, was.Symptom = was.Work+b.Work, was.Cost+b.Cost, was.Symptom+b.Symptom
		is.Work, is.Cost, is.Symptom = is.Work+a.Work, is.Cost+a.Cost, is.Symptom+a.Symptom
	}
	if !isWhole(s, common) {
		return "", false
	}
	cost, symptom := share(is.Cost/is.Work, was.Cost/was.Work), share(is.Symptom/is.Work, was.Symptom/was.Work)
	switch {
	case cost > worseCost:
		return fmt.Sprintf("statements took %.0f %% longer than in the same hours before", 100*(cost-1)), true
	case symptom > betterSymptom && cost > betterCost:
		return fmt.Sprintf("%.0f %% of what it was to lessen were left, compared with the same hours before", 100*symptom), true
	}
	return "", true
}

// share of what was; 1 where nothing was.
func share(is, was float64) float64 {
	if was <= 0 {
		return 1
	}
	return is / was
}

// report is what to say: what is tried and applied, what was taken back, and advice.
func (st State) report(s Spec, e Evidence, was []Recommendation, now time.Time) []Recommendation {
	if s.Mode == Off {
		return nil
	}
	var list []Recommendation
	said := map[string]bool{}
	say := func(next Recommendation) {
		if said[next.Name] {
			return
		}
		said[next.Name] = true
		r := findRule(s.Engine, next.Name)
		next.Field, next.Restart = r.field, r.restart
		if before := findRecommendation(was, next.Name, next.State); before != nil && before.Value == next.Value {
			if next.Since.IsZero() {
				next.Since = before.Since
			}
			if next.Evidence == "" {
				next.Evidence = before.Evidence
			}
			if next.Current == "" {
				next.Current = before.Current
			}
		}
		if next.Since.IsZero() {
			next.Since = now.UTC().Truncate(time.Second)
		}
		list = append(list, next)
	}
	if t := st.Trial; t != nil {
		evidence := t.Evidence
		if t.Failed != "" {
			evidence = "it is taken back when the window opens: " + t.Failed
		}
		say(Recommendation{Name: t.Name, State: Trial, Current: t.Before, Value: t.Value, Evidence: evidence, Since: t.Began})
	}
	for _, name := range slices.Sorted(maps.Keys(st.Tuned)) {
		next := Recommendation{Name: name, State: Applied, Value: st.Tuned[name]}
		if tried := findRecommendation(was, name, Trial); tried != nil {
			next.Current, next.Evidence = tried.Current, tried.Evidence
		}
		say(next)
	}
	for _, name := range slices.Sorted(maps.Keys(st.Quarantine)) {
		next := Recommendation{Name: name, State: RolledBack, Since: st.Quarantine[name].Add(-s.Times.Quarantine)}
		next.Evidence = "it is left alone until " + st.Quarantine[name].UTC().Format(time.DateOnly)
		say(next)
	}
	for _, advice := range Recommendations(s, e, was, st.Quarantine, now) {
		if !said[advice.Name] {
			list = append(list, advice)
		}
	}
	return list
}

// NextCheck is when the state changes by the time alone; 0 for never.
func NextCheck(s Spec, st State, now time.Time) time.Duration {
	var first time.Duration
	consider := func(at time.Time) {
		if wait := at.Sub(now); wait > 0 && (first == 0 || wait < first) {
			first = wait
		}
	}
	if st.Trial != nil {
		consider(st.Trial.Began.Add(s.Times.Observe))
		consider(st.Trial.Began.Add(s.Times.GiveUp))
	}
	for _, until := range st.Quarantine {
		consider(until)
	}
	return first
}
