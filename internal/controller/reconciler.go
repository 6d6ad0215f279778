// Package controller is the reconcile loop: one generic skeleton that drives
// every engine through observe, plan and act, applies what should exist, and
// writes the status once per pass.
package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/fluxcd/pkg/runtime/jitter"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/controller/driftreport"
	"github.com/holdfast-db/holdfast/internal/controller/requeue"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/tracing"
)

// Syncer writes owned objects.
type Syncer interface {
	Sync(ctx context.Context, req apply.Request) (apply.Result, error)
	Forget(owner types.UID)
}

// Forgetter drops what it remembers of a cluster that is gone.
type Forgetter interface {
	Forget(cluster types.NamespacedName)
}

// Reconciler drives one kind of cluster. C is its type, O what its engine
// observes. Its many methods are the parts of one pass, each in the file of what it
// reconciles (backups, drills, restores, the store, the status): they share the
// clients, the clock and the memory, which would otherwise be passed to each.
type Reconciler[C v1alpha1.Cluster, O any] struct {
	// Client reads from the cache and writes the status.
	Client client.Client
	// Engine is the operational knowledge.
	Engine engine.Engine[C, O]
	// Live reads from the API server, what no cache holds.
	Live client.Reader
	// AgentImage holds the holdfast binary.
	AgentImage string
	// Applier writes owned objects.
	Applier Syncer
	// Forgetters drop clusters that are gone.
	Forgetters []Forgetter
	// Pauses are the newest times in which no member of a cluster took writes; nil where
	// nothing measures them.
	Pauses func(cluster types.NamespacedName) []agentclient.Pause
	// Keys are those of stores that clusters name.
	Keys Keys
	// Recorder of events on the cluster.
	Recorder events.EventRecorder
	// Clock of the loop.
	Clock clock.PassiveClock
	// New makes an empty C.
	New func() C
	// Tracer exports passes that do something; nil for none.
	Tracer *tracing.Tracer

	memory statusCache
}

// statusRetry lets the cache show what another client wrote.
const statusRetry = time.Second

// pass is what one run of the loop knows.
type pass[C v1alpha1.Cluster] struct {
	c       C
	plan    engine.Plan
	sync    apply.Result
	facts   []condition.Fact
	backups backups.Plan
	// store is what became of trying where backups go.
	store  storePlan
	drills drillPlan
	// restored is the restore that the cluster begins with.
	restored restorePlan
	// imported is the import that the cluster begins with.
	imported importPlan
	// deletion is what deleting the cluster does to its data from now on; empty
	// where that stays as it is recorded.
	deletion v1alpha1.DeletionPolicy
	// deletionRecheck is when to ask again what it is; 0 for never.
	deletionRecheck time.Duration
	stepped         bool
	// requests says that this pass recorded a one-shot request or a step of tuning in
	// status, which the next one carries out: no watch says so.
	requests bool
	// drifts are what the status has to tell: of this pass, and of those before
	// it whose status was not written.
	drifts []apply.Drift
	// unwritten says that the status is not recorded, for that, or what it tells
	// of, is another by now.
	statusStale bool
	// readRequests and readOrders are those of the status that was read.
	readRequests []v1alpha1.RequestStatus
	readOrders   []v1alpha1.RequestStatusBefore
	// trace records what the pass does; nil for nothing.
	trace *tracing.Pass
	err   error
}

// Reconcile is one pass.
func (r *Reconciler[C, O]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	c := r.New()
	if err := r.Client.Get(ctx, req.NamespacedName, c); err != nil {
		if apierrors.IsNotFound(err) {
			r.forgetCluster(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("get: %w", err)
	}
	r.memory.restoreStatus(c)
	recorded := c.CommonStatus()
	p := &pass[C]{c: c, readRequests: recorded.Requests, readOrders: recorded.Orders, trace: tracing.FromContext(ctx)}
	p.trace.SetGeneration(c.GetGeneration())
	recorded.MigrateRequests()
	p.imported.status = recorded.Import
	switch {
	case c.GetDeletionTimestamp() != nil:
	case p.announceDeletion():
	default:
		p.err = r.executePass(ctx, p)
		p.err = errors.Join(p.err, r.observeDeletion(ctx, p))
	}
	if err := r.writeStatus(ctx, p); err != nil {
		p.err = errors.Join(p.err, fmt.Errorf("write status: %w", err))
	}
	next, err := r.scheduleNextPass(p)
	if p.stepped || p.requests || p.statusStale || conditions.Has(c, v1alpha1.ConditionReconciling) {
		next.Priority = new(underWayPriority)
	}
	return next, err
}

// executePass observes, plans, applies and acts. A cluster that begins with a backup has
// no members before that is restored.
func (r *Reconciler[C, O]) executePass(ctx context.Context, p *pass[C]) error {
	o, err := r.Engine.Observe(ctx, p.c)
	if err != nil {
		return fmt.Errorf("observe: %w", err)
	}
	suspended := p.c.Common().Suspend
	if held, err := r.reconcileRestore(ctx, p, o); held || err != nil {
		if err != nil || p.plan.Step == nil || !p.plan.Step.Suspended {
			return err
		}
		return r.executeStep(ctx, p)
	}
	p.plan = r.Engine.Plan(p.c, o, r.Clock.Now())
	if err := r.reconcileImport(ctx, p); p.imported.mustRecord || p.imported.holds || err != nil {
		return err
	}
	p.sync, err = r.Applier.Sync(ctx, apply.Request{
		Owner: p.c, Objects: p.plan.Objects, Complete: p.plan.Complete,
		Recorded: p.plan.Recorded, Claims: p.plan.Claims, Drift: p.c.Common().Drift, Suspend: suspended,
	})
	if !p.sync.Outdated {
		p.sync.Drifts = append(p.sync.Drifts, p.plan.Drifts...)
	}
	driftreport.ReportDrifts(ctx, r.events(), p.c, p.sync)
	if p.discardOutdatedPlan() {
		return err
	}
	r.reportNotes(p)
	applied := err == nil
	err = errors.Join(p.extractBlocked(err), p.extractBlocked(r.executeImport(ctx, p, applied)), r.reconcileBackups(ctx, p), r.reconcileDrills(ctx, p, o))
	p.judgeBackedUp()
	if p.plan.Step == nil || suspended && !p.plan.Step.Suspended {
		return err
	}
	return errors.Join(err, r.executeStep(ctx, p))
}

// judgeBackedUp makes one fact of what the parts of the pass say of backups.
func (p *pass[C]) judgeBackedUp() {
	if fact := p.backups.Verdicts.JudgeBackedUp(); fact != nil {
		p.facts = append(p.facts, *fact)
	}
}

// executeStep does the planned step.
func (r *Reconciler[C, O]) executeStep(ctx context.Context, p *pass[C]) error {
	step := *p.plan.Step
	logf.FromContext(ctx).Info("step", "type", step.Type, "target", step.Target, "why", step.Message)
	acting, end := tracing.StartStep(ctx, step.Type, step.Target)
	err := r.Engine.Act(acting, p.c, step)
	end(err)
	if err := p.extractBlocked(err); err != nil {
		r.recordEvent(p.c, warning, v1alpha1.ReasonStepFailed, step.Type, "%s: %v", step, err)
		return fmt.Errorf("act: %w", err)
	}
	p.stepped = true
	r.recordEvent(p.c, normal, v1alpha1.ReasonStepStarted, step.Type, "%s", step)
	return nil
}

// extractBlocked turns what only a person can fix into a fact, and returns the rest of
// err, which is worth another try.
func (p *pass[C]) extractBlocked(err error) error {
	var rest error
	for _, e := range engine.SplitErrors(err) {
		if apierrors.HasStatusCause(e, corev1.NamespaceTerminatingCause) {
			continue // the cluster is about to go with its namespace
		}
		if b := engine.FindBlocked(e); b != nil {
			p.trace.AddBlocked(b.Reason)
			p.facts = append(p.facts, condition.Stalled(b.Reason, b.Message))
			continue
		}
		rest = errors.Join(rest, e)
	}
	return rest
}

// scheduleNextPass is the only place that decides when to look again.
func (r *Reconciler[C, O]) scheduleNextPass(p *pass[C]) (ctrl.Result, error) {
	if p.err != nil {
		return ctrl.Result{}, p.err
	}
	if (p.stepped || p.requests) && !p.statusStale {
		return ctrl.Result{RequeueAfter: requeue.AfterStep}, nil
	}
	wait := findSoonest(p.plan.Recheck, p.waitForCache(), p.backups.Wait, p.drills.wait, p.store.recheck, p.sync.RetryAfter, p.deletionRecheck, r.memory.timeToDeadline(p.c, r.Clock.Now()))
	for _, f := range p.facts {
		if f.Type == v1alpha1.ConditionStalled {
			wait = findSoonest(wait, jitter.JitteredIntervalDuration(requeue.AfterConflict))
		}
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// discardOutdatedPlan says whether what was observed of the volumes no longer held when it
// came to writing: nothing of the plan is recorded, and the next pass looks
// again.
func (p *pass[C]) discardOutdatedPlan() bool {
	if p.sync.Outdated {
		p.plan, p.statusStale = engine.Plan{}, true
	}
	return p.sync.Outdated
}

// waitForCache is when to check a cluster again that other clients changed meanwhile.
func (p *pass[C]) waitForCache() time.Duration {
	if p.statusStale {
		return statusRetry
	}
	return 0
}

// findSoonest finds the soonest of the times that are set; 0 for none.
func findSoonest(times ...time.Duration) time.Duration { return engine.SoonestOf(times...) }

// forgetCluster drops what memory holds of a cluster that is gone.
func (r *Reconciler[C, O]) forgetCluster(name types.NamespacedName) {
	if uid, known := r.memory.forgetCluster(name); known {
		r.Applier.Forget(uid)
	}
	for _, f := range r.Forgetters {
		f.Forget(name)
	}
}

// readRequestedAt reads the value of Flux's annotation that asks for a pass.
func readRequestedAt(c client.Object) string {
	at, _ := meta.ReconcileAnnotationValue(c.GetAnnotations())
	return at
}
