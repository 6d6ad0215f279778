package toyengine

import (
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// PlanCopy implements engine.Engine: the last member that serves is copied first.
func (e *Engine) PlanCopy(c *ToyCluster, o memberset.Observation) engine.CopyPlan {
	s := membersOf(c)
	var order []int
	for n := objects.MostMembers - 1; n >= 0; n-- {
		if m := o.Member(n); m != nil && m.Serving && memberset.IsReady(o.Pods[n]) {
			order = append(order, n)
		}
	}
	if len(order) == 0 {
		return engine.CopyPlan{Waits: "no member serves"}
	}
	return engine.CopyPlan{
		Program: containerName, Image: memberset.RunningImage(s, o.Pods[order[0]]), Sources: memberset.CopySources(s, order, Port),
		SystemIdentifier: c.Status.SystemIdentifier, Secret: s.Named(objects.SuffixTLS), Expected: o.Member(order[0]).DataSize,
	}
}
