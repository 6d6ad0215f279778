package etcd

import (
	"slices"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// PlanCopy implements engine.Engine: a follower is copied, where there is one. It
// is asked with the certificate that applications have: a member's would do for
// more than reading. Which revision the copy must reach, the pod itself asks the
// group when it begins.
func (e *Engine) PlanCopy(c *v1alpha1.EtcdCluster, o Observation) engine.CopyPlan {
	s := membersOf(c)
	g := groupOf(c, o, memberset.ReadMembership(s, o.Observation))
	var order []int
	for n := objects.MostMembers - 1; n >= 0; n-- {
		if g.led && n != g.leader && isCopyable(o, g, n) {
			order = append(order, n)
		}
	}
	if g.led && g.leader >= 0 && isCopyable(o, g, g.leader) {
		order = append(order, g.leader)
	}
	if len(order) == 0 {
		return engine.CopyPlan{Waits: "no member serves in a group that has a leader"}
	}
	return engine.CopyPlan{
		Program: containerName, Image: memberset.RunningImage(s, o.Pods[order[0]]), Sources: memberset.CopySources(s, order, Port),
		SystemIdentifier: c.Status.SystemIdentifier, Secret: s.Named(objects.SuffixApp), Expected: o.Member(order[0]).DataSize,
	}
}

// isCopyable says whether a member has a vote, serves and stays, and is not said
// to hold other data than the rest.
func isCopyable(o Observation, g group, n int) bool {
	if !g.healthy[n] || !memberset.IsReady(o.Pods[n]) || o.Pods[n].DeletionTimestamp != nil {
		return false
	}
	return !slices.Contains(readGroup(o.Member(n)).Alarms, alarmCorrupt+":"+g.members[n].ID)
}
