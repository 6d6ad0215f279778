package forecast

import (
	"slices"
	"strconv"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/forecast/settings"
)

// pendingParameters are the parameters, sorted, that a member's database was started
// without, by the effects of an engine's settings. What is not known is taken to need a
// restart.
func (w *World) pendingParameters(ordinal int, effect func(name string) settings.Effect) []string {
	var pending []string
	for _, name := range agentapi.ListDifferences(w.lifeOf(ordinal).parameters, w.ReadConfig().Parameters) {
		if e := effect(name); e == settings.Restart || e == settings.Unknown {
			pending = append(pending, name)
		}
	}
	return pending
}

// floorSettings are PostgreSQL's that a standby must have at least as large as its
// primary, with what Holdfast sets where they are not declared.
var floorSettings = map[string]int64{
	"max_connections": 100, "max_worker_processes": 8, "max_wal_senders": 20, "max_prepared_transactions": 0, "max_locks_per_transaction": 64,
}

// floorOf a setting in parameters; false for one that is no such setting, or is no number.
func floorOf(parameters map[string]string, name string) (int64, bool) {
	byDefault, is := floorSettings[name]
	text, declared := parameters[name]
	if !is || !declared {
		return byDefault, is
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// listLowered are the settings of a list that a member's database runs with higher than
// declared, and that no standby may have lower than its primary.
func (w *World) listLowered(ordinal int, names []string) []string {
	now, next := w.lifeOf(ordinal).parameters, w.ReadConfig().Parameters
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		have, known := floorOf(now, name)
		want, is := floorOf(next, name)
		return !known || !is || want >= have
	})
}
