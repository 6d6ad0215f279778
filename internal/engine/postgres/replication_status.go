package postgres

import (
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// DecodeStatus reads a member's answer.
func DecodeStatus(text []byte) (agentapi.Status, error) {
	return agentapi.DecodeStatus[postgresapi.ReplicationStatus](text)
}

// readReplication is what of a status only members of PostgreSQL report.
func readReplication(m *agentapi.Status) postgresapi.ReplicationStatus {
	return agentapi.ReadEngineStatus[postgresapi.ReplicationStatus](m)
}
