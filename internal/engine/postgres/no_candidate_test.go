package postgres

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// lose has status say for so long that no member takes writes.
func (w *world) lose(since time.Duration) {
	w.c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-since))}}
}

func TestNoSafeCandidate(t *testing.T) {
	const fault = "the member lacks 20 MB of what was acknowledged, and failover.maxLag is 16 MB"
	stall := func(w *world, ordinal int, position uint64) {
		w.reportElection(ordinal, func(e *postgresapi.ElectionState) { e.Stalled = fault })
		w.changeReplication(ordinal, func(r *postgresapi.ReplicationStatus) {
			r.WALEnd = &postgresapi.WALPoint{Timeline: 1, Position: position}
		})
	}
	const remedy = "annotate the cluster with holdfast.dev/promote=<an ID that was not used before>@orders-1: that member then leads with what it has, the newest WAL of those that answer, and acknowledged writes that it lacks are lost"
	request := func(target, result string) []v1alpha1.RequestStatus {
		return []v1alpha1.RequestStatus{{Type: "promote", ID: "go", Target: target, Result: result}}
	}
	cases := []struct {
		name   string
		change func(w *world)
		says   []string
	}{
		{"members report why", nil, []string{"no member takes over as the primary: orders-0, orders-1: " + fault + ". Bring orders-2 back; or, ", remedy}},
		{"each for its own reason", func(w *world) {
			w.reportElection(0, func(e *postgresapi.ElectionState) { e.Stalled = "its volume hangs" })
		}, []string{"orders-0: its volume hangs; orders-1: " + fault}},
		{"all members answer", func(w *world) { w.member(2) }, []string{"Bring back a member that has more; or, "}},
		{"not yet for 15 s", func(w *world) { w.lose(14 * time.Second) }, nil},
		{"no pass has said yet that none leads", func(w *world) { w.c.Status.Conditions = nil }, nil},
		{"members report nothing", func(w *world) { w.elects(); w.changeLeaderless() }, nil},
		{"a member leads", func(w *world) { w.changeLeader(1); stall(w, 0, 0x10) }, nil},
		{"the named member is being promoted", func(w *world) { w.c.Status.Requests = request("orders-1", "") }, nil},
		{"the named member has used the request up", func(w *world) {
			w.c.Status.Requests = request("orders-1", "")
			w.reportElection(1, func(e *postgresapi.ElectionState) { e.Forced, e.Phase = "go", "Standby" })
		}, []string{remedy}},
		{"the named member does not answer", func(w *world) { w.c.Status.Requests = request("orders-2", "") }, []string{"Member orders-2 is to lead, as requested, and does not answer: bring it back, or name another one with another ID"}},
		{"an earlier request was done", func(w *world) { w.c.Status.Requests = request("orders-2", "done") }, []string{remedy}},
		{"the cluster was never bootstrapped", func(w *world) { w.c.Status.Version = "" }, nil},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := ledBy(t, 3, 2).elects().endLeadership()
			w.fail(2)
			stall(w, 0, 0x50)
			stall(w, 1, 0x60)
			w.lose(15 * time.Second)
			if tc.change != nil {
				tc.change(w)
			}
			p := w.plan()
			got := messageOf(p.Facts, v1alpha1.ConditionStalled, v1alpha1.ReasonNoSafeCandidate)
			if (got != "") != (len(tc.says) > 0) {
				t.Errorf("%q", got)
			}
			for _, want := range tc.says {
				if !strings.Contains(got, want) {
					t.Errorf("%q does not say %q", got, want)
				}
			}
		})
	}
}

// changeLeaderless has members report no reason why none is elected.
func (w *world) changeLeaderless() {
	for n := range w.o.Pods {
		if w.o.Member(n) != nil {
			w.reportElection(n, func(e *postgresapi.ElectionState) { e.Stalled = "" })
		}
	}
}

// The pass that reports it comes by itself.
func TestNoSafeCandidateIsLookedAtAgain(t *testing.T) {
	w := ledBy(t, 3, 2).elects().endLeadership()
	w.reportElection(0, func(e *postgresapi.ElectionState) { e.Stalled = "why" })
	w.lose(5 * time.Second)
	if p := w.plan(); p.Recheck == 0 || p.Recheck > 10*time.Second {
		t.Errorf("looked at again in %s", p.Recheck)
	}
}

// What a member reports of the election is in status by its pod.
func TestFencesAreReported(t *testing.T) {
	w := ledBy(t, 2, 1).elects()
	w.reportElection(0, func(e *postgresapi.ElectionState) { e.Fences = 3 })
	if m := w.plan().Report.Members; m[0].Fences != 3 || m[1].Fences != 0 {
		t.Errorf("%+v", m)
	}
}
