package toyengine

import (
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// PlanRestore implements engine.Engine: the first member's volume is filled, and
// the others copy from it.
func (e *Engine) PlanRestore(c *ToyCluster, o memberset.Observation) engine.RestorePlan {
	d, writable, faults := planDesired(c, o)
	return memberset.PlanRestore(membersOf(c), o, d, writable, faults)
}
