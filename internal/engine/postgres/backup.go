package postgres

import (
	"cmp"
	"fmt"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// Copying implements engine.Copier: a replica that follows is copied, where
// there is one. Members let nobody stream but by their own certificate. The copy
// must reach what any of them had.
func (e *Engine) Copying(c *v1alpha1.PostgresCluster, o memberset.Observation) engine.Copying {
	s := set(c)
	var replicas, primary []int
	var newest memberapi.Status
	expected := int64(0)
	for n := memberset.MostMembers - 1; n >= 0; n-- {
		m := o.Member(n)
		if m == nil {
			continue
		}
		expected = max(expected, m.DataSize) // the primary alone says it
		if !m.Serving || !memberset.Ready(o.Pods[n]) || o.Pods[n].DeletionTimestamp != nil {
			continue
		}
		switch m.State {
		case memberapi.StateStreaming:
			replicas = append(replicas, n)
		case memberapi.StateRunning:
			primary = append(primary, n)
		default:
			continue
		}
		if cmp.Or(cmp.Compare(m.Timeline, newest.Timeline), cmp.Compare(m.Position, newest.Position)) > 0 {
			newest = *m
		}
	}
	order := append(replicas, primary...)
	if len(order) == 0 {
		return engine.Copying{Waits: "no member serves"}
	}
	p := engine.Copying{
		Program: containerName, Image: s.RunningImage(o.Pods[order[0]]), Sources: s.Sources(order, Port),
		SystemIdentifier: c.Status.SystemIdentifier, Secret: s.Named(memberset.SuffixTLS), Expected: expected,
	}
	if newest.Position > 0 {
		p.AtLeast = fmt.Sprintf("%d:%X/%X", newest.Timeline, newest.Position>>32, uint32(newest.Position))
	}
	return p
}
