package etcd

import (
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// PlanRestore implements engine.Engine: a group of one begins, and the others
// are admitted to it.
func (e *Engine) PlanRestore(c *v1alpha1.EtcdCluster, o Observation) engine.RestorePlan {
	s := membersOf(c)
	view := memberset.NewView(s, o.Observation, time.Time{}) // no step is planned, so no time counts
	g := groupOf(c, o, view.Membership)
	d, writable, faults := planDesired(c, &view, readVersions(c, &view), g, recoveryOf(c, o, g), precaution{}, o.Quota)
	r := memberset.PlanRestore(&view, d, writable, faults)
	r.CompleteTask = completeRestoreTask(peerURL(s, seedOrdinal))
	r.Copies = 2 // the snapshot, and what is made of it
	return r
}

// drillURL is the peer URL of a member that is restored on trial: nothing but its
// own pod reaches it.
const drillURL = "http://127.0.0.1:2380"

// completeRestoreTask names the member's address in the new group, and the group
// itself: only the cluster, or the drill, with that UID ever has the token.
func completeRestoreTask(url string) func(*agentapi.RestoreTask, bool) {
	return func(task *agentapi.RestoreTask, drill bool) {
		task.PeerURL, task.Token = url, task.UID
		if drill {
			task.PeerURL = drillURL
		}
	}
}
