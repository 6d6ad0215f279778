package postgres

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// heldBy is the Lease in a term, held by the pod of an ordinal.
func heldBy(ordinal int, term int64) *postgresapi.LeaseState {
	pods := []string{"orders-0", "orders-1", "orders-2"}
	return &postgresapi.LeaseState{HolderUID: strings.Replace(pods[ordinal], "orders", "pod", 1), HolderPod: pods[ordinal], Term: term}
}

// releasedBy is the Lease in a term after its holder released it.
func releasedBy(ordinal int, term int64) *postgresapi.LeaseState {
	lease := heldBy(ordinal, term)
	lease.HolderUID = ""
	return lease
}

// claimPrimary has a member report that it is the primary, beside a state of the
// Lease.
func (w *world) claimPrimary(ordinal int, lease *postgresapi.LeaseState) {
	m := w.status(ordinal)
	m.Role, m.State, m.Serving = v1alpha1.RolePrimary, agentapi.StateRunning, true
	w.reportLease(ordinal, lease)
}

// The member leads that the newest known state of the Lease names, if it reports to
// be the primary of that term. A report without the Lease is not believed.
func TestFindLeader(t *testing.T) {
	const none = memberset.NoLeader
	cases := []struct {
		name           string
		change         func(w *world)
		leader, holder int
		doubts         map[int]string
	}{
		{"the holder of the Lease, by what all members report", func(w *world) {}, 2, 2, nil},
		{"by what it alone reports", func(w *world) { w.reportLease(0, nil); w.reportLease(1, nil) }, 2, 2, nil},
		{"by what another member reports", func(w *world) { w.reportLease(2, nil) }, 2, 2, nil},
		{"by the newest term", func(w *world) { w.reportLease(0, heldBy(0, 6)); w.reportLease(1, heldBy(1, 5)) }, 2, 2, nil},
		{"a member that another one knows to be replaced does not lead", func(w *world) { w.reportLease(1, heldBy(0, 8)) }, none, 0,
			map[int]string{2: "member orders-2 reports that it is the primary, and the Lease names another pod orders-0 in term 8"}},
		{"its own report is of an earlier term", func(w *world) { w.reportLease(0, heldBy(2, 8)) }, none, 2,
			map[int]string{2: "member orders-2 reports that it is the primary, of term 7, and the Lease is in term 8"}},
		{"two report to be the primary, and the newest term decides", func(w *world) { w.claimPrimary(0, heldBy(0, 6)) }, 2, 2,
			map[int]string{0: "member orders-0 reports that it is the primary, and the Lease names another pod orders-2 in term 7"}},
		{"two report to be the primary of one term", func(w *world) { w.claimPrimary(0, heldBy(0, 7)) }, none, none, map[int]string{
			0: "member orders-0 reports that it is the primary, and members name different holders of the Lease in term 7",
			2: "member orders-2 reports that it is the primary, and members name different holders of the Lease in term 7"}},
		{"a third member decides between two of one term, with a newer one", func(w *world) { w.claimPrimary(0, heldBy(0, 7)); w.reportLease(1, heldBy(0, 8)) }, none, 0, map[int]string{
			0: "member orders-0 reports that it is the primary, of term 7, and the Lease is in term 8",
			2: "member orders-2 reports that it is the primary, and the Lease names another pod orders-0 in term 8"}},
		{"a report without the Lease changes nothing", func(w *world) { w.claimPrimary(1, nil) }, 2, 2,
			map[int]string{1: "member orders-1 reports that it is the primary, and the Lease names another pod orders-2 in term 7"}},
		{"the Lease is released", func(w *world) { w.reportLease(0, releasedBy(2, 7)) }, none, 2,
			map[int]string{2: "member orders-2 reports that it is the primary, and the Lease has no holder since term 7"}},
		{"the Lease is released, by what a later member reports", func(w *world) {
			w.claimPrimary(0, heldBy(0, 7))
			w.reportLease(1, releasedBy(0, 7))
			w.reportLease(2, nil)
		}, none, 0, map[int]string{
			0: "member orders-0 reports that it is the primary, and the Lease has no holder since term 7",
			2: "member orders-2 reports that it is the primary, and the Lease has no holder since term 7"}},
		{"its holder stops", func(w *world) { w.status(2).Role = v1alpha1.RoleMember }, none, 2, nil},
		{"the holder is not promoted yet", func(w *world) {
			w.status(2).Role = v1alpha1.RoleReplica
			for n := range 3 {
				w.reportLease(n, heldBy(1, 8))
			}
		}, none, 1, nil},
		{"a new pod of its name is another one", func(w *world) { w.o.Pods[2].UID, w.status(2).PodUID = "another", "another" }, none, 2,
			map[int]string{2: "member orders-2 reports that it is the primary, and the Lease names another pod orders-2 in term 7"}},
		{"its predecessor's answer is not its own", func(w *world) { w.o.Pods[2].UID = "another" }, none, 2, nil},
		{"its pod is gone", func(w *world) { w.removePod(2) }, none, 2, nil},
		{"it does not answer", func(w *world) { w.o.Members["orders-2"] = agentclient.Observation{Err: "timeout"} }, none, 2, nil},
		{"it answers while it stops", func(w *world) { w.o.Pods[2].DeletionTimestamp = &metav1.Time{Time: now} }, 2, 2, nil},
		{"the Lease names a pod of another cluster", func(w *world) {
			for n := range 3 {
				w.reportLease(n, &postgresapi.LeaseState{HolderUID: "x", HolderPod: "payments-1", Term: 9})
			}
		}, none, none, map[int]string{2: "member orders-2 reports that it is the primary, and the Lease names another pod payments-1 in term 9"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := ledBy(t, 3, 2)
			for n := range 3 {
				w.reportLease(n, heldBy(2, 7))
			}
			tc.change(w)
			checkLeader(t, w, tc.leader, tc.holder, tc.doubts)
		})
	}
}

// Agents of earlier versions report no Lease, and only the bootstrap member leads.
func TestFindLeaderOfEarlierAgents(t *testing.T) {
	const none = memberset.NoLeader
	cases := []struct {
		name   string
		change func(w *world)
		leader int
		doubts map[int]string
	}{
		{"the bootstrap member", func(w *world) {}, 0, nil},
		{"none, while it reports another role", func(w *world) { w.status(0).Role = v1alpha1.RoleMember }, none, nil},
		{"no other member", func(w *world) { w.status(0).Role = v1alpha1.RoleMember; w.claimPrimary(1, nil) }, none,
			map[int]string{1: "member orders-1 reports that it is the primary, and no member reports a Lease that names it"}},
		{"none of two", func(w *world) { w.claimPrimary(1, nil) }, none, map[int]string{
			0: "member orders-0 reports that it is the primary, and so does another one",
			1: "member orders-1 reports that it is the primary, and so does another one"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := settled(t, 3)
			tc.change(w)
			checkLeader(t, w, tc.leader, none, tc.doubts)
		})
	}
}

func checkLeader(t *testing.T, w *world, leader, holder int, doubts map[int]string) {
	t.Helper()
	l := findLeader(membersOf(w.c), w.o)
	if l.leader != leader || l.holder != holder {
		t.Errorf("leader %d, holder %d; want %d and %d", l.leader, l.holder, leader, holder)
	}
	if l.isLed() != (l.status != nil) || l.isLed() && l.status != w.status(leader) {
		t.Errorf("leader %d with the status %+v", l.leader, l.status)
	}
	if doubts == nil {
		doubts = map[int]string{}
	}
	if diff := cmp.Diff(doubts, l.doubts); diff != "" {
		t.Errorf("doubts (-want +got):\n%s", diff)
	}
}

// A Lease that names no member leaves the bootstrap member to be explained.
func TestLeaseWithoutPodExplainsBootstrapMember(t *testing.T) {
	w := ledBy(t, 2, 0).endLeadership()
	w.lease = &postgresapi.LeaseState{Term: w.lease.Term}
	for n := range w.o.Pods {
		w.reportLease(n, w.lease)
	}
	if got := findLeader(membersOf(w.c), w.o).findExpected(); got != memberset.BootstrapOrdinal {
		t.Errorf("expects member %d", got)
	}
}
