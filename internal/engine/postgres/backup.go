package postgres

import (
	"cmp"
	"fmt"

	"github.com/jackc/pglogrepl"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// PlanCopy implements engine.Engine: a replica that follows is copied, where
// there is one, and else the leader. Members let only clients with a member's certificate stream. The copy
// must reach what any of them had.
func (e *Engine) PlanCopy(c *v1alpha1.PostgresCluster, o memberset.Observation) engine.CopyPlan {
	s := membersOf(c)
	lead := findLeader(s, o)
	var replicas, primary []int
	var newest agentapi.Status
	expected := int64(0)
	for n := objects.MostMembers - 1; n >= 0; n-- {
		m := o.Member(n)
		if m == nil {
			continue
		}
		expected = max(expected, m.DataSize) // the primary alone says it
		if !m.Serving || !memberset.IsReady(o.Pods[n]) || o.Pods[n].DeletionTimestamp != nil {
			continue
		}
		switch {
		case m.State == agentapi.StateStreaming:
			replicas = append(replicas, n)
		case m.State == agentapi.StateRunning && n == lead.leader:
			primary = append(primary, n)
		default:
			continue
		}
		if cmp.Or(cmp.Compare(readReplication(m).Timeline, readReplication(&newest).Timeline), cmp.Compare(m.Position, newest.Position)) > 0 {
			newest = *m
		}
	}
	preferred := append(replicas, primary...)
	if len(preferred) == 0 {
		return engine.CopyPlan{Waits: "no member serves"}
	}
	p := engine.CopyPlan{
		Program: containerName, Image: memberset.RunningImage(s, o.Pods[preferred[0]]), Sources: memberset.CopySources(s, preferred, Port),
		SystemIdentifier: c.Status.SystemIdentifier, Secret: s.Named(objects.SuffixTLS), Expected: expected,
	}
	if newest.Position > 0 {
		p.AtLeast = fmt.Sprintf("%d:%s", readReplication(&newest).Timeline, pglogrepl.LSN(newest.Position))
	}
	return p
}
