package mysql

import (
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// PlanCopy implements engine.Engine. The API server refuses backups of MySQL: no
// program makes them yet.
func (e *Engine) PlanCopy(*v1alpha1.MySQLCluster, memberset.Observation) engine.CopyPlan {
	return engine.CopyPlan{Waits: "Holdfast makes no backups of MySQL yet"}
}

// PlanRestore implements engine.Engine. The API server refuses to restore MySQL: what is
// planned is that a cluster begins empty.
func (e *Engine) PlanRestore(c *v1alpha1.MySQLCluster, o memberset.Observation) engine.RestorePlan {
	view := memberset.NewView(membersOf(c), o, time.Time{}) // no step is planned, so no time counts
	g := readGroup(view.Set, o)
	d, writable, faults := planDesired(c, &view, g, readVersions(c, &view, g))
	return memberset.PlanRestore(&view, d.Desired, writable, faults)
}
