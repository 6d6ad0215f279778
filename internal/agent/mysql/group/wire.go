package group

import (
	"fmt"
	"slices"

	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// phaseNames are the phases on the wire.
var phaseNames = []string{
	Empty: mysqlapi.PhaseEmpty, Down: mysqlapi.PhaseDown, Detached: mysqlapi.PhaseDetached,
	Starting: mysqlapi.PhaseStarting, InGroup: mysqlapi.PhaseInGroup,
}

// WriteReport writes a report for the other members and the operator.
func (r Report) WriteReport() mysqlapi.MemberReport {
	m := mysqlapi.MemberReport{
		ServerUUID: r.UUID, Group: r.Group, Phase: phaseNames[r.Phase],
		Executed: r.Executed.String(), Received: r.Received.String(), Purged: r.Purged.String(),
		ViewID: r.View.ID, ReplicationName: r.ReplicationName, SingleLeader: r.SingleLeader, JoinsSingleLeader: r.JoinsSingleLeader,
		Persisted: r.Persisted, Revision: r.Revision, Lineage: r.Lineage.Number, LineageName: r.Lineage.Name,
	}
	for _, each := range r.View.Members {
		m.View = append(m.View, mysqlapi.ViewMember{
			ServerUUID: each.UUID, Address: each.Address, State: string(each.State), Primary: each.Primary, Version: each.Version,
		})
	}
	return m
}

// ReadReport reads what the agent of a pod reports. One that cannot be read whole counts as
// no answer: a phase that only a newer agent knows may be of a member that takes writes.
func ReadReport(pod string, m mysqlapi.MemberReport) (Report, error) {
	r := Report{
		Pod: pod, UUID: m.ServerUUID, Group: m.Group, View: View{ID: m.ViewID}, ReplicationName: m.ReplicationName,
		SingleLeader: m.SingleLeader, JoinsSingleLeader: m.JoinsSingleLeader,
		Persisted: m.Persisted, Revision: m.Revision, Lineage: Lineage{m.Lineage, m.LineageName},
	}
	phase := slices.Index(phaseNames, m.Phase)
	if phase < 0 {
		return Report{}, fmt.Errorf("the report of %s: unknown phase %q", pod, m.Phase)
	}
	r.Phase = Phase(phase)
	var err error
	if r.Ordinal, err = identity.Ordinal(pod); err != nil {
		return Report{}, err
	}
	for text, set := range map[*string]*mysqlgtid.Set{&m.Executed: &r.Executed, &m.Received: &r.Received, &m.Purged: &r.Purged} {
		if *set, err = mysqlgtid.Parse(*text); err != nil {
			return Report{}, fmt.Errorf("the report of %s: %w", pod, err)
		}
	}
	for _, each := range m.View {
		r.View.Members = append(r.View.Members, Member{
			UUID: each.ServerUUID, Address: each.Address, State: State(each.State), Primary: each.Primary, Version: each.Version,
		})
	}
	return r, nil
}
