package postgres

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// disconnect has replicas receive nothing, and know the Lease as it was in a term.
func (w *world) disconnect(lease *postgresapi.LeaseState, ordinals ...int) {
	for _, n := range ordinals {
		w.status(n).State = agentapi.StateDisconnected
		w.reportLease(n, lease)
	}
}

// A roll-out in which the leader's pod goes last: another member leads meanwhile, and
// nothing of that is broken. The primary is missed only while none leads.
func TestRolloutPastAFailover(t *testing.T) {
	const available, down = "Available/Available", "Available/PrimaryUnavailable"
	const restarting, syncing = "Reconciling/Restarting", "Reconciling/Syncing"
	// Members 1 and 2 are updated. The leader, 0, is not.
	begin := func(t *testing.T) *world { return ledBy(t, 3, 0).outdateAll(1, 2) }
	cases := []struct {
		name  string
		world func(t *testing.T) *world
		want  outcome
	}{
		{"the leader's pod is replaced last", begin, outcome{"ReplaceMember orders-0", []string{restarting, available}, 3}},
		{"it stops: no member leads, and nothing else is touched", func(t *testing.T) *world {
			w := begin(t).endLeadership()
			w.o.Pods[0].DeletionTimestamp = &metav1.Time{Time: now}
			return w
		}, outcome{"", []string{restarting, down}, 3}},
		{"the replicas receive nothing then, and that is not their failure", func(t *testing.T) *world {
			w := begin(t).endLeadership()
			w.o.Pods[0].DeletionTimestamp = &metav1.Time{Time: now}
			w.disconnect(w.lease, 1, 2)
			return w
		}, outcome{"", []string{restarting, syncing, down}, 3}},
		{"another member leads at once, and the next one has not read that yet", func(t *testing.T) *world {
			w := begin(t)
			was := w.lease
			w.removePod(0)
			w.claimLease(w.o.Pods[1])
			w.leads = 1
			w.member(1)
			w.disconnect(was, 2)
			return w
		}, outcome{"", []string{"Reconciling/ScalingUp", syncing, available}, 3}},
		{"a replica that knows the leader and receives nothing is broken", func(t *testing.T) *world {
			w := begin(t)
			w.removePod(0)
			w.changeLeader(1)
			w.disconnect(w.lease, 2)
			return w
		}, outcome{"", []string{"Degraded/MemberDown", "Reconciling/ScalingUp", syncing, available}, 3}},
		{"the former leader comes back updated, as a replica", func(t *testing.T) *world {
			w := begin(t)
			w.removePod(0)
			w.changeLeader(1)
			w.member(0).State = agentapi.StateCatchingUp
			w.status(0).Serving = false
			return w
		}, outcome{"", []string{syncing, available}, 3}},
		{"then the roll-out is complete", func(t *testing.T) *world {
			w := begin(t)
			w.removePod(0)
			w.changeLeader(1)
			w.member(0)
			return w
		}, outcome{"", []string{available}, 3}},
		{"the leadership moves to an updated member early: the former leader is a replica as any other", func(t *testing.T) *world {
			w := ledBy(t, 3, 0)
			w.changeLeader(2)
			return w.outdateAll(2)
		}, outcome{"ReplaceMember orders-1", []string{restarting, available}, 3}},
		{"and the updated leader stays", func(t *testing.T) *world {
			w := ledBy(t, 3, 0)
			w.changeLeader(2)
			return w.outdateAll(1, 2)
		}, outcome{"ReplaceMember orders-0", []string{restarting, available}, 3}},
		{"the leadership moves to an outdated member: it becomes the last one", func(t *testing.T) *world {
			w := ledBy(t, 3, 0)
			w.changeLeader(1)
			return w.outdateAll(2)
		}, outcome{"ReplaceMember orders-0", []string{restarting, available}, 3}},
		{"the former leader that still reports to lead holds the roll-out up", func(t *testing.T) *world {
			w := ledBy(t, 3, 0)
			was := w.lease
			w.changeLeader(1)
			w.outdateAll(1)
			w.claimPrimary(0, was)
			w.status(0).Serving = false
			return w
		}, outcome{"", []string{"Degraded/MemberDown", syncing, restarting, available}, 3}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, outcomeOf(tc.world(t).plan())); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}
