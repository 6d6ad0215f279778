// Package parameters has what the agents of all engines do alike with the parameters that
// a cluster declares: what the database says of those that it does not take, and what to
// start with instead.
package parameters

import "maps"

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
