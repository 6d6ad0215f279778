package mysql

import (
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

// changeReport changes what of a status only members of MySQL report. Its slices are to be
// replaced, not edited in place.
func changeReport(s *agentapi.Status, change func(*mysqlapi.MemberReport)) {
	agentapi.ChangeEngineStatus(s, func(g *mysqlapi.GroupStatus) {
		next := mysqlapi.MemberReport{Phase: mysqlapi.PhaseDown}
		if g.GroupReplication != nil {
			next = *g.GroupReplication
		}
		change(&next)
		next.JoinsSingleLeader = true // this agent can: see group.Client.Join
		g.GroupReplication = &next
	})
}

// readReport is what of a status only members of MySQL report; the zero value for nothing.
func readReport(s agentapi.Status) mysqlapi.MemberReport {
	if own := agentapi.ReadEngineStatus[mysqlapi.GroupStatus](&s).GroupReplication; own != nil {
		return *own
	}
	return mysqlapi.MemberReport{}
}

// omitMoving leaves out of a status what of it moves all the time.
func omitMoving(s *agentapi.Status) {
	if agentapi.ReadEngineStatus[mysqlapi.GroupStatus](s).GroupReplication == nil {
		return
	}
	changeReport(s, func(m *mysqlapi.MemberReport) { m.Executed, m.Received, m.Purged = "", "", "" })
}

// markDown leaves out what is true only while the server runs.
func markDown(s *agentapi.Status) {
	if agentapi.ReadEngineStatus[mysqlapi.GroupStatus](s).GroupReplication == nil {
		return
	}
	changeReport(s, func(m *mysqlapi.MemberReport) {
		if m.Phase != mysqlapi.PhaseEmpty {
			m.Phase = mysqlapi.PhaseDown
		}
		m.ViewID, m.View, m.Missing, m.Errant, m.Refused, m.RefusedReason = "", nil, nil, "", "", ""
	})
}
