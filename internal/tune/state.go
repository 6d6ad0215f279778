package tune

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// State is what must survive a restart of the operator. It is persisted before a value of
// it takes effect.
type State struct {
	// Tuned are values that have shown their use, by setting.
	Tuned map[string]string `json:"tuned,omitempty"`
	// Trial is the one change that is observed now; nil for none.
	Trial *Experiment `json:"trial,omitempty"`
	// Quarantine is until when settings are left alone that were taken back.
	Quarantine map[string]time.Time `json:"quarantine,omitempty"`
}

// Experiment is a change that is observed.
type Experiment struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Before is the value that was in force.
	Before string `json:"before"`
	// Evidence is what spoke for it.
	Evidence string    `json:"evidence"`
	Began    time.Time `json:"began"`
	// Baseline is what was measured in the time before, by the part of the day.
	Baseline []Measured `json:"baseline"`
	// Failed says why it is taken back when the window opens; empty while it is observed.
	Failed string `json:"failed,omitempty"`
}

// Measured is a part of the day.
type Measured struct {
	// Part of the time that is observed, from 0.
	Part    int     `json:"part"`
	Seconds float64 `json:"seconds"`
	Work    float64 `json:"work"`
	Cost    float64 `json:"cost"`
	Symptom float64 `json:"symptom"`
}

// IsEmpty says whether there is nothing to remember.
func (st State) IsEmpty() bool {
	return len(st.Tuned) == 0 && st.Trial == nil && len(st.Quarantine) == 0
}

// Encode is the state as it is persisted; nil of an empty one.
func (st State) Encode() []byte {
	if st.IsEmpty() {
		return nil
	}
	text, err := json.MarshalIndent(st, "", "  ")
	if err != nil {
		panic("a state always marshals: " + err.Error())
	}
	return append(text, '\n')
}

// DecodeState reads a state. Another client may have changed it: what is none of the
// engine's rules, or no value of one, is dropped.
func DecodeState(e Engine, text []byte) State {
	var st State
	if json.Unmarshal(text, &st) != nil {
		return State{}
	}
	valid := func(name, value string) bool {
		r := findRule(e, name)
		if r == nil {
			return false
		}
		number, is := r.parse(value)
		return is && r.format(number) == value
	}
	maps.DeleteFunc(st.Tuned, func(name, value string) bool { return !valid(name, value) })
	maps.DeleteFunc(st.Quarantine, func(name string, _ time.Time) bool { return findRule(e, name) == nil })
	if t := st.Trial; t != nil && (!valid(t.Name, t.Value) || !isStep(findRule(e, t.Name), t.Before, t.Value)) {
		st.Trial = nil
	}
	return st
}

// isStep says whether a change is no larger than one may be.
func isStep(r *rule, before, value string) bool {
	was, known := r.parse(before)
	is, also := r.parse(value)
	return known && also && is <= was*MostStep
}

// clone shares nothing with st.
func (st State) clone() State {
	next := State{Tuned: maps.Clone(st.Tuned), Quarantine: maps.Clone(st.Quarantine)}
	if st.Trial != nil {
		trial := *st.Trial
		trial.Baseline = slices.Clone(trial.Baseline)
		next.Trial = &trial
	}
	return next
}

// Values are what is to be in force beside what the spec declares, which wins: none but in
// mode Apply, and none of a setting that is declared or excluded, or too large for the memory.
func (st State) Values(s Spec) map[string]string {
	if s.Mode != Apply {
		return nil
	}
	values := map[string]string{}
	take := func(name, value string) {
		r := findRule(s.Engine, name)
		if r == nil || !s.mayChange(name) || r.memory && s.Memory <= 0 {
			return
		}
		if number, is := r.parse(value); is && number <= r.most(s)+r.unit/2 {
			values[name] = value
		}
	}
	for name, value := range st.Tuned {
		take(name, value)
	}
	if t := st.Trial; t != nil {
		take(t.Name, t.Value)
	}
	fitEnvelope(s, values)
	return values
}

// fitEnvelope drops values, from the least urgent setting on, until those that are left
// keep in the envelope by themselves: a limit may have been lowered.
func fitEnvelope(s Spec, values map[string]string) {
	for _, r := range slices.Backward(rules(s.Engine)) {
		settings := map[string]float64{}
		for name, value := range values {
			settings[name], _ = findRule(s.Engine, name).parse(value)
		}
		if _, is := values[r.name]; is && r.memory && memoryUse(s.Engine, settings, nil) > MemoryShare*float64(s.Memory) {
			delete(values, r.name)
		}
	}
}

// Merge puts what the spec declares over tuned values. It changes neither.
func Merge(tuned, declared map[string]string) map[string]string {
	if len(tuned) == 0 {
		return declared
	}
	merged := maps.Clone(tuned)
	maps.Copy(merged, declared)
	return merged
}
