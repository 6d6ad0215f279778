package etcd

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
)

// requestedRecovery is a cluster of three of whom only the first has data, with a request
// to go on.
func requestedRecovery(t *testing.T) *world {
	w := settled(t, 3)
	w.emptied(1)
	w.emptied(2)
	w.c.Annotations = map[string]string{v1alpha1.AnnotationRecoverQuorum: "go"}
	w.say()
	return w
}

// memberRequest is the request that the members get.
func (w *world) memberRequest() *etcdapi.Recovery {
	w.t.Helper()
	var config agentapi.ClusterConfig
	if err := json.Unmarshal(w.config(), &config); err != nil {
		w.t.Fatal(err)
	}
	return config.Recovery
}

// apart is a group whose members do not reach each other.
func (w *world) apart() {
	for n := range w.o.Pods {
		if m := w.status(n); readGroup(m).Group != nil {
			readGroup(m).Group.Leader, m.State, m.Serving = "", agentapi.StateDisconnected, false
		}
	}
}

// A quorum that came back, before the member that was chosen went on alone,
// ends the request: to send it would make two groups.
func TestRecoveryEndsWithTheNeedForIt(t *testing.T) {
	w := requestedRecovery(t)
	w.c.Status.Requests = w.plan().Report.Requests
	w.data[1] = w.lost[1]
	w.elect()
	w.say()
	orders := w.plan().Report.Requests
	if got := w.memberRequest(); got != nil || len(orders) != 1 || orders[0].Result != "not needed: the quorum came back" {
		t.Errorf("%+v, %+v", orders, got)
	}
}

// A member that leads as the only one with a vote has gone on alone. It was cut off
// before it could mark that, and no member is admitted before it has.
func TestRecoveryThatWasCutOffIsFinished(t *testing.T) {
	w := requestedRecovery(t)
	w.c.Status.Requests = w.plan().Report.Requests
	w.group = map[string]etcdapi.GroupMember{w.data[0]: w.group[w.data[0]]}
	w.say()
	p := w.plan()
	if got := w.memberRequest(); got == nil || p.Report.Requests[0].Result != "" || p.Step != nil {
		t.Fatalf("sent %+v, %+v, step %v", got, p.Report.Requests, p.Step)
	}
	w.status(0).Recovered = "go"
	if p = w.plan(); !strings.Contains(p.Report.Requests[0].Result, "went on") || p.Step == nil || p.Step.Type != stepAddLearner {
		t.Errorf("%+v, step %v", p.Report.Requests, p.Step)
	}
}

func TestRecoveryIsAcceptedOnce(t *testing.T) {
	w := requestedRecovery(t)
	p := w.plan()
	chosen := []v1alpha1.RequestStatus{{Type: "recover-quorum", ID: "go", Target: "config-0", MemberID: w.data[0]}}
	if diff := cmp.Diff(chosen, p.Report.Requests); diff != "" {
		t.Fatal(diff)
	}
	if got := w.memberRequest(); got != nil {
		t.Fatalf("%+v is sent before the choice is recorded", got)
	}
	if p.Step != nil || p.Recheck == 0 {
		t.Errorf("step %v, recheck %v", p.Step, p.Recheck)
	}

	// The choice stays, whichever other is heard now.
	w.c.Status.Requests = chosen
	w.data[1] = w.lost[1]
	w.say()
	w.apart()
	w.status(1).Position = 1000
	want := &etcdapi.Recovery{Token: "go", Pod: "config-0", MemberID: w.data[0]}
	if diff := cmp.Diff(want, w.memberRequest()); diff != "" {
		t.Error(diff)
	}
	w.status(0).Recovered = "go"
	done := w.plan().Report.Requests
	if len(done) != 1 || done[0].Result == "" || w.memberRequest() != nil {
		t.Errorf("%+v, %+v", done, w.memberRequest())
	}

	// A token that is left in Git is never followed again.
	w.c.Status.Requests = done
	w.status(0).Recovered = ""
	if again := w.plan().Report.Requests; cmp.Diff(done, again) != "" || w.memberRequest() != nil {
		t.Errorf("%+v, %+v", again, w.memberRequest())
	}
}

// A request ends when its member has nothing to go on with, and goes on while
// that is not known: who is not heard may have followed it.
func TestRecoveryEndsWithItsMember(t *testing.T) {
	cases := []struct {
		name   string
		change func(w *world)
		result string
		says   string
	}{
		{"not answering", func(w *world) { w.gone(0) }, "", "repeat the request with another ID"},
		{"its volume was lost", func(w *world) { w.emptied(0); w.say() }, "failed: config-0 has lost its data", ""},
		{"its claim is new", func(w *world) { delete(w.o.Members, "config-0"); w.unbound(0) }, "failed: config-0 has lost its data", ""},
		{"it is another member by now", func(w *world) { readGroup(w.status(0)).Group.Self = "ff" }, "failed: config-0 has lost its data", ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := requestedRecovery(t)
			w.c.Status.Requests = w.plan().Report.Requests
			w.c.Annotations[v1alpha1.AnnotationRecoverQuorum] = "again"
			tc.change(w)
			p := w.plan()
			got := p.Report.Requests
			if len(got) != 1 || got[0].ID != "go" || got[0].Result != tc.result || w.memberRequest() != nil {
				t.Errorf("%+v, sent %+v", got, w.memberRequest())
			}
			said := false
			for _, f := range p.Facts {
				said = said || strings.Contains(f.Message, "repeat the request with another ID")
			}
			if said != (tc.says != "") {
				t.Errorf("says %v", p.Facts)
			}
		})
	}
}

// The chosen member may need another image before it can follow: without a new
// pod the request would never end. A pod that runs is left alone meanwhile.
func TestRecoveryWaitsForNoOutdatedPod(t *testing.T) {
	cases := []struct {
		name   string
		change func(w *world)
		target string
	}{
		{"it runs", func(*world) {}, ""},
		{"its image cannot be had", func(w *world) {
			delete(w.o.Members, "config-0")
			w.o.Pods[0].Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
		}, "config-0"},
		{"its version must not start on the data", func(w *world) {
			m := w.status(0)
			m.State, m.Hold, m.Serving = agentapi.StateHeld, agentapi.HoldDataVersion, false
		}, "config-0"},
		{"its volume is about to go", func(w *world) {
			m := w.status(0)
			m.State, m.Hold, m.Serving = agentapi.StateHeld, agentapi.HoldDataVersion, false
			w.o.Volumes[0].DeletionTimestamp = &metav1.Time{Time: now}
		}, ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := requestedRecovery(t)
			w.c.Status.Requests = w.plan().Report.Requests
			w.c.Spec.Image = "registry.example/etcd:fixed"
			for _, n := range []int{1, 2} {
				w.pod(n) // they follow already
			}
			tc.change(w)
			p := w.plan()
			target := ""
			if p.Step != nil {
				target = p.Step.Target
			}
			if target != tc.target || p.Report.Requests[0].Result != "" {
				t.Errorf("step %v, requests %+v", p.Step, p.Report.Requests)
			}
		})
	}
}

func TestRecoveryIsRefused(t *testing.T) {
	cases := []struct {
		name   string
		world  func(t *testing.T) *world
		says   string
		target string
	}{
		{"only one has data", requestedRecovery, "", "config-0"},
		{"of several with data, the newest goes on", func(t *testing.T) *world {
			w := settled(t, 5)
			for _, n := range []int{0, 2, 3} {
				w.emptied(n)
			}
			w.c.Annotations = map[string]string{v1alpha1.AnnotationRecoverQuorum: "go"}
			w.say()
			w.status(1).Position, w.status(4).Position = 7, 8
			return w
		}, "", "config-4"},
		{"what the newest data says of the group counts, not what the first member says", func(t *testing.T) *world {
			w := requestedRecovery(t)
			w.data[1] = w.lost[1]
			w.say()
			w.apart()
			w.changeGroup(0, func(g *etcdapi.GroupStatus) {
				g.Group = &etcdapi.Group{Self: w.data[0], Members: []etcdapi.GroupMember{w.group[w.data[0]]}}
			})
			w.status(0).Position, w.status(1).Position = 7, 8
			return w
		}, "config-0, config-1 have their data", ""},
		{"a pod that no member counts is not heard, and may have newer data", func(t *testing.T) *world {
			w := requestedRecovery(t)
			w.volume(3, true)
			w.pod(3)
			w.say()
			w.o.Members["config-3"] = agentclient.Observation{Err: "timeout"}
			return w
		}, "what config-3 has is not known", ""},
		{"one was admitted, and has no pod yet", func(t *testing.T) *world {
			w := requestedRecovery(t)
			w.admit(3)
			w.say()
			return w
		}, "", "config-0"},
		{"one that the group has removed has nothing newer", func(t *testing.T) *world {
			w := requestedRecovery(t)
			w.volume(3, true)
			w.pod(3)
			w.say()
			m := w.status(3)
			m.SystemIdentifier, m.State, m.Hold = clusterID, agentapi.StateHeld, agentapi.HoldRemoved
			m.Engine = etcdapi.GroupStatus{Group: &etcdapi.Group{Self: "ff"}}
			return w
		}, "", "config-0"},
		{"the volume of one was deleted with its node", func(t *testing.T) *world {
			w := requestedRecovery(t)
			delete(w.o.Members, "config-2")
			w.unbound(2)
			return w
		}, "", "config-0"},
		{"the claim of one is new, and its pod runs somewhere all the same", func(t *testing.T) *world {
			w := requestedRecovery(t)
			delete(w.o.Members, "config-2")
			w.unbound(2)
			w.o.Pods[2].Spec.NodeName = "node-2"
			return w
		}, "what config-2 has is not known", ""},
		{"the claim of one is new, and its pod may go to any node", func(t *testing.T) *world {
			w := requestedRecovery(t)
			delete(w.o.Members, "config-2")
			w.unbound(2)
			w.o.Pods[2].Status.Conditions = nil
			return w
		}, "what config-2 has is not known", ""},
		{"one was admitted and never ran", func(t *testing.T) *world {
			w := requestedRecovery(t)
			w.lost[2] = ""
			w.say()
			return w
		}, "", "config-0"},
		{"only one that never had a vote has data", func(t *testing.T) *world {
			w := requestedRecovery(t)
			w.emptied(0)
			w.data[1] = w.lost[1]
			member := w.group[w.data[1]]
			member.Learner = true
			w.group[member.ID] = member
			w.say()
			return w
		}, "config-1 never had a vote", ""},
		{"one is not heard, and may have newer data", func(t *testing.T) *world {
			w := requestedRecovery(t)
			w.o.Members["config-2"] = agentclient.Observation{Err: "timeout"}
			return w
		}, "what config-2 has is not known", ""},
		{"the pod of one is gone, and its volume may come back", func(t *testing.T) *world { w := requestedRecovery(t); w.gone(2); return w },
			"what config-2 has is not known", ""},
		{"a majority has its data", func(t *testing.T) *world {
			w := requestedRecovery(t)
			w.data[1] = w.lost[1]
			w.say()
			w.apart()
			return w
		}, "config-0, config-1 have their data", ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := tc.world(t)
			p := w.plan()
			target := ""
			for _, o := range p.Report.Requests {
				target = o.Target
			}
			said := ""
			for _, f := range p.Facts {
				if f.Reason == v1alpha1.ReasonRecoveryRefused {
					said = f.Message
				}
			}
			if target != tc.target || !strings.Contains(said, tc.says) || (said == "") != (tc.says == "") {
				t.Errorf("target %q, says %q", target, said)
			}
		})
	}
	t.Run("nothing is lost", func(t *testing.T) {
		w := settled(t, 3)
		w.c.Annotations = map[string]string{v1alpha1.AnnotationRecoverQuorum: "go"}
		orders := w.plan().Report.Requests
		if len(orders) != 1 || orders[0].Target != "" || !strings.Contains(orders[0].Result, "not needed") {
			t.Errorf("%+v", orders)
		}
	})
	t.Run("no member was asked yet", func(t *testing.T) {
		w := requestedRecovery(t)
		w.o.Asking = true
		w.gone(0)
		w.pod(0).Status.Conditions = settled(t, 1).o.Pods[0].Status.Conditions
		if orders := w.plan().Report.Requests; len(orders) != 0 {
			t.Errorf("%+v", orders)
		}
	})
}

// Claims that were deleted because their volumes are gone are made anew by the
// StatefulSet, and say of no member yet whose they are. Their members keep their
// pods: by them alone it is known that nothing is left of their data.
func TestLostMembersKeepTheirPods(t *testing.T) {
	w := requestedRecovery(t)
	for _, n := range []int{1, 2} {
		w.unbound(n)
		delete(w.o.Volumes[n].Labels, v1alpha1.LabelMember)
		delete(w.o.Members, membersOf(w.c).PodName(n))
	}
	p := w.plan()
	for _, obj := range p.Objects {
		if s, is := obj.(*appsv1ac.StatefulSetApplyConfiguration); is && *s.Spec.Replicas != 3 {
			t.Errorf("%d replicas", *s.Spec.Replicas)
		}
	}
	if o := p.Report.Requests; len(o) != 1 || o[0].Target != "config-0" {
		t.Errorf("%+v: %v", o, p.Facts)
	}
}
