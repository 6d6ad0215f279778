// Package parameters has what the agents of all engines do alike with the parameters that
// a cluster declares: what the database says of those that it does not take, and what to
// start with instead.
package parameters

import (
	"maps"
	"slices"
)

// Refusal is what the database says of parameters that it does not take.
type Refusal struct{ Message string }

func (r *Refusal) Error() string { return r.Message }

// ListCandidates lists the parameters to start with, in order: the declared ones, those
// that worked last, none.
func ListCandidates(declared, proven map[string]string) []map[string]string {
	list := []map[string]string{declared}
	if proven != nil && !maps.Equal(proven, declared) {
		list = append(list, proven)
	}
	if len(declared) > 0 && (proven == nil || len(proven) > 0) {
		list = append(list, map[string]string{})
	}
	return list
}

// Tuned are parameters that the database ran with, and which of them were tuned: their values
// by name.
type Tuned struct{ Parameters, Values map[string]string }

// ReadTuned are the tuned ones of parameters.
func ReadTuned(parameters map[string]string, names []string) Tuned {
	t := Tuned{Parameters: parameters}
	for _, name := range names {
		if value, is := parameters[name]; is {
			if t.Values == nil {
				t.Values = map[string]string{}
			}
			t.Values[name] = value
		}
	}
	return t
}

// Follow replaces what is tuned otherwise now, by the parameters that are declared or tuned and
// the names of those that are tuned. A declared parameter that is refused keeps all others as
// they were, but a value that was rolled back must not stay with them: one that is no longer
// tuned is left out, also where it is declared otherwise.
func (t Tuned) Follow(next map[string]string, names []string) Tuned {
	followed := Tuned{Parameters: maps.Clone(t.Parameters), Values: maps.Clone(t.Values)}
	for name, value := range t.Values {
		wanted, is := next[name]
		switch {
		case t.Parameters[name] != value, is && wanted == value:
		case is && slices.Contains(names, name):
			followed.Parameters[name], followed.Values[name] = wanted, wanted
		default:
			delete(followed.Parameters, name)
			delete(followed.Values, name)
		}
	}
	return followed
}
