package etcd

import (
	"testing"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// The first member is the whole group, under the name that the others will know.
func TestPlanRestore(t *testing.T) {
	w := newWorld(t, 3)
	r := (&Engine{}).PlanRestore(w.c, w.o)
	if r.Program != "etcd" || r.User != 65532 || r.Member != "config-0" || *r.Claim.Name != "data-config-0" || r.Living {
		t.Errorf("%+v", r)
	}
	task := r.Complete(agentapi.RestoreTask{UID: "c-uid"}, false)
	if task.PeerURL != "https://config-0.config-members.shop.svc:2380" || task.Token != "c-uid" {
		t.Errorf("task of the restore: %+v", task)
	}
	if drill := r.Complete(agentapi.RestoreTask{UID: "c-uid/drill"}, true); drill.PeerURL != "http://127.0.0.1:2380" || drill.Token != "c-uid/drill" {
		t.Errorf("task of a drill: %+v", drill)
	}
}
