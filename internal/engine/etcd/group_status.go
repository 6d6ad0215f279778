package etcd

import (
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// DecodeStatus reads a member's answer.
func DecodeStatus(text []byte) (agentapi.Status, error) {
	return agentapi.DecodeStatus[etcdapi.GroupStatus](text)
}

// readGroup is what of a status only members of etcd report.
func readGroup(m *agentapi.Status) etcdapi.GroupStatus {
	return agentapi.ReadEngineStatus[etcdapi.GroupStatus](m)
}

// IsLeader says whether a member reports that it leads its group and serves.
func IsLeader(s *agentapi.Status) bool {
	g := readGroup(s).Group
	return g != nil && g.Self != "" && g.Self == g.Leader && s.Serving
}
