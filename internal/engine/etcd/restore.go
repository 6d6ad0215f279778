package etcd

import (
	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// Restoring implements engine.Restorer: a group of one begins, and the others
// are admitted to it.
func (e *Engine) Restoring(c *v1alpha1.EtcdCluster, o Observation) engine.Restoring {
	g := groupOf(c, o)
	d, writable, faults := desire(c, o, g, recoveryOf(c, o, g), precaution{})
	s := set(c)
	r := s.Restoring(o.Observation, d, writable, faults)
	r.PeerURL = peerURL(s, seedOrdinal)
	r.Copies = 2 // the snapshot, and what is made of it
	return r
}
