package postgres

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
)

// silence has a member not answer for a while.
func (w *world) silence(ordinal int, last time.Duration) {
	w.o.Pods[ordinal].CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	name := membersOf(w.c).PodName(ordinal)
	w.o.Members[name] = agentclient.Observation{Status: w.o.Members[name].Status, Err: "connection refused", Since: now.Add(-last)}
}

func TestPromotion(t *testing.T) {
	request := func(target, result string) []v1alpha1.RequestStatus {
		return []v1alpha1.RequestStatus{{Type: "promote", ID: "go", Target: target, Result: result}}
	}
	recorded := func(w *world) { w.c.Status.Requests = request("orders-1", "") }
	lead := func(w *world, ordinal int) { w.changeLeader(ordinal); w.elects() }
	passed := &postgresapi.PromotionRequest{ID: "go", Pod: "orders-1"}
	const usedUp = "used up: orders-1 claimed the Lease by it and does not lead: see what its pod logs; to try again, or to have another member lead, use another ID"
	claimed := func(w *world, phase string) {
		w.reportElection(1, func(e *postgresapi.ElectionState) { e.Forced, e.Phase = "go", phase })
	}
	older := v1alpha1.RequestStatus{Type: "continue-with-older-data", ID: "older", Target: "orders-0"}
	cases := []struct {
		name, value string
		change      func(w *world)
		want        []v1alpha1.RequestStatus
		passed      *postgresapi.PromotionRequest
	}{
		{"nothing is requested", "", nil, nil, nil},
		{"it is recorded before the member gets it", "go@orders-1", nil, request("orders-1", ""), nil},
		{"a recorded request is passed on", "go@orders-1", recorded, request("orders-1", ""), passed},
		{"so it is when the annotation is gone", "", recorded, request("orders-1", ""), passed},
		{"so it is until the member serves", "go@orders-1", func(w *world) {
			recorded(w)
			lead(w, 1)
			w.status(1).Serving = false
		}, request("orders-1", ""), passed},
		{"the member leads by it", "go@orders-1", func(w *world) {
			recorded(w)
			lead(w, 1)
			w.reportElection(1, func(e *postgresapi.ElectionState) { e.Forced = "go" })
			w.changeReplication(1, func(r *postgresapi.ReplicationStatus) { r.Timeline = 5 })
		}, request("orders-1", "orders-1 was promoted with what it had, on timeline 5"), nil},
		{"the member leads without it", "go@orders-1", func(w *world) { recorded(w); lead(w, 1) }, request("orders-1", "not needed: orders-1 leads"), nil},
		{"another one leads", "go@orders-1", func(w *world) { recorded(w); lead(w, 0) }, request("orders-1", "not needed: orders-0 leads"), nil},
		{"one leads all the time", "go@orders-1", func(w *world) { lead(w, 2) }, request("orders-1", "not needed: orders-2 leads"), nil},
		{"one leads and does not serve yet: it waits", "go@orders-1", func(w *world) { lead(w, 2); w.status(2).Serving = false }, nil, nil},
		{"it names no pod", "go", nil, request("", "refused: it names no member: write <ID>@<pod>, with one of orders-0 to orders-2 and another ID"), nil},
		{"it names no member", "go@orders-7", nil, request("orders-7", "refused: it names no member: write <ID>@<pod>, with one of orders-0 to orders-2 and another ID"), nil},
		{"a member that must not lead by itself can be named", "go@orders-1", func(w *world) { w.c.Spec.Failover = &v1alpha1.PostgresFailover{NoFailover: []int32{1}} }, request("orders-1", ""), nil},
		{"an ID is carried out once", "go@orders-1", func(w *world) { w.c.Status.Requests = request("orders-1", "done") }, request("orders-1", "done"), nil},
		{"it waits for a member that was silent for 29 s", "go@orders-1", func(w *world) { w.silence(0, 29*time.Second) }, nil, nil},
		{"not for one that was silent for 30 s", "go@orders-1", func(w *world) { w.silence(0, 30*time.Second) }, request("orders-1", ""), nil},
		{"it waits for a member that was not asked yet", "go@orders-1", func(w *world) {
			w.o.Asking = true
			w.o.Pods[0].Status.Conditions = nil
			w.o.Members["orders-0"] = agentclient.Observation{}
		}, nil, nil},
		{"it waits for a pod that has just begun", "go@orders-1", func(w *world) {
			w.o.Asking = true
			w.pod(0).CreationTimestamp = metav1.NewTime(now.Add(-10 * time.Second))
			w.o.Pods[0].Status.PodIP = ""
			w.o.Members["orders-0"] = agentclient.Observation{}
		}, nil, nil},
		{"a member without a pod is not waited for", "go@orders-1", func(w *world) { w.removePod(0) }, request("orders-1", ""), nil},
		{"it waits while another request for less data is carried out", "go@orders-1", func(w *world) {
			w.c.Status.Requests = []v1alpha1.RequestStatus{older}
		}, []v1alpha1.RequestStatus{older}, nil},
		{"it waits while the cluster is suspended", "go@orders-1", func(w *world) { w.c.Spec.Suspend = true }, nil, nil},
		{"another ID replaces one whose member does not answer", "next@orders-0", func(w *world) {
			recorded(w)
			w.silence(1, time.Minute)
		}, []v1alpha1.RequestStatus{{Type: "promote", ID: "next", Target: "orders-0"}}, nil},
		{"and none whose member does", "next@orders-0", recorded, request("orders-1", ""), passed},
		{"its claim is under way: no other ID replaces it", "next@orders-0", func(w *world) { recorded(w); claimed(w, "Unsure") }, request("orders-1", ""), passed},
		{"its term was won, and its database starts", "go@orders-1", func(w *world) { recorded(w); claimed(w, "Promoting") }, request("orders-1", ""), passed},
		{"its member claimed the Lease before, by another one", "go@orders-1", func(w *world) {
			recorded(w)
			w.reportElection(1, func(e *postgresapi.ElectionState) { e.Forced = "earlier" })
		}, request("orders-1", ""), passed},
		{"its member claimed the Lease and does not lead", "go@orders-1", func(w *world) { recorded(w); claimed(w, "Standby") }, request("orders-1", usedUp), nil},
		{"so it is while that member votes", "go@orders-1", func(w *world) { recorded(w); claimed(w, "Voting") }, request("orders-1", usedUp), nil},
		{"it is said before another ID is taken up", "next@orders-0", func(w *world) { recorded(w); claimed(w, "Standby") }, request("orders-1", usedUp), nil},
		{"another ID is, of another member", "next@orders-0", func(w *world) { w.c.Status.Requests = request("orders-1", usedUp); claimed(w, "Standby") },
			[]v1alpha1.RequestStatus{{Type: "promote", ID: "next", Target: "orders-0"}}, nil},
		{"and of the same one", "next@orders-1", func(w *world) { w.c.Status.Requests = request("orders-1", usedUp); claimed(w, "Standby") },
			[]v1alpha1.RequestStatus{{Type: "promote", ID: "next", Target: "orders-1"}}, nil},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := ledBy(t, 3, 2).elects().endLeadership()
			w.annotate(v1alpha1.AnnotationPromote, tc.value)
			if tc.change != nil {
				tc.change(w)
			}
			if diff := cmp.Diff(tc.want, w.plan().Report.Requests); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.passed, w.config().Promotion); diff != "" {
				t.Errorf("members (-want +got):\n%s", diff)
			}
		})
	}
}

// A request to go on with older data waits for the answers of all members, and for a
// promotion that is carried out. The pass that ends the wait comes by itself.
func TestOlderDataWaitsForAnswers(t *testing.T) {
	cases := []struct {
		name    string
		change  func(w *world)
		taken   bool
		recheck time.Duration
	}{
		{"all answer", nil, true, 0},
		{"one was silent for 20 s", func(w *world) { w.silence(2, 20*time.Second) }, false, 10 * time.Second},
		{"one was silent for a minute", func(w *world) { w.silence(2, time.Minute) }, true, 0},
		{"another member is promoted", func(w *world) {
			w.c.Status.Requests = []v1alpha1.RequestStatus{{Type: "promote", ID: "other", Target: "orders-0"}}
		}, false, 0},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := ledBy(t, 3, 2).elects().endLeadership()
			m := w.status(1)
			m.State, m.Hold, m.Serving = agentapi.StateHeld, agentapi.HoldDataStale, false
			w.annotate(v1alpha1.AnnotationContinueWithOlderData, "go")
			if tc.change != nil {
				tc.change(w)
			}
			p, taken := w.plan(), false
			for _, r := range p.Report.Requests {
				taken = taken || r.Type == "continue-with-older-data" && r.Target == "orders-1"
			}
			if taken != tc.taken {
				t.Errorf("taken up: %v, want %v: %+v", taken, tc.taken, p.Report.Requests)
			}
			if tc.recheck > 0 && (p.Recheck == 0 || p.Recheck > tc.recheck) {
				t.Errorf("the next pass is in %s, want it in %s", p.Recheck, tc.recheck)
			}
		})
	}
}
