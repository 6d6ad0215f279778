package etcd

import (
	"slices"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// Copying implements engine.Copier: a follower is copied, where there is one. It
// is asked with the certificate that applications have: a member's would do for
// more than reading. Which revision the copy must reach, the pod itself asks the
// group when it begins.
func (e *Engine) Copying(c *v1alpha1.EtcdCluster, o Observation) engine.Copying {
	s, g := set(c), groupOf(c, o)
	var order []int
	for n := memberset.MostMembers - 1; n >= 0; n-- {
		if g.led && n != g.leader && copyable(o, g, n) {
			order = append(order, n)
		}
	}
	if g.led && g.leader >= 0 && copyable(o, g, g.leader) {
		order = append(order, g.leader)
	}
	if len(order) == 0 {
		return engine.Copying{Waits: "no member serves in a group that has a leader"}
	}
	return engine.Copying{
		Program: containerName, Image: s.RunningImage(o.Pods[order[0]]), Sources: s.Sources(order, Port),
		SystemIdentifier: c.Status.SystemIdentifier, Secret: s.Named(memberset.SuffixApp), Expected: o.Member(order[0]).DataSize,
	}
}

// copyable says whether a member has a vote, serves and stays, and is not said
// to hold other data than the rest.
func copyable(o Observation, g group, n int) bool {
	if !g.healthy[n] || !memberset.Ready(o.Pods[n]) || o.Pods[n].DeletionTimestamp != nil {
		return false
	}
	return !slices.Contains(o.Member(n).Alarms, alarmCorrupt+":"+g.members[n].ID)
}
