package tune

import "time"

// longestRollBack is how long a member may have a value that was rolled back before it counts as
// one that does not follow.
const longestRollBack = 10 * time.Minute

// State is what is remembered of a cluster's tuned settings. What is not in it is not tuned.
type State struct {
	// Settings that were tried and stay.
	Settings []Tuned
	// Trial that is under way; nil for none.
	Trial *Trial
	// Resting are settings that are not tried for a time.
	Resting []Resting
}

// IsEmpty says that nothing is remembered.
func (st State) IsEmpty() bool {
	return st.Trial == nil && len(st.Settings) == 0 && len(st.Resting) == 0
}

// Tuned is a value that stays, since its trial showed it to be better.
type Tuned struct {
	Name, Value string
	// From is the value before the trial, and Evidence what the trial showed.
	From, Evidence string
	// Basis is Spec.Basis when the trial ended.
	Basis string
	Since time.Time
}

// Trial is a value that is in force to see whether it is better.
type Trial struct {
	Name, Value string
	// From is the value before, to which a rollback returns, and Evidence what spoke for
	// another one.
	From, Evidence string
	// Primary is the member whose load is compared, and SpecHash is Spec.Hash at the start.
	Primary, SpecHash string
	Since             time.Time
}

// Resting is a setting that is not tried before a time.
type Resting struct {
	Name string
	// Value that was tried, and Reason why it does not stay.
	Value, Reason string
	// Quarantined says that it was tried and is no better.
	Quarantined bool
	// Since is when the value before was in force again.
	Since, Until time.Time
}

// Effective is which settings are tuned, by name: what is remembered, as far as the spec
// allows it now. It is all that settings in force are computed from: none is one that the
// spec declares or excludes, or that no rule tries, also where another client wrote what is remembered.
func Effective(s Spec, st State) map[string]string {
	tuned := map[string]string{}
	for _, t := range st.Settings {
		if _, known := tuned[t.Name]; !known && s.explainRelease(t) == "" {
			tuned[t.Name] = t.Value
		}
	}
	if t := st.Trial; t != nil && s.explainEnd(*t) == "" {
		tuned[t.Name] = t.Value
	}
	return tuned
}

// mergeTuned are the settings that are declared or tuned, by name.
func (s Spec) mergeTuned(st State) map[string]string {
	all := Effective(s, st)
	for name, value := range s.Declared {
		all[name] = value
	}
	return all
}

// EarlierValues are sets of tuned settings that were in force before the last step, as far
// as the state tells: a member that has one of them is about to take up what is in force.
// One that was rolled back counts for a short time only: after it, a member that still has it
// does not follow.
func EarlierValues(s Spec, st State, now time.Time) []map[string]string {
	tuned := Effective(s, st)
	without := st
	without.Trial = nil
	var sets []map[string]string
	if _, tries := tuned[trialName(st)]; tries {
		sets = append(sets, Effective(s, without))
	}
	for _, r := range st.Resting {
		set := Effective(s, st)
		if r.isRollingBack(now) && set[r.Name] != r.Value {
			set[r.Name] = r.Value
			sets = append(sets, set)
		}
	}
	return sets
}

// isRollingBack says whether members may still have the value.
func (r Resting) isRollingBack(now time.Time) bool {
	age := now.Sub(r.Since)
	return age >= 0 && age < longestRollBack
}

// ListRolledBack are the settings of which members may still have a value that was rolled
// back, by name.
func ListRolledBack(st State, now time.Time) []string {
	var names []string
	for _, r := range st.Resting {
		if r.isRollingBack(now) {
			names = append(names, r.Name)
		}
	}
	return names
}

// RollBackCheck is when to look again whether members still have a value that was rolled
// back; 0 for never.
func RollBackCheck(st State, now time.Time) (wait time.Duration) {
	for _, r := range st.Resting {
		if left := r.Since.Add(longestRollBack).Sub(now); left > 0 && left <= longestRollBack && (wait == 0 || left < wait) {
			wait = left
		}
	}
	return wait
}

func trialName(st State) string {
	if st.Trial == nil {
		return ""
	}
	return st.Trial.Name
}

// Unproposed are the settings that are not recommended to people while Apply decides about
// them: the one that is tried, and those that were tried and are no better.
func Unproposed(st State) []string {
	var names []string
	if st.Trial != nil {
		names = append(names, st.Trial.Name)
	}
	for _, r := range st.Resting {
		if r.Quarantined {
			names = append(names, r.Name)
		}
	}
	return names
}
