package postgres

import (
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// What moves all the time makes no new revision, and stays in the status; what is
// true only while the database runs goes when it is down.
func TestReplicationStatus(t *testing.T) {
	store := statusserver.NewEngineStore(agentapi.Status{}, omitMoving)
	change := func(change func(*postgresapi.ReplicationStatus)) (postgresapi.ReplicationStatus, bool) {
		before := store.Get().Revision
		store.Update(func(s *agentapi.Status) { changeReplication(s, change) })
		return readReplication(store.Get()), store.Get().Revision != before
	}
	got, revised := change(func(r *postgresapi.ReplicationStatus) {
		r.PositionOld, r.WALEnd = true, &postgresapi.WALPoint{Timeline: 1}
	})
	if revised || !got.PositionOld || got.WALEnd == nil {
		t.Errorf("revised: %v, %+v", revised, got)
	}
	got, revised = change(func(r *postgresapi.ReplicationStatus) { r.Source, r.Timeline = "orders-0", 2 })
	if !revised || got.Source != "orders-0" || got.WALEnd == nil {
		t.Errorf("revised: %v, %+v", revised, got)
	}
	store.Update(markDown)
	if got := readReplication(store.Get()); got.Source != "" || got.Timeline != 2 {
		t.Errorf("down: %+v", got)
	}
}
