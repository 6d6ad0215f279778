package etcd

import (
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// readGroup is what of a status only members of etcd report.
func readGroup(s agentapi.Status) etcdapi.GroupStatus {
	return agentapi.ReadEngineStatus[etcdapi.GroupStatus](&s)
}

// changeGroup changes it. Its maps, slices and pointers are to be replaced, not
// edited in place.
func changeGroup(s *agentapi.Status, change func(*etcdapi.GroupStatus)) {
	agentapi.ChangeEngineStatus(s, change)
}

// omitMoving leaves out of a status what of it moves all the time.
func omitMoving(s *agentapi.Status) {
	changeGroup(s, func(g *etcdapi.GroupStatus) { g.DataInUse = 0 })
}
