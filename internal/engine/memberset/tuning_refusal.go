package memberset

import (
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/tune"
)

// isTuningRefusal says whether a member refuses a tuned value, and nothing else. A trial ends
// by that, and nothing in the spec is wrong. A member goes on to report it until it has taken
// up what is in force again.
func (view *View) isTuningRefusal(fault string) bool {
	if view.Cluster.Common().Tuning.Mode != v1alpha1.TuningApply {
		return false
	}
	state := readTuning(view.Cluster.CommonStatus().Tuning)
	if state.Trial != nil && refusesOnly(fault, state.Trial.Name) {
		return true
	}
	// With a generation that is not rolled out yet, a person may have declared the setting.
	return condition.RolledOut(view.Cluster) && slices.ContainsFunc(tune.ListRolledBack(state, view.Now), func(name string) bool {
		return refusesOnly(fault, name)
	})
}

// refusesSetting says whether a refusal is about a setting, among others maybe.
func refusesSetting(fault, name string) bool {
	return slices.ContainsFunc(splitRefusal(fault), func(part string) bool { return isAbout(part, name) })
}

// refusesOnly says whether a refusal is about a setting, and about no other.
func refusesOnly(fault, name string) bool {
	parts := splitRefusal(fault)
	return len(parts) > 0 && !slices.ContainsFunc(parts, func(part string) bool { return !isAbout(part, name) })
}

// splitRefusal are the refusals of an agent's report: one for each setting.
func splitRefusal(fault string) []string {
	if fault == "" {
		return nil
	}
	return strings.Split(fault, "; ")
}

// refusedName is the setting that a refusal begins with, where the agent knows which one is
// wrong. What it does not know is in the server's words, which quote names.
var refusedName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_.-]*): `)

func isAbout(part, name string) bool {
	if named := refusedName.FindStringSubmatch(part); named != nil {
		return strings.EqualFold(named[1], name)
	}
	return name != "" && strings.Contains(part, `"`+name+`"`)
}
