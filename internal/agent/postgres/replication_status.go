package postgres

import (
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// readReplication is what of a status only members of PostgreSQL report.
func readReplication(s agentapi.Status) postgresapi.ReplicationStatus {
	return agentapi.ReadEngineStatus[postgresapi.ReplicationStatus](&s)
}

// changeReplication changes it. Its slices and pointers are to be replaced, not
// edited in place.
func changeReplication(s *agentapi.Status, change func(*postgresapi.ReplicationStatus)) {
	agentapi.ChangeEngineStatus(s, change)
}

// omitMoving leaves out of a status what of it moves all the time.
func omitMoving(s *agentapi.Status) {
	changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.PositionOld, r.WALEnd = false, nil })
}

// markDown leaves out of a status what of it is true only while the database runs.
func markDown(s *agentapi.Status) {
	changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.Source = "" })
}
