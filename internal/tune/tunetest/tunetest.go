// Package tunetest is what tests of recommendations share.
package tunetest

import (
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/tune"
)

// RecommendSetting is what is recommended for one setting when the last slot ends; nil for
// nothing.
func RecommendSetting(spec tune.Spec, slots []agentapi.TuningSlot, name string) *tune.Recommendation {
	for _, r := range tune.Recommend(spec, slots, nil, slots[len(slots)-1].End) {
		if r.Name == name {
			return &r
		}
	}
	return nil
}
