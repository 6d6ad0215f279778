package mysql

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

// pass plans, and records in status what the plan reports.
func (w *world) pass() {
	w.t.Helper()
	w.c.Status.Requests = w.plan().Report.Requests
}

// recorded is what status says of a request, as "ID target: result".
func (w *world) recorded(kind string) string {
	for _, r := range w.c.Status.Requests {
		if r.Type == kind {
			return strings.TrimSpace(fmt.Sprintf("%s %s: %s", r.ID, r.Target, r.Result))
		}
	}
	return ""
}

// requested is what members are asked for.
func (w *world) requested() (found mysqlapi.GroupRequests) {
	w.t.Helper()
	d, _, _ := w.desired()
	var config agentapi.ClusterConfig
	if err := json.Unmarshal(d.Config, &config); err != nil {
		w.t.Fatal(err)
	}
	if config.GroupReplication != nil {
		found = *config.GroupReplication
	}
	return found
}

// lead has another member lead, and all report it.
func (w *world) lead(ordinal int) {
	w.leads = ordinal
	w.o.ServicePods = map[string]map[string]bool{suffixRW: {}, suffixRO: {}}
	var all []int
	for n := range len(w.o.Pods) {
		w.member(n)
		all = append(all, n)
	}
	w.report(all...)
	w.takeUp()
}

// A request is recorded before a member hears of it, and ends when another server leads.
func TestSwitchover(t *testing.T) {
	w := settled(t, 3)
	w.c.Annotations = map[string]string{v1alpha1.AnnotationSwitchover: "1@orders-2"}
	if got := w.requested(); got.Switchover != nil {
		t.Errorf("members hear of it before it is recorded: %+v", got.Switchover)
	}
	w.pass()
	if got := w.recorded(requestSwitchover); got != "1 orders-2:" {
		t.Errorf("recorded %q", got)
	}
	want := mysqlapi.SwitchoverRequest{ID: "1", From: serverUUID(0), Target: "orders-2"}
	if got := w.requested().Switchover; got == nil || *got != want {
		t.Errorf("requested %+v", got)
	}
	w.lead(2)
	w.pass()
	if got := w.recorded(requestSwitchover); got != "1 orders-2: orders-2 leads" {
		t.Errorf("recorded %q", got)
	}
	w.lead(0)
	w.pass()
	if got := w.requested().Switchover; got != nil {
		t.Errorf("it is requested again: %+v", got)
	}
}

func TestSwitchoverIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		value  string
		change func(w *world)
		want   string
	}{
		"the leader itself":  {"1@orders-0", func(*world) {}, "orders-0 leads already"},
		"no member":          {"1@orders-7", func(*world) {}, "name one of orders-0 to orders-2"},
		"no ID":              {"@orders-1", func(*world) {}, "has no ID"},
		"a member that lags": {"1@orders-1", func(w *world) { w.status(1).State = agentapi.StateCatchingUp }, "does not follow the primary closely"},
		"no pod":             {"1@orders-1", func(w *world) { w.removePod(1) }, "has no pod"},
		"no other member":    {"1", func(w *world) { w.removePod(1); w.removePod(2) }, "no other member is online"},
		"refused by the agent": {"1@orders-1", func(w *world) {
			w.pass()
			w.part(0).Refused, w.part(0).RefusedReason = "1", "it is a version ahead"
		}, "refused: it is a version ahead"},
	} {
		t.Run(name, func(t *testing.T) {
			w := settled(t, 3)
			w.c.Annotations = map[string]string{v1alpha1.AnnotationSwitchover: c.value}
			c.change(w)
			w.pass()
			if got := w.recorded(requestSwitchover); !strings.Contains(got, c.want) || !strings.Contains(got, "refused: ") {
				t.Errorf("recorded %q", got)
			}
			if got := w.requested().Switchover; got != nil {
				t.Errorf("requested %+v", got)
			}
		})
	}
}

// A request that the cluster was created with is not carried out later.
func TestRequestAtCreation(t *testing.T) {
	w := newWorld(t, 3)
	w.mintSecrets()
	w.c.Annotations = map[string]string{v1alpha1.AnnotationSwitchover: "1@orders-1"}
	w.pass()
	if got := w.recorded(requestSwitchover); !strings.Contains(got, "not carried out") {
		t.Errorf("recorded %q", got)
	}
}

// While the member that leads is beyond spec.replicas, another one is asked to take over;
// if that one cannot any more, the next.
func TestScaleDownOfThePrimary(t *testing.T) {
	w := settled(t, 5)
	w.lead(4)
	w.declareReplicas(3)
	w.pass()
	w.takeUp()
	if got := w.requested().Switchover; got == nil || got.Target != "orders-0" || got.From != serverUUID(4) {
		t.Fatalf("requested %+v", got)
	}
	if out := outcomeOf(w.plan()); out.Count != 5 {
		t.Errorf("%+v", out)
	}
	w.status(0).State = agentapi.StateCatchingUp
	w.pass()
	if got := w.requested().Switchover; got == nil || got.Target != "orders-1" {
		t.Errorf("requested %+v", got)
	}
	w.lead(1)
	w.status(1).State, w.status(1).Role = agentapi.StateRecovering, v1alpha1.RoleReplica
	w.pass()
	if out := outcomeOf(w.plan()); out.Count != 5 {
		t.Errorf("a member goes while the next primary takes no writes: %+v", out)
	}
	w.lead(1)
	w.pass()
	if out := outcomeOf(w.plan()); out.Count != 4 || w.requested().Switchover != nil {
		t.Errorf("%+v, requested %+v", out, w.requested().Switchover)
	}
}

// lostMajority is a cluster whose third member has lost its volume, and whose others wait
// for it.
func lostMajority(t *testing.T) *world {
	w := settled(t, 3)
	w.detach(0, "1-9", "orders-2")
	w.detach(1, "1-12", "orders-2")
	w.empty(2)
	w.c.Annotations = map[string]string{v1alpha1.AnnotationRecoverQuorum: "go"}
	return w
}

// The member with all transactions goes on, once; it is recorded before it hears of it.
func TestRecovery(t *testing.T) {
	w := lostMajority(t)
	if got := w.requested(); got.Recovery != nil {
		t.Errorf("members hear of it before it is recorded: %+v", got.Recovery)
	}
	w.pass()
	want := mysqlapi.RecoveryRequest{ID: "go", Pod: "orders-1", ServerUUID: serverUUID(1)}
	if got := w.requested().Recovery; got == nil || *got != want {
		t.Fatalf("requested %+v", got)
	}
	w.detach(0, "1-20", "orders-2") // another choice now would make two groups
	w.pass()
	if got := w.requested().Recovery; got == nil || *got != want {
		t.Errorf("requested %+v", got)
	}
	w.status(1).Recovered = "go"
	w.pass()
	if got := w.recorded(requestRecoverQuorum); got != "go orders-1: orders-1 went on with its data, and the others join it" || w.requested().Recovery != nil {
		t.Errorf("recorded %q, requested %+v", got, w.requested().Recovery)
	}
}

func TestRecoveryIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world)
		want   string
	}{
		"a member does not answer":           {func(w *world) { delete(w.o.Members, "orders-0") }, "what orders-0 has is not known"},
		"a member is on its way":             {func(w *world) { w.part(0).Phase = mysqlapi.PhaseStarting }, "what orders-0 has is not known"},
		"all are there":                      {func(w *world) { w.part(0).Missing, w.part(1).Missing = nil, nil }, "can go on by themselves"},
		"each has what another one lacks":    {func(w *world) { w.part(0).Executed = "bbbbbbbb-0000-0000-0000-000000000001:1" }, "each of orders-0, orders-1 holds transactions"},
		"a volume that holds something else": {func(w *world) { w.status(2).State, w.status(2).Hold = agentapi.StateHeld, agentapi.HoldDataUnknown }, "what orders-2 has is not known"},
		"no member has data":                 {func(w *world) { w.empty(0); w.empty(1) }, "no member has data"},
		"what one has received counts, too":  {func(w *world) { w.part(0).Received = w.c.Status.SystemIdentifier + ":1-13" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := lostMajority(t)
			c.change(w)
			p := w.plan()
			if c.want == "" {
				if p.Report.Requests == nil || p.Report.Requests[0].Target != "orders-0" {
					t.Errorf("recorded %+v", p.Report.Requests)
				}
				return
			}
			if len(p.Report.Requests) > 0 {
				t.Errorf("recorded %+v", p.Report.Requests)
			}
			found := ""
			for _, f := range p.Facts {
				if f.Type == v1alpha1.ConditionStalled {
					found += f.Reason + ": " + f.Message
				}
			}
			if !strings.Contains(found, c.want) && name != "no member has data" || name == "no member has data" && !strings.Contains(found, "DataMissing") {
				t.Errorf("stalled: %q", found)
			}
		})
	}
}

// A request that came too late changes nothing.
func TestRecoveryIsNotNeeded(t *testing.T) {
	w := settled(t, 3)
	w.c.Annotations = map[string]string{v1alpha1.AnnotationRecoverQuorum: "go"}
	w.pass()
	if got := w.recorded(requestRecoverQuorum); !strings.Contains(got, "not needed") {
		t.Errorf("recorded %q", got)
	}
	w = lostMajority(t)
	w.pass()
	w.lead(0)
	w.pass()
	if got := w.recorded(requestRecoverQuorum); got != "go orders-1: not needed: the quorum came back" {
		t.Errorf("recorded %q", got)
	}
}

// While a member goes on alone, no healthy pod is replaced.
func TestRecoveryReplacesNothing(t *testing.T) {
	w := lostMajority(t)
	w.pass()
	w.c.Spec.PodLabels = map[string]string{"team": "shop"}
	if p := w.plan(); p.Step != nil || p.Recheck != recoveryRecheck {
		t.Errorf("step %v, recheck %v", p.Step, p.Recheck)
	}
}

// If none that is left was in the group when the others were lost, one of them goes on only
// by the request, and what that means is said before and while it does.
func TestRecoveryWithoutARecordedMember(t *testing.T) {
	for name, missing := range map[string][]string{"it waits": {"orders-1", "orders-2"}, "no record is left": nil} {
		t.Run(name, func(t *testing.T) {
			w := settled(t, 3)
			w.detach(0, "1-9", missing...)
			w.part(0).Persisted = []string{serverUUID(1), serverUUID(2)}
			w.empty(1)
			w.empty(2)
			const want = "orders-0 goes on with its data; it was not in the group any more when the others were lost"
			if p := w.plan(); missing != nil && !strings.Contains(fmt.Sprint(p.Facts), want) {
				t.Errorf("%v", p.Facts)
			}
			w.c.Annotations = map[string]string{v1alpha1.AnnotationRecoverQuorum: "go"}
			w.pass()
			if got := w.requested().Recovery; got == nil || got.Pod != "orders-0" {
				t.Fatalf("requested %+v", got)
			}
			if p := w.plan(); !strings.Contains(fmt.Sprint(p.Facts), "orders-0 goes on alone, as requested; it was not in the group any more") {
				t.Errorf("%v", p.Facts)
			}
		})
	}
	w := lostMajority(t)
	delete(w.c.Annotations, v1alpha1.AnnotationRecoverQuorum)
	if p := w.plan(); !strings.Contains(fmt.Sprint(p.Facts), "Then orders-1 goes on with its data") || strings.Contains(fmt.Sprint(p.Facts), "not in the group any more") {
		t.Errorf("%v", p.Facts)
	}
}
