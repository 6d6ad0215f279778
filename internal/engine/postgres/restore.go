package postgres

import (
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// PlanRestore implements engine.Engine.
func (e *Engine) PlanRestore(c *v1alpha1.PostgresCluster, o memberset.Observation) engine.RestorePlan {
	view := memberset.NewView(membersOf(c), o, time.Time{}) // no step is planned, so no time counts
	lead := findLeader(view.Set, o)
	d, writable, faults := planDesired(c, &view, lead, readVersions(c, &view, lead))
	return memberset.PlanRestore(&view, d.Desired, writable, faults)
}
