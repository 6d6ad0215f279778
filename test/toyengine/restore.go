package toyengine

import (
	"time"

	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// PlanRestore implements engine.Engine: the first member's volume is filled, and
// the others copy from it.
func (e *Engine) PlanRestore(c *ToyCluster, o memberset.Observation) engine.RestorePlan {
	view := memberset.NewView(membersOf(c), o, time.Time{}) // no step is planned, so no time counts
	d, writable, faults := planDesired(c, &view)
	return memberset.PlanRestore(&view, d, writable, faults)
}
