package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/tracing"
)

// leaderEngine is a database with one leader, which is elected once there is a
// member. It shares no code with a real engine.
type leaderEngine struct {
	members int
	leader  bool
	// refusal is what stands against the next step.
	refusal error
	acted   []string
}

type leaderObservation struct {
	members int
	leader  bool
}

func (e *leaderEngine) Observe(context.Context, *v1alpha1.PostgresCluster) (leaderObservation, error) {
	return leaderObservation{e.members, e.leader}, nil
}

func (e *leaderEngine) Plan(c *v1alpha1.PostgresCluster, o leaderObservation, _ time.Time) engine.Plan {
	p := engine.Plan{Complete: true, Report: engine.Report{Replicas: int32(o.members), ReadyReplicas: int32(o.members)}}
	p.Facts = append(p.Facts, toyAvailability(o.leader, "a leader takes writes"))
	switch want := c.Common().DesiredReplicas(); {
	case o.members < want:
		p.Step = &engine.Step{Type: "StartMember", Target: fmt.Sprintf("%s-%d", c.Name, o.members), Message: "a member is missing"}
	case o.members > want:
		p.Step = &engine.Step{Type: "StopMember", Target: fmt.Sprintf("%s-%d", c.Name, o.members-1), Message: "a member is too many"}
	case !o.leader:
		p.Step = &engine.Step{Type: "ElectLeader", Target: c.Name + "-0", Message: "no member leads"}
	}
	if p.Step != nil {
		p.Facts = append(p.Facts, condition.Fact{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonProgressing, Message: p.Step.Message})
	}
	return p
}

func (e *leaderEngine) PlanCopy(*v1alpha1.PostgresCluster, leaderObservation) engine.CopyPlan {
	return engine.CopyPlan{}
}

func (e *leaderEngine) PlanRestore(*v1alpha1.PostgresCluster, leaderObservation) engine.RestorePlan {
	return engine.RestorePlan{}
}

func (e *leaderEngine) Act(_ context.Context, _ *v1alpha1.PostgresCluster, s engine.Step) error {
	if e.refusal != nil {
		return e.refusal
	}
	e.acted = append(e.acted, s.Type)
	switch s.Type {
	case "StartMember":
		e.members++
	case "StopMember":
		e.members--
	case "ElectLeader":
		e.leader = true
	}
	return nil
}

func (e *leaderEngine) listActed() []string { return e.acted }
func (e *leaderEngine) refuse(err error)    { e.refusal = err }

// quorumEngine is a database whose voters decide by majority. Its members join
// without a vote, and are promoted one at a time.
type quorumEngine struct {
	voters, learners map[string]bool
	steps            []string
	fault            error
}

type quorumObservation struct{ voters, learners []string }

func (e *quorumEngine) Observe(context.Context, *v1alpha1.EtcdCluster) (quorumObservation, error) {
	var o quorumObservation
	for name := range e.voters {
		o.voters = append(o.voters, name)
	}
	for name := range e.learners {
		o.learners = append(o.learners, name)
	}
	return o, nil
}

func (e *quorumEngine) Plan(c *v1alpha1.EtcdCluster, o quorumObservation, _ time.Time) engine.Plan {
	want := c.Common().DesiredReplicas()
	plan := engine.Plan{Complete: true, Facts: []condition.Fact{toyAvailability(len(o.voters) > want/2, "a majority votes")}}
	plan.Report.Replicas, plan.Report.ReadyReplicas = int32(len(o.voters)+len(o.learners)), int32(len(o.voters))
	step := func(kind, target string) engine.Plan {
		plan.Step = &engine.Step{Type: kind, Target: target, Message: "the group is changed by one member"}
		plan.Facts = append(plan.Facts, condition.Fact{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonProgressing, Message: kind + " " + target})
		return plan
	}
	switch {
	case len(o.learners) > 0:
		return step("PromoteLearner", o.learners[0])
	case len(o.voters) < want:
		return step("AddLearner", fmt.Sprintf("%s-%d", c.Name, len(o.voters)))
	case len(o.voters) > want:
		return step("RemoveVoter", fmt.Sprintf("%s-%d", c.Name, len(o.voters)-1))
	}
	return plan
}

func (e *quorumEngine) PlanCopy(*v1alpha1.EtcdCluster, quorumObservation) engine.CopyPlan {
	return engine.CopyPlan{}
}

func (e *quorumEngine) PlanRestore(*v1alpha1.EtcdCluster, quorumObservation) engine.RestorePlan {
	return engine.RestorePlan{}
}

func (e *quorumEngine) Act(_ context.Context, _ *v1alpha1.EtcdCluster, s engine.Step) error {
	if e.fault != nil {
		return e.fault
	}
	e.steps = append(e.steps, s.Type)
	switch s.Type {
	case "AddLearner":
		e.learners[s.Target] = true
	case "PromoteLearner":
		delete(e.learners, s.Target)
		e.voters[s.Target] = true
	case "RemoveVoter":
		delete(e.voters, s.Target)
	}
	return nil
}

func (e *quorumEngine) listActed() []string { return e.steps }
func (e *quorumEngine) refuse(err error)    { e.fault = err }

func toyAvailability(serves bool, message string) condition.Fact {
	if !serves {
		return condition.Fact{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotReady, Message: "nothing serves"}
	}
	return condition.Fact{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAvailable, Message: message}
}

// toySyncer writes nothing, and reports the drift that it is given, once.
type toySyncer struct {
	drifts    []apply.Drift
	suspended []bool
}

func (s *toySyncer) Sync(_ context.Context, req apply.Request) (apply.Result, error) {
	s.suspended = append(s.suspended, req.Suspend)
	result := apply.Result{Settled: true, Drifts: s.drifts}
	s.drifts = nil
	return result, nil
}

func (s *toySyncer) Forget(types.UID) {}

// toyLoop drives one toy engine through the generic loop.
type toyLoop[C v1alpha1.Cluster] struct {
	t    *testing.T
	live client.Client
	pass func() (ctrl.Result, error)
	// trace has the passes exported from now on.
	trace  func(*tracing.Tracer)
	c      C
	syncer *toySyncer
	events *events.FakeRecorder
	engine interface {
		listActed() []string
		refuse(err error)
	}
}

func newToyLoop[C v1alpha1.Cluster, O any](t *testing.T, c C, newCluster func() C, e engine.Engine[C, O]) *toyLoop[C] {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c.SetNamespace("shop")
	c.SetName("orders")
	c.SetUID("toy")
	c.SetGeneration(1)
	c.CommonStatus().ObservedGeneration = -1
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(c).WithStatusSubresource(c).Build()
	// The status is applied as a whole, so writing all of it does the same.
	writeStatus := func(ctx context.Context, in client.Client, _ string, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
		data, err := patch.Data(obj)
		if err != nil {
			return err
		}
		now, sent := newCluster(), newCluster()
		if err := json.Unmarshal(data, sent); err != nil {
			return err
		}
		if err := in.Get(ctx, client.ObjectKeyFromObject(obj), now); err != nil {
			return err
		}
		sent.CommonStatus().DeepCopyInto(now.CommonStatus())
		if err := in.Status().Update(ctx, now); err != nil {
			return err
		}
		obj.SetResourceVersion(now.GetResourceVersion())
		return nil
	}
	l := &toyLoop[C]{t: t, live: live, c: c, syncer: &toySyncer{}, events: events.NewFakeRecorder(100)}
	l.engine = any(e).(interface {
		listActed() []string
		refuse(err error)
	})
	r := &Reconciler[C, O]{
		Client: interceptor.NewClient(live, interceptor.Funcs{SubResourcePatch: writeStatus}), Live: live, Engine: e, Applier: l.syncer,
		Keys: versions{}, Recorder: l.events, Clock: clocktesting.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)), New: newCluster,
	}
	var traced reconcile.Reconciler = r
	l.trace = func(tracer *tracing.Tracer) {
		r.Client, traced = tracer.WrapClient(r.Client), tracer.Wrap(r, "toy", "PostgresCluster")
	}
	l.pass = func() (ctrl.Result, error) {
		return traced.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)})
	}
	return l
}

// reconcile runs a pass, which takes one step at most, and reads what it wrote.
func (l *toyLoop[C]) reconcile() ctrl.Result {
	l.t.Helper()
	before := len(l.engine.listActed())
	result, err := l.pass()
	if err != nil {
		l.t.Fatal(err)
	}
	if steps := len(l.engine.listActed()) - before; steps > 1 {
		l.t.Errorf("%d steps in one pass", steps)
	}
	if err := l.live.Get(l.t.Context(), client.ObjectKeyFromObject(l.c), l.c); err != nil {
		l.t.Fatal(err)
	}
	return result
}

// converge runs passes until one takes no step.
func (l *toyLoop[C]) converge() {
	l.t.Helper()
	for range 20 {
		before := len(l.engine.listActed())
		if l.reconcile(); len(l.engine.listActed()) == before {
			return
		}
	}
	l.t.Fatal("it takes step after step")
}

// edit changes the spec, of a new generation.
func (l *toyLoop[C]) edit(change func(c C)) {
	l.t.Helper()
	change(l.c)
	l.c.SetGeneration(l.c.GetGeneration() + 1)
	if err := l.live.Update(l.t.Context(), l.c); err != nil {
		l.t.Fatal(err)
	}
}

func (l *toyLoop[C]) wantReady(ready bool, after string) {
	l.t.Helper()
	if got := conditions.IsTrue(l.c, v1alpha1.ConditionReady); got != ready {
		l.t.Errorf("after %s: ready is %v: %s", after, got, conditions.GetMessage(l.c, v1alpha1.ConditionReady))
	}
}

// testLoop is what the loop owes to every engine.
func testLoop[C v1alpha1.Cluster](t *testing.T, l *toyLoop[C], scale func(c C, replicas int32)) {
	if result := l.reconcile(); result.RequeueAfter == 0 || len(l.engine.listActed()) != 1 {
		t.Errorf("create: %v, and again in %s", l.engine.listActed(), result.RequeueAfter)
	}
	l.wantReady(false, "the first step")
	l.converge()
	l.wantReady(true, "create")

	l.edit(func(c C) { scale(c, 3) })
	l.converge()
	l.wantReady(true, "scale")
	if st := l.c.CommonStatus(); st.ReadyReplicas != 3 || st.ObservedGeneration != l.c.GetGeneration() {
		t.Errorf("scale: %+v", st)
	}

	l.syncer.drifts = []apply.Drift{{Time: metav1.NewTime(time.Unix(1, 0)), Path: ".spec.ports", Manager: "kubectl", Operation: "Update", Action: apply.ActionReverted}}
	l.reconcile()
	l.reconcile()
	if d := l.c.CommonStatus().Drift; d == nil || len(d.Last) != 1 || d.Last[0].Manager != "kubectl" {
		t.Errorf("drift: %+v", d)
	}
	l.wantReady(true, "drift")

	done := len(l.engine.listActed())
	l.edit(func(c C) { c.Common().Suspend = true; scale(c, 1) })
	l.reconcile()
	if steps := l.engine.listActed()[done:]; len(steps) > 0 || !l.syncer.suspended[len(l.syncer.suspended)-1] {
		t.Errorf("suspend: took %v", steps)
	}
	l.wantReady(false, "suspend")

	l.engine.refuse(&engine.Blocked{Reason: v1alpha1.ReasonForbidden, Message: "spec.quota is used up"})
	l.edit(func(c C) { c.Common().Suspend = false })
	l.reconcile()
	if reason := conditions.GetReason(l.c, v1alpha1.ConditionStalled); reason != v1alpha1.ReasonForbidden {
		t.Errorf("blocked: Stalled/%s", reason)
	}
	l.engine.refuse(nil)
	l.converge()
	l.wantReady(true, "what stood against it is gone")
	if conditions.Has(l.c, v1alpha1.ConditionStalled) {
		t.Error("blocked: it is still Stalled")
	}
}

// testRestore is what the loop owes to a cluster that begins with a backup.
func testRestore[C v1alpha1.Cluster](t *testing.T, l *toyLoop[C]) {
	l.edit(func(c C) { c.Common().Restore = &v1alpha1.ClusterRestore{Backup: "monday"} })
	l.reconcile()
	if reason := conditions.GetReason(l.c, v1alpha1.ConditionStalled); reason != v1alpha1.ReasonBackupMissing || len(l.engine.listActed()) > 0 {
		t.Errorf("it waits for its backup as Stalled/%s, and took %v", reason, l.engine.listActed())
	}
	if message := conditions.GetMessage(l.c, v1alpha1.ConditionStalled); !strings.Contains(message, "spec.restore.backup") || !strings.Contains(message, "monday") {
		t.Errorf("says %q", message)
	}
}

func newToyLeader(t *testing.T) (*toyLoop[*v1alpha1.PostgresCluster], func(*v1alpha1.PostgresCluster, int32)) {
	scale := func(c *v1alpha1.PostgresCluster, replicas int32) { c.Spec.Replicas = &replicas }
	c := &v1alpha1.PostgresCluster{}
	scale(c, 1)
	return newToyLoop(t, c, func() *v1alpha1.PostgresCluster { return &v1alpha1.PostgresCluster{} }, &leaderEngine{}), scale
}

func newToyQuorum(t *testing.T) (*toyLoop[*v1alpha1.EtcdCluster], func(*v1alpha1.EtcdCluster, int32)) {
	scale := func(c *v1alpha1.EtcdCluster, replicas int32) { c.Spec.Replicas = &replicas }
	c := &v1alpha1.EtcdCluster{}
	scale(c, 1)
	e := &quorumEngine{voters: map[string]bool{}, learners: map[string]bool{}}
	return newToyLoop(t, c, func() *v1alpha1.EtcdCluster { return &v1alpha1.EtcdCluster{} }, e), scale
}

func TestLoopDrivesAnEngineWithALeader(t *testing.T) {
	l, scale := newToyLeader(t)
	testLoop(t, l, scale)
}

func TestLoopDrivesAnEngineWithAQuorum(t *testing.T) {
	l, scale := newToyQuorum(t)
	testLoop(t, l, scale)
}

func TestLoopRestoresBeforeAnyEngineActs(t *testing.T) {
	leader, _ := newToyLeader(t)
	testRestore(t, leader)
	quorum, _ := newToyQuorum(t)
	testRestore(t, quorum)
}
