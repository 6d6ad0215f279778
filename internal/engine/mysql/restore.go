package mysql

import (
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// PlanRestore implements engine.Engine: the first member starts a group of a new name, and
// the others clone it.
func (e *Engine) PlanRestore(c *v1alpha1.MySQLCluster, o memberset.Observation) engine.RestorePlan {
	view := memberset.NewView(membersOf(c), o, time.Time{}) // no step is planned, so no time counts
	g := readGroup(view.Set, o)
	d, writable, faults := planDesired(c, &view, g, readVersions(c, &view, g))
	return memberset.PlanRestore(&view, d.Desired, writable, faults)
}
