package tune

import (
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Recommendation is a value that a setting should have.
type Recommendation struct {
	// Name of the setting, and Field of the spec that declares it.
	Name, Field string
	// Current is what is in force, and Value what should be; empty where something speaks for
	// a larger value and the memory or the volume allows none.
	Current, Value string
	// Evidence says what speaks for it.
	Evidence string
	// Restart says that the members restart for it.
	Restart bool
	// Since is when it was first given.
	Since time.Time
	// Untried says why mode Apply does not try it; nil where it may, and with another mode.
	Untried *Untried
}

// leastStay is how long a recommendation stays without evidence, from when it was given: a
// load that comes and goes does not have it written and removed again and again.
const leastStay = 24 * time.Hour

// Recommend returns what the members' measurements speak for, the most urgent first. Those
// that were given before stay as they were, in words too, while they hold. They go at once
// when another value of the setting is declared, before the members have it.
func Recommend(s Spec, slots []agentapi.TuningSlot, was []Recommendation, now time.Time) []Recommendation {
	if s.Off {
		return nil
	}
	slots = listFresh(slots, now)
	var list []Recommendation
	for _, r := range rules(s.Engine) {
		before := findRecommendation(was, r.name)
		if before != nil && before.Value != "" && s.Declared[r.name] == before.Value {
			before = nil // it was followed
		}
		next := before // where no member has measured yet, as after a start of the operator
		switch {
		case s.excludes(r.name):
			next = nil
		case len(slots) > 0:
			next = r.recommend(s, observeSetting(slots, r.name), before, now)
		}
		if next != nil {
			list = append(list, *next)
		}
	}
	return list
}

func (r rule) recommend(s Spec, o observed, before *Recommendation, now time.Time) *Recommendation {
	current := o.settings[r.name]
	if current <= 0 {
		return nil
	}
	if !r.isMeasured(s.Declared[r.name], o) {
		return nil // the slots are of an earlier value
	}
	if before != nil && before.Current != r.format(current) {
		before = nil // the setting is another one
	}
	value, text := r.propose(s, o), ""
	switch {
	case value > 0:
		text = r.format(value)
	case !s.Apply || findTried(s.Engine, r.name) == nil:
		return nil
	}
	evidence := ""
	if o.seconds >= leastObserved {
		evidence = r.judge(o, current)
	}
	if before != nil && r.holds(*before, value, evidence != "" || o.seconds < leastObserved, now) {
		return before
	}
	if evidence == "" {
		return nil
	}
	return &Recommendation{
		Name: r.name, Field: r.field, Current: r.format(current), Value: text, Evidence: shorten(evidence, longestEvidenceText),
		Restart: r.restart, Since: now.UTC().Truncate(time.Second),
	}
}

// holds says whether what was recommended still is, where as much as value could be: 0 for
// nothing.
func (r rule) holds(before Recommendation, value float64, supported bool, now time.Time) bool {
	was, known := r.parse(before.Value)
	return (known && was <= value || before.Value == "" && value == 0) && (supported || now.Sub(before.Since) < leastStay)
}

func findRecommendation(list []Recommendation, name string) *Recommendation {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}
