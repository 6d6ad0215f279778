package tune

import (
	"slices"
	"time"
)

// States of a Recommendation.
const (
	// Open: a person may commit it.
	Open = "Open"
	// Trial: it is in force, and observed.
	Trial = "Trial"
	// Applied: it is in force, and has shown its use.
	Applied = "Applied"
	// RolledBack: it was in force, and was taken back.
	RolledBack = "RolledBack"
)

// Recommendation is a value that a setting should have.
type Recommendation struct {
	// Name of the setting, and Field of the spec that declares it.
	Name, Field string
	// Current is what is in force, or was, and Value what should be.
	Current, Value string
	// Evidence says what speaks for it.
	Evidence string
	// Restart says that the members restart for it.
	Restart bool
	State   string
	// Since is when it came into its state.
	Since time.Time
}

// evidenceAge is how long advice stays after the evidence for it was last seen to begin.
const evidenceAge = 24 * time.Hour

// Recommendations are what the evidence speaks for, the most urgent first. Those that
// were given before stay as they were, in words too, while they hold; those for which there
// is no evidence any more stay for a day.
func Recommendations(s Spec, e Evidence, was []Recommendation, quarantine map[string]time.Time, now time.Time) []Recommendation {
	if s.Mode == Off {
		return nil
	}
	var list []Recommendation
	settings := e.current()
	for _, r := range rules(s.Engine) {
		if slices.Contains(s.Exclude, r.name) || now.Before(quarantine[r.name]) {
			continue
		}
		before := findRecommendation(was, r.name, Open)
		if settings == nil {
			// No member has measured anything yet, as after a restart of the operator.
			if before != nil && s.Declared[r.name] != before.Value {
				list = append(list, *before)
			}
			continue
		}
		if next := r.recommend(s, e, before, now); next != nil {
			list = append(list, *next)
		}
	}
	return list
}

func (r rule) recommend(s Spec, e Evidence, before *Recommendation, now time.Time) *Recommendation {
	o := e.observeSetting(r.name)
	current, known := o.settings[r.name]
	if !known || current <= 0 {
		return nil
	}
	if before != nil && (before.Current != r.format(current) || s.Declared[r.name] == before.Value) {
		before = nil // it was followed, or the setting is another one
	}
	value, evidence := r.propose(s, o), ""
	if value == 0 {
		return nil
	}
	if o.seconds >= leastObserved {
		evidence = r.judge(o, current)
	}
	if before != nil {
		if was, is := r.parse(before.Value); is && was <= value && (evidence != "" || now.Sub(before.Since) < evidenceAge) {
			return before
		}
	}
	if evidence == "" {
		return nil
	}
	return &Recommendation{
		Name: r.name, Field: r.field, Current: r.format(current), Value: r.format(value), Evidence: evidence,
		Restart: r.restart, State: Open, Since: now.UTC().Truncate(time.Second),
	}
}

func findRecommendation(list []Recommendation, name, state string) *Recommendation {
	for i := range list {
		if list[i].Name == name && list[i].State == state {
			return &list[i]
		}
	}
	return nil
}
