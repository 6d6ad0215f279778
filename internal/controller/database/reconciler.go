// Package database is the reconciler of the kind Database: it declares the cluster that
// runs the database, keeps that declaration, and says of the database what the
// cluster says of itself.
package database

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fluxcd/pkg/runtime/jitter"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/controller/driftreport"
	"github.com/holdfast-db/holdfast/internal/controller/eventseries"
	"github.com/holdfast-db/holdfast/internal/controller/requeue"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/tracing"
)

// Applier writes the clusters of Databases.
type Applier interface {
	Sync(ctx context.Context, req apply.Request) (apply.Result, error)
	Forget(owner types.UID)
}

// Reconciler keeps the clusters of Databases as they declare them.
type Reconciler struct {
	// Client reads from the cache and writes the status.
	Client client.Client
	// Live reads from the API server: whether a Database is still there, before
	// its cluster is made.
	Live client.Reader
	// Applier writes clusters.
	Applier Applier
	// Engines that a Database can have.
	Engines  map[v1alpha1.DatabaseEngine]Engine
	Recorder events.EventRecorder
	// Tracer exports passes that do something; nil for none.
	Tracer *tracing.Tracer

	memory memory
}

// memory is what is known of Databases beyond the cache.
type memory struct {
	mu   sync.Mutex
	uids map[types.NamespacedName]types.UID
	// drifts that no status has reported yet: each is observed once.
	drifts map[types.UID][]apply.Drift
}

// Setup makes the controller and its watches: those of Databases and of the clusters
// that can be theirs.
func (r *Reconciler) Setup(mgr ctrl.Manager, concurrent int) error {
	changes := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	b := ctrl.NewControllerManagedBy(mgr).Named("database").For(&v1alpha1.Database{}, builder.WithPredicates(changes)).
		WithOptions(ctrlcontroller.Options{MaxConcurrentReconciles: concurrent, RateLimiter: requeue.NewRateLimiter()})
	for _, e := range r.Engines {
		b = b.Watches(e.New(), handler.EnqueueRequestsFromMapFunc(r.mapToDatabase))
	}
	return b.Complete(r.Tracer.Wrap(r, "database", "Database"))
}

// mapToDatabase finds the Database that a cluster has the name of, also where it
// belongs to another owner: then it is in the way.
func (r *Reconciler) mapToDatabase(ctx context.Context, cluster client.Object) []reconcile.Request {
	name := client.ObjectKeyFromObject(cluster)
	if err := r.Client.Get(ctx, name, &v1alpha1.Database{}, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: name}}
}

// Reconcile is one pass.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	d := &v1alpha1.Database{}
	if err := r.Client.Get(ctx, req.NamespacedName, d); err != nil {
		if apierrors.IsNotFound(err) {
			r.forgetDatabase(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("get: %w", err)
	}
	tracing.FromContext(ctx).SetGeneration(d.Generation)
	r.memory.remember(d)
	o, err := r.observeClusters(ctx, d)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observe: %w", err)
	}
	if o.canApply() && o.mustAnnounceDeletion() {
		return r.announceDeletion(ctx, d)
	}
	if o.canApply() {
		if err := r.applyCluster(ctx, &o); err != nil {
			return ctrl.Result{}, err
		}
	}
	if o.mayBeAbsent() {
		if o.absent, err = r.isAbsent(ctx, d); err != nil {
			return ctrl.Result{}, fmt.Errorf("look for the cluster: %w", err)
		}
	}
	drifts := r.memory.addDrifts(d, o.sync.Drifts)
	if o.gone || apierrors.IsConflict(o.err) {
		// The cache is behind: of the Database, or of its cluster.
		return ctrl.Result{RequeueAfter: requeue.AfterStep}, nil
	}
	err = r.writeStatus(ctx, d, planStatus(o, drifts))
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: requeue.AfterStep}, nil // the cache is behind
	}
	if err := errors.Join(o.err, client.IgnoreNotFound(err)); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: o.nextPass()}, nil
}

// observeClusters reads the cluster of a Database from the cache, and one of another
// engine that belongs to it.
func (r *Reconciler) observeClusters(ctx context.Context, d *v1alpha1.Database) (observation, error) {
	o := observation{database: d}
	o.engine, o.supported = r.Engines[d.Spec.Engine]
	for name, e := range r.Engines {
		c := e.New()
		err := r.Client.Get(ctx, client.ObjectKeyFromObject(d), c)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return o, err
		case name == d.Spec.Engine:
			o.cluster = c
		case metav1.IsControlledBy(c, d):
			o.former, o.formerKind = c, e.Kind
		}
	}
	return o, nil
}

// applyCluster declares the cluster. What a person has to fix becomes a fact, another
// failure is remembered.
func (r *Reconciler) applyCluster(ctx context.Context, o *observation) error {
	if o.cluster == nil {
		is, err := r.isThere(ctx, o.database)
		if o.gone = !is; err != nil || o.gone {
			return err
		}
	}
	object, err := declareCluster(o.database, o.engine)
	if err != nil {
		return err
	}
	o.sync, err = r.Applier.Sync(ctx, apply.Request{Owner: o.database, Objects: []runtime.ApplyConfiguration{object}, ByReference: true, Drift: o.driftRules()})
	driftreport.ReportDrifts(ctx, r.events(), o.database, o.sync)
	known := len(o.facts)
	o.addErrors(engine.SplitErrors(err))
	for _, fact := range o.facts[known:] {
		tracing.FromContext(ctx).AddBlocked(fact.Reason)
	}
	return nil
}

// isThere asks the API server whether a Database is there and stays. Its cluster may be
// missing since the Database is being deleted, which the cache does not show yet.
func (r *Reconciler) isThere(ctx context.Context, d *v1alpha1.Database) (bool, error) {
	now := &metav1.PartialObjectMetadata{}
	now.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Database"))
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(d), now); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return now.UID == d.UID && now.DeletionTimestamp == nil, nil
}

// events reports to the recorder.
func (r *Reconciler) events() eventseries.Reporter { return eventseries.Reporter{Recorder: r.Recorder} }

// forgetDatabase drops what is remembered of a Database that is gone.
func (r *Reconciler) forgetDatabase(name types.NamespacedName) {
	if uid := r.memory.forget(name); uid != "" {
		r.Applier.Forget(uid)
	}
}

// nextPass is when to look again at what no watch reports.
func (o *observation) nextPass() time.Duration {
	for _, f := range o.facts {
		if f.Type == v1alpha1.ConditionStalled {
			return engine.SoonestOf(o.sync.RetryAfter, jitter.JitteredIntervalDuration(requeue.AfterConflict))
		}
	}
	return o.sync.RetryAfter
}

func (m *memory) remember(d *v1alpha1.Database) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.uids == nil {
		m.uids, m.drifts = map[types.NamespacedName]types.UID{}, map[types.UID][]apply.Drift{}
	}
	m.uids[client.ObjectKeyFromObject(d)] = d.UID
}

// addDrifts keeps what a pass found until a status reports it, the newest first.
func (m *memory) addDrifts(d *v1alpha1.Database, found []apply.Drift) []apply.Drift {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := append(found, m.drifts[d.UID]...)
	m.drifts[d.UID] = all[:min(len(all), driftreport.MaxDrifts)]
	return m.drifts[d.UID]
}

// dropDrifts drops what a status has reported.
func (m *memory) dropDrifts(d *v1alpha1.Database) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.drifts, d.UID)
}

func (m *memory) forget(name types.NamespacedName) types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	uid := m.uids[name]
	delete(m.uids, name)
	delete(m.drifts, uid)
	return uid
}

// writeStatus applies the status, if it changed, over nothing newer.
func (r *Reconciler) writeStatus(ctx context.Context, d *v1alpha1.Database, status v1alpha1.DatabaseStatus) error {
	if equality.Semantic.DeepEqual(d.Status, status) {
		r.memory.dropDrifts(d)
		return nil
	}
	if err := r.applyStatus(ctx, d, status); err != nil {
		return err
	}
	r.memory.dropDrifts(d)
	r.events().ReportConditions(d, d.Status.Conditions, status.Conditions)
	return nil
}
