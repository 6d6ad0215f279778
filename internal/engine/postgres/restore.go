package postgres

import (
	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// Restoring implements engine.Restorer.
func (e *Engine) Restoring(c *v1alpha1.PostgresCluster, o memberset.Observation) engine.Restoring {
	d, writable, faults := desire(c, o)
	return set(c).Restoring(o, d.Desired, writable, faults)
}
