package postgres

import (
	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// PlanRestore implements engine.Engine.
func (e *Engine) PlanRestore(c *v1alpha1.PostgresCluster, o memberset.Observation) engine.RestorePlan {
	d, writable, faults := planDesired(c, o)
	return memberset.PlanRestore(membersOf(c), o, d.Desired, writable, faults)
}
