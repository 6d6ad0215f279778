package etcd

import (
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// What moves all the time makes no new revision, and stays in the status.
func TestGroupStatus(t *testing.T) {
	store := statusserver.NewEngineStore(agentapi.Status{}, omitMoving)
	change := func(change func(*etcdapi.GroupStatus)) (etcdapi.GroupStatus, bool) {
		before := store.Get().Revision
		store.Update(func(s *agentapi.Status) { changeGroup(s, change) })
		return readGroup(store.Get()), store.Get().Revision != before
	}
	if got, revised := change(func(g *etcdapi.GroupStatus) { g.DataInUse = 4711 }); revised || got.DataInUse != 4711 {
		t.Errorf("revised: %v, %+v", revised, got)
	}
	if got, revised := change(func(g *etcdapi.GroupStatus) { g.DataFill = 95 }); !revised || got.DataInUse != 4711 {
		t.Errorf("revised: %v, %+v", revised, got)
	}
}
