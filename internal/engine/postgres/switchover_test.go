package postgres

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// reportElection changes a member's part in the election.
func (w *world) reportElection(ordinal int, change func(*postgresapi.ElectionState)) {
	w.changeReplication(ordinal, func(r *postgresapi.ReplicationStatus) {
		var e postgresapi.ElectionState
		if r.Election != nil {
			e = *r.Election
		}
		change(&e)
		r.Election = &e
	})
}

// elects has every member take part in the election.
func (w *world) elects() *world {
	for n := range w.o.Pods {
		w.reportElection(n, func(e *postgresapi.ElectionState) { e.Volume, e.Phase = "volume-of-"+w.o.Pods[n].Name, "Standby" })
	}
	return w
}

// config is what the members are given.
func (w *world) config() (config agentapi.ClusterConfig) {
	w.t.Helper()
	d, _, _ := w.desired()
	if err := json.Unmarshal(d.Config, &config); err != nil {
		w.t.Fatal(err)
	}
	return config
}

// annotate sets an annotation of the cluster.
func (w *world) annotate(key, value string) {
	if w.c.Annotations == nil {
		w.c.Annotations = map[string]string{}
	}
	w.c.Annotations[key] = value
}

func TestSwitchover(t *testing.T) {
	request := func(target, result string) []v1alpha1.RequestStatus {
		return []v1alpha1.RequestStatus{{Type: "switchover", ID: "go", Target: target, Term: 1, Result: result}}
	}
	passed := func(target string) *postgresapi.SwitchoverRequest {
		return &postgresapi.SwitchoverRequest{ID: "go", Term: 1, Target: target}
	}
	recorded := func(target string) func(*world) {
		return func(w *world) { w.c.Status.Requests = request(target, "") }
	}
	cases := []struct {
		name, value string
		change      func(w *world)
		want        []v1alpha1.RequestStatus
		passed      *postgresapi.SwitchoverRequest
	}{
		{"nothing is requested", "", nil, nil, nil},
		{"it is recorded before the members get it", "go", nil, request("", ""), nil},
		{"so it is for one member", "go@orders-0", nil, request("orders-0", ""), nil},
		{"a recorded request is passed on", "go", recorded(""), request("", ""), passed("")},
		{"so it is when the annotation is gone", "", recorded("orders-1"), request("orders-1", ""), passed("orders-1")},
		{"so it is while none leads", "go", func(w *world) { recorded("orders-1")(w); w.endLeadership() }, request("orders-1", ""), passed("orders-1")},
		{"so it is while the successor does not serve", "go", func(w *world) {
			recorded("orders-1")(w)
			w.changeLeader(1)
			w.status(1).Serving = false
		}, request("orders-1", ""), passed("orders-1")},
		{"another member leads", "go", func(w *world) { recorded("")(w); w.changeLeader(1) }, request("", "orders-1 leads since term 2"), nil},
		{"another one than was named", "go", func(w *world) { recorded("orders-1")(w); w.changeLeader(0) }, request("orders-1", "orders-0 leads since term 2, instead of orders-1"), nil},
		{"the leader of its term refuses it", "go", func(w *world) {
			recorded("")(w)
			w.reportElection(2, func(e *postgresapi.ElectionState) {
				e.Refused, e.RefusedReason = "go", "the Lease was not renewed just now"
			})
		}, request("", "refused: the Lease was not renewed just now"), nil},
		{"the refusal of an earlier request is none of this one", "go", func(w *world) {
			recorded("")(w)
			w.reportElection(2, func(e *postgresapi.ElectionState) { e.Refused = "before" })
		}, request("", ""), passed("")},
		{"an ID is carried out once", "go", func(w *world) { w.c.Status.Requests = request("", "done") }, request("", "done"), nil},
		{"also for another member", "go@orders-1", func(w *world) { w.c.Status.Requests = request("", "done") }, request("", "done"), nil},
		{"it waits while none leads", "go", func(w *world) { w.endLeadership() }, nil, nil},
		{"it waits while the leader does not serve", "go", func(w *world) { w.status(2).Serving = false }, nil, nil},
		{"it waits while the cluster is suspended", "go", func(w *world) { w.c.Spec.Suspend = true }, nil, nil},
		{"it waits for the first answer", "go", func(w *world) {
			w.o.Asking = true
			for name, m := range w.o.Members {
				m.Status = nil
				w.o.Members[name] = m
			}
		}, nil, nil},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := ledBy(t, 3, 2).elects()
			w.annotate(v1alpha1.AnnotationSwitchover, tc.value)
			if tc.change != nil {
				tc.change(w)
			}
			if diff := cmp.Diff(tc.want, w.plan().Report.Requests); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.passed, w.config().Switchover); diff != "" {
				t.Errorf("members (-want +got):\n%s", diff)
			}
		})
	}
}

// What cannot be carried out is refused at once, and says what to do.
func TestSwitchoverIsRefused(t *testing.T) {
	deleting := func(w *world) { w.o.Pods[1].DeletionTimestamp = &metav1.Time{Time: now} }
	cases := []struct {
		name, value string
		change      func(w *world)
		want        string
	}{
		{"a pod of another name", "go@invoices-0", nil, "refused: invoices-0 is no member by spec.replicas: name one of orders-0 to orders-2, with another ID"},
		{"a member that is to be scaled away", "go@orders-2", func(w *world) { w.declareReplicas(2); w.changeLeader(0); w.elects() }, "refused: orders-2 is no member by spec.replicas"},
		{"the leader", "go@orders-2", nil, "refused: orders-2 leads already: name another member"},
		{"no ID", "@orders-1", nil, `refused: "@orders-1" has no ID: write <ID>@<pod>`},
		{"a member that must not lead", "go@orders-1", func(w *world) { w.c.Spec.Failover = &v1alpha1.PostgresFailover{NoFailover: []int32{1}} }, "refused: orders-1 is in spec.failover.noFailover: name another member, or remove it there"},
		{"a member without a pod", "go@orders-1", func(w *world) { w.removePod(1) }, "refused: orders-1 has no pod"},
		{"a pod that is being deleted", "go@orders-1", deleting, "refused: the pod of orders-1 is being deleted"},
		{"a member that does not serve", "go@orders-1", func(w *world) { w.status(1).Serving = false }, "refused: orders-1 does not stream from the primary"},
		{"a member that catches up", "go@orders-1", func(w *world) { w.status(1).State = agentapi.StateCatchingUp }, "refused: orders-1 does not stream from the primary"},
		{"no member can take over", "go", func(w *world) {
			deleting(w)
			w.status(0).State = agentapi.StateCatchingUp
		}, "refused: no other member streams from orders-2 and may lead: repair or add one"},
		{"an agent of an earlier version", "go", func(w *world) {
			w.changeReplication(2, func(r *postgresapi.ReplicationStatus) { r.Election = nil })
		}, "refused: the agent of orders-2 is of a version without switchover: replace its pod"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := ledBy(t, 3, 2).elects()
			w.annotate(v1alpha1.AnnotationSwitchover, tc.value)
			if tc.change != nil {
				tc.change(w)
			}
			got := w.plan().Report.Requests
			if len(got) != 1 || !strings.HasPrefix(got[0].Result, tc.want) || !strings.Contains(got[0].Result, "another ID") && got[0].ID == "go" {
				t.Errorf("%+v, want one that begins with %q", got, tc.want)
			}
			w.c.Status.Requests = got
			if passed := w.config().Switchover; passed != nil {
				t.Errorf("members get %+v", passed)
			}
		})
	}
}

// A cluster that is created with a request never carries it out, whatever it becomes.
func TestRequestsOfACreationAreNotCarriedOut(t *testing.T) {
	for _, key := range []string{v1alpha1.AnnotationSwitchover, v1alpha1.AnnotationPromote} {
		w := newWorld(t, 3)
		w.annotate(key, "go@orders-1")
		got := w.plan().Report.Requests
		if len(got) != 1 || got[0].ID != "go" || got[0].Result != notAtCreation {
			t.Fatalf("%s: %+v", key, got)
		}
		settled := ledBy(t, 3, 2).elects()
		settled.annotate(key, "go@orders-1")
		settled.c.Status.Requests = got
		for range 2 {
			if diff := cmp.Diff(got, settled.plan().Report.Requests); diff != "" {
				t.Errorf("%s: (-want +got):\n%s", key, diff)
			}
			settled.endLeadership()
		}
		if config := settled.config(); config.Switchover != nil || config.Promotion != nil {
			t.Errorf("%s: members get %+v", key, config.FailoverConfig)
		}
	}
}

// The leader beyond spec.replicas is asked to stop, for the member that received the
// most of those that stay.
func TestLeaderBeyondReplicasIsAskedToSwitchOver(t *testing.T) {
	request := func(target, result string) []v1alpha1.RequestStatus {
		return []v1alpha1.RequestStatus{{Type: "scale-down", ID: "generation-1-term-1-" + target, Target: target, Term: 1, Result: result}}
	}
	received := func(w *world, ordinal int, position uint64) {
		w.changeReplication(ordinal, func(r *postgresapi.ReplicationStatus) {
			r.WALEnd = &postgresapi.WALPoint{Timeline: 1, Position: position}
		})
	}
	recorded := func(w *world) { w.c.Status.Requests = request("orders-1", "") }
	passed := &postgresapi.SwitchoverRequest{ID: "generation-1-term-1-orders-1", Term: 1, Target: "orders-1", Standing: true}
	cases := []struct {
		name   string
		change func(w *world)
		want   []v1alpha1.RequestStatus
		passed *postgresapi.SwitchoverRequest
	}{
		{"it is recorded before the members get it", func(w *world) { received(w, 1, 0x60); received(w, 0, 0x50) }, request("orders-1", ""), nil},
		{"the member that must not lead is not asked", func(w *world) {
			received(w, 1, 0x60)
			w.c.Spec.Failover = &v1alpha1.PostgresFailover{NoFailover: []int32{1}}
		}, request("orders-0", ""), nil},
		{"nor one that does not stream", func(w *world) { received(w, 1, 0x60); w.status(1).State = agentapi.StateCatchingUp }, request("orders-0", ""), nil},
		{"nor one that leaves as well", func(w *world) { w.declareReplicas(1); received(w, 1, 0x60) }, request("orders-0", ""), nil},
		{"none streams", func(w *world) { w.removePod(0); w.removePod(1) }, nil, nil},
		{"the target stays the same, whoever receives more", func(w *world) { recorded(w); received(w, 0, 0x90) }, request("orders-1", ""), passed},
		{"another member leads", func(w *world) { recorded(w); w.changeLeader(1) }, request("orders-1", "orders-1 leads since term 2"), nil},
		{"the leader refuses for now: the request stands", func(w *world) {
			recorded(w)
			w.reportElection(2, func(e *postgresapi.ElectionState) { e.Refused, e.RefusedReason = "generation-1-term-1-orders-1", "why" })
		}, request("orders-1", ""), passed},
		{"the target cannot take over any more", func(w *world) { recorded(w); w.removePod(1) }, request("orders-0", ""), nil},
		{"it did not take over: writes do not stop again and again", func(w *world) {
			w.c.Status.Requests = request("orders-1", "orders-2 leads since term 2, instead of orders-1")
			w.changeLeader(2)
			w.elects()
			received(w, 1, 0x60)
		}, request("orders-1", "orders-2 leads since term 2, instead of orders-1"), nil},
		{"another one is asked then", func(w *world) {
			w.c.Status.Requests = request("orders-1", "orders-2 leads since term 1, instead of orders-1")
			w.removePod(1)
		}, request("orders-0", ""), nil},
		{"no other one can, either", func(w *world) { recorded(w); w.removePod(0); w.removePod(1) }, request("orders-1", ""), passed},
		{"the spec keeps the leader after all", func(w *world) { recorded(w); w.declareReplicas(3) }, request("orders-1", "not needed: orders-2 is a member by spec.replicas"), nil},
		{"no more is requested of agents of earlier versions", func(w *world) {
			w.changeReplication(2, func(r *postgresapi.ReplicationStatus) { r.Election = nil })
		}, nil, nil},
		{"a suspended cluster is left alone", func(w *world) { w.c.Spec.Suspend = true }, nil, nil},
		{"a person's request comes first", func(w *world) {
			recorded(w)
			w.c.Status.Requests = append(w.c.Status.Requests, v1alpha1.RequestStatus{Type: "switchover", ID: "go", Target: "orders-0", Term: 1})
		}, append(request("orders-1", ""), v1alpha1.RequestStatus{Type: "switchover", ID: "go", Target: "orders-0", Term: 1}),
			&postgresapi.SwitchoverRequest{ID: "go", Term: 1, Target: "orders-0"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := ledBy(t, 3, 2).elects()
			w.declareReplicas(2)
			tc.change(w)
			if diff := cmp.Diff(tc.want, w.plan().Report.Requests); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.passed, w.config().Switchover); diff != "" {
				t.Errorf("members (-want +got):\n%s", diff)
			}
		})
	}
}

// The condition says who is asked to take over, and why that was refused.
func TestKeptLeaderSaysWhoTakesOver(t *testing.T) {
	w := ledBy(t, 3, 2).elects()
	w.declareReplicas(2)
	w.c.Status.Requests = w.plan().Report.Requests
	said := func() string {
		return messageOf(w.plan().Facts, v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown)
	}
	if got := said(); !strings.Contains(got, "; orders-0 is asked to take over") {
		t.Errorf("under way: %s", got)
	}
	w.reportElection(2, func(e *postgresapi.ElectionState) {
		e.Refused, e.RefusedReason = w.c.Status.Requests[0].ID, "the Lease was not renewed just now"
	})
	if got := said(); !strings.HasSuffix(got, "; orders-0 is asked to take over, again and again: the Lease was not renewed just now") {
		t.Errorf("refused: %s", got)
	}
}
