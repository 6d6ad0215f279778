package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// restartOperator has every answer be forgotten, as an operator does that starts.
func (w *world) restartOperator() {
	w.o.Asking = true
	w.o.Members = map[string]agentclient.Observation{}
	for _, pod := range w.o.Pods {
		w.o.Members[pod.Name] = agentclient.Observation{}
	}
}

// fail has a member's pod stay, and its agent not answer any more.
func (w *world) fail(ordinal int) { w.silence(ordinal, time.Minute) }

// A primary that was superseded is not believed while its successor does not answer:
// the newest term that any member reports counts, and so does what status records.
func TestSupersededPrimaryIsNotBelieved(t *testing.T) {
	// The first primary still reports its own term. The successor, which led the next
	// one, does not answer.
	begin := func(t *testing.T) *world {
		w := ledBy(t, 3, 0)
		was := w.lease
		w.changeLeader(1)
		w.claimPrimary(0, was)
		w.fail(1)
		return w
	}
	recorded := &v1alpha1.ElectionStatus{Leader: "orders-1", Term: 2}
	cases := []struct {
		name   string
		change func(w *world)
		leads  bool
		doubt  string
	}{
		{"a third member knows the term", nil, false, "the Lease names another pod orders-1 in term 2"},
		{"a third member knows that the term has ended", func(w *world) {
			w.reportLease(2, &postgresapi.LeaseState{HolderPod: "orders-1", Term: 2})
		}, false, "the Lease has no holder since term 2"},
		{"no member that answers knows it, and status does", func(w *world) { w.fail(2); w.c.Status.Election = recorded }, false, "orders-1 held the Lease in term 2, which is newer"},
		{"a third member could not read the Lease, and status knows", func(w *world) { w.reportLease(2, nil); w.c.Status.Election = recorded }, false, "orders-1 held the Lease in term 2, which is newer"},
		{"no member reports the Lease, and status knows", func(w *world) {
			w.fail(2)
			w.reportLease(0, nil)
			w.c.Status.Election = recorded
		}, false, "orders-1 held the Lease in term 2, which is newer"},
		{"every member answers, and none knows a newer term", func(w *world) {
			w.changeLeader(0)
			w.c.Status.Election = &v1alpha1.ElectionStatus{Leader: "orders-1", Term: 9}
		}, true, ""},
		{"status records the term in which it leads", func(w *world) {
			w.changeLeader(0)
			w.fail(1)
			w.c.Status.Election = &v1alpha1.ElectionStatus{Leader: "orders-0", Term: 3}
		}, true, ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := begin(t)
			if tc.change != nil {
				tc.change(w)
			}
			lead := findLeader(membersOf(w.c), w.o)
			if lead.isLed() != tc.leads || !strings.Contains(lead.doubts[0], tc.doubt) {
				t.Errorf("leads: %v, doubt %q; want %v, %q", lead.isLed(), lead.doubts[0], tc.leads, tc.doubt)
			}
			if p := w.plan(); !tc.leads && (p.Report.Primary != "" || p.Step != nil) {
				t.Errorf("primary %q, step %v", p.Report.Primary, p.Step)
			}
		})
	}
}

func TestElectionStatus(t *testing.T) {
	recorded := func(leader string, term int64, unconfirmed ...string) *v1alpha1.ElectionStatus {
		return &v1alpha1.ElectionStatus{Leader: leader, Term: term, Unconfirmed: unconfirmed}
	}
	cases := []struct {
		name   string
		change func(w *world)
		want   *v1alpha1.ElectionStatus
	}{
		{"the first leader", nil, recorded("orders-2", 1)},
		{"the holder counts also while it does not serve", func(w *world) { w.endLeadership() }, recorded("orders-2", 1)},
		{"what is recorded stays while no member reports", func(w *world) {
			w.c.Status.Election = recorded("orders-1", 7, "orders-0")
			w.restartOperator()
		}, recorded("orders-1", 7, "orders-0")},
		{"a former leader that follows is confirmed", func(w *world) { w.c.Status.Election = recorded("orders-1", 0) }, recorded("orders-2", 1)},
		{"one that does not answer is not", func(w *world) { w.c.Status.Election = recorded("orders-1", 0); w.fail(1) }, recorded("orders-2", 1, "orders-1")},
		{"nor is a replica that did not answer", func(w *world) { w.c.Status.Election = recorded("orders-1", 0); w.fail(0) }, recorded("orders-2", 1, "orders-0")},
		{"which stays so until it follows", func(w *world) { w.c.Status.Election = recorded("orders-2", 1, "orders-0", "orders-1"); w.fail(0) }, recorded("orders-2", 1, "orders-0")},
		{"one that fails later in the term has followed", func(w *world) { w.c.Status.Election = recorded("orders-2", 1); w.fail(0) }, recorded("orders-2", 1)},
		{"the volume of a former member that is kept is in no danger", func(w *world) {
			w.c.Status.Election = recorded("orders-1", 0)
			w.addFormerVolume(3, v1alpha1.DeletionRetain)
		}, recorded("orders-2", 1)},
		{"that of one that is to be deleted is", func(w *world) {
			w.c.Status.Election = recorded("orders-1", 0)
			w.addFormerVolume(3, v1alpha1.DeletionDelete)
		}, recorded("orders-2", 1, "orders-3")},
		{"nor one that does not stream", func(w *world) {
			w.c.Status.Election = recorded("orders-1", 0)
			w.status(1).State = agentapi.StateCatchingUp
		}, recorded("orders-2", 1, "orders-1")},
		{"nor one that streams from an earlier leader", func(w *world) {
			w.c.Status.Election = recorded("orders-1", 0)
			w.reportLease(1, &postgresapi.LeaseState{HolderPod: "orders-0", Term: 0})
		}, recorded("orders-2", 1, "orders-1")},
		{"nor one without a pod", func(w *world) { w.c.Status.Election = recorded("orders-1", 0, "orders-0"); w.removePod(1) }, recorded("orders-2", 1, "orders-1")},
		{"one that lost its volume is none any more", func(w *world) {
			w.c.Status.Election = recorded("orders-1", 0)
			w.removePod(1)
			delete(w.o.Volumes, 1)
		}, recorded("orders-2", 1)},
		{"one that leads again is none any more", func(w *world) { w.c.Status.Election = recorded("orders-1", 0, "orders-2") }, recorded("orders-2", 1)},
		{"the volumes that may lead, by their members", func(w *world) {
			w.elects()
			w.reportElection(2, func(e *postgresapi.ElectionState) {
				e.MayLead = []string{"volume-of-orders-2", "volume-of-orders-0", "lost"}
			})
		}, &v1alpha1.ElectionStatus{Leader: "orders-2", Term: 1, MayLead: []string{"lost", "orders-0", "orders-2"}}},
		{"agents of earlier versions elect none", func(w *world) { w.lease = nil; w.changeReplicationOfAll() }, nil},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := ledBy(t, 3, 2)
			if tc.change != nil {
				tc.change(w)
			}
			if diff := cmp.Diff(tc.want, w.plan().Report.Election, cmpopts.IgnoreFields(v1alpha1.ElectionStatus{}, "LeaseDuration")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// changeReplicationOfAll has no member report the Lease.
func (w *world) changeReplicationOfAll() {
	for n := range w.o.Pods {
		w.reportLease(n, nil)
	}
}

// Nothing is scaled away while no member is known to lead, also by an operator that has
// just started.
func TestNothingIsScaledAwayWithoutALeader(t *testing.T) {
	cases := []struct {
		name   string
		change func(w *world)
	}{
		{"the leader stopped", func(w *world) { w.endLeadership() }},
		{"the leader's pod is gone", func(w *world) { w.removePod(2) }},
		{"the leader does not answer", func(w *world) { w.fail(2) }},
		{"no member answers", func(w *world) { w.fail(0); w.fail(1); w.fail(2) }},
		{"the leader has lost its volume and its pod", func(w *world) { w.removePod(2); delete(w.o.Volumes, 2) }},
		{"the operator has just started", func(w *world) { w.restartOperator() }},
		{"so it has, and the leader's pod is gone", func(w *world) { w.removePod(2); w.restartOperator() }},
		{"so it has, and only a superseded primary answers", func(w *world) {
			w.c.Status.Election = &v1alpha1.ElectionStatus{Leader: "orders-2", Term: 2}
			status := w.status(0)
			w.restartOperator()
			w.o.Members["orders-0"] = agentclient.Observation{Status: status, At: now}
			w.claimPrimary(0, &postgresapi.LeaseState{HolderUID: "pod-0", HolderPod: "orders-0", Term: 1})
		}},
	}
	for _, tc := range cases {
		for _, policy := range []v1alpha1.DeletionPolicy{v1alpha1.DeletionRetain, v1alpha1.DeletionDelete} {
			t.Run(tc.name+" "+string(policy), func(t *testing.T) {
				w := ledBy(t, 4, 2)
				w.c.Spec.DeletionPolicy = policy
				w.c.Status.Election = &v1alpha1.ElectionStatus{Leader: "orders-2", Term: 1}
				w.declareReplicas(1)
				tc.change(w)
				d, _, _ := w.desired()
				if p := w.plan(); d.Count != 4 || p.Step != nil {
					t.Errorf("%d members, step %v", d.Count, p.Step)
				}
			})
		}
	}
}

// The volume of a member that led, or did not answer in an election, is not deleted
// before the member has followed the leader.
func TestFormerLeaderIsKeptUnderDelete(t *testing.T) {
	begin := func(t *testing.T) *world {
		w := ledBy(t, 3, 2)
		w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
		w.c.Status.Election = w.plan().Report.Election
		w.changeLeader(0)
		w.declareReplicas(2)
		return w
	}
	scale := func(w *world) scalePlan {
		return planScale(w.c, w.view(), findLeader(membersOf(w.c), w.o))
	}
	t.Run("it follows", func(t *testing.T) {
		if got, want := scale(begin(t)), (scalePlan{2, waitNone}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
	t.Run("it does not answer", func(t *testing.T) {
		w := begin(t)
		w.fail(2)
		if got, want := scale(w), (scalePlan{3, waitUnconfirmed}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		const want = "member orders-2 has not followed orders-0 since term 2 began: it is kept, as volume data-orders-2 may have the only copy of some WAL; bring the member back, or set spec.deletionPolicy to Retain"
		if got := messageOf(w.plan().Facts, v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown); !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
		w.c.Spec.DeletionPolicy = v1alpha1.DeletionRetain
		if got, want := scale(w), (scalePlan{2, waitNone}); got != want {
			t.Errorf("under Retain: %+v, want %+v", got, want)
		}
	})
	t.Run("it did not lead, and did not answer in the election", func(t *testing.T) {
		w := ledBy(t, 3, 0)
		w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
		w.c.Status.Election = w.plan().Report.Election
		w.changeLeader(1)
		w.declareReplicas(2)
		w.fail(2)
		if got, want := scale(w), (scalePlan{3, waitUnconfirmed}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
	t.Run("another member led meanwhile", func(t *testing.T) {
		w := begin(t)
		w.fail(2)
		w.c.Status.Election = w.plan().Report.Election
		w.changeLeader(1)
		w.fail(2)
		if got, want := scale(w), (scalePlan{3, waitUnconfirmed}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
	t.Run("it is scaled away already", func(t *testing.T) {
		w := begin(t)
		w.addFormerVolume(2, v1alpha1.DeletionDelete)
		w.removePod(2)
		w.o.Ended = map[int]time.Time{2: now.Add(-time.Minute)}
		if p := w.plan(); p.Step != nil {
			t.Errorf("%v", *p.Step)
		}
		w.c.Status.Election = nil
		if p := w.plan(); p.Step == nil || p.Step.Type != memberset.StepDeleteVolume {
			t.Errorf("of a member that never led: %v", p.Step)
		}
	})
}
