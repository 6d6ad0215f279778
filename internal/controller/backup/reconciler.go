// Package backup is the reconciler of the kind Backup: each Backup is made by a Job,
// kept, and removed with its data. What backups of a cluster there should be, the
// reconciler of the cluster decides.
package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/controller/eventseries"
	"github.com/holdfast-db/holdfast/internal/controller/inventory"
	"github.com/holdfast-db/holdfast/internal/controller/requeue"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/tracing"
)

// Copies finds a cluster of one kind, and how it is copied now.
type Copies interface {
	// Find fails with NotFound where there is no such cluster.
	Find(ctx context.Context, name types.NamespacedName) (v1alpha1.Cluster, error)
	// Copying finds it, and says how it is copied.
	Copying(ctx context.Context, name types.NamespacedName) (v1alpha1.Cluster, engine.CopyPlan, error)
}

// Applier writes what a Backup owns.
type Applier interface {
	Sync(ctx context.Context, req apply.Request) (apply.Result, error)
	Forget(owner types.UID)
}

// Reconciler makes backups, and removes them. It has a method for each thing that a
// pass reads or does: all need the same clients, and none is of use without them.
type Reconciler struct {
	// Client reads from the cache and writes Backups.
	Client client.Client
	// Live reads from the API server: whether a Secret of a user's is there,
	// before a pod waits for it.
	Live client.Reader
	// Applier writes what a Backup owns, and prunes the kinds of ListOwnedKinds.
	Applier Applier
	// Kinds of clusters that can be backed up.
	Kinds map[string]Copies
	// AgentImage holds the holdfast binary.
	AgentImage string
	// Concurrent is how many backups are made at the same time, of all clusters;
	// 0 for any number.
	Concurrent int
	Recorder   events.EventRecorder
	Clock      clock.PassiveClock
	// Tracer exports passes that do something; nil for none.
	Tracer *tracing.Tracer

	// known are the UIDs of Backups by name, whose objects the Applier remembers.
	known sync.Map
	// begun are the backups that were begun and that the cache may not show so yet. Only
	// passes read and change it, which come one after the other.
	begun map[types.NamespacedName]begunBackup
	// behind are how many passes of a backup in a row ended in that another had changed what
	// they write. Only passes read and change it.
	behind map[types.NamespacedName]int
	// failed are the UIDs of Backups by name whose last pass failed.
	failed sync.Map
	// queue of the passes; nil while no number limits the backups.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// begunBackup is one whose place this process recorded at a time.
type begunBackup struct {
	uid types.UID
	at  time.Time
}

// listOwnedTypes lists the kinds of objects that a Backup owns.
func listOwnedTypes() []client.Object {
	return []client.Object{&batchv1.Job{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}}
}

// ListOwnedKinds lists the kinds of objects that a Backup owns, and that its Applier
// may prune.
func ListOwnedKinds() []schema.GroupVersionKind { return apply.ListKinds(listOwnedTypes()) }

// Setup makes the controller and its watches. Clusters are watched by their
// empty objects, one of each kind.
func (r *Reconciler) Setup(mgr ctrl.Manager, clusters map[string]client.Object) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Backup{}, indexTurn, indexByTurn); err != nil {
		return fmt.Errorf("index backups: %w", err)
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("backup").For(&v1alpha1.Backup{}).
		WithOptions(ctrlcontroller.Options{
			// One at a time, so that of two backups of a cluster the second sees the first.
			MaxConcurrentReconciles: 1,
			RateLimiter:             requeue.NewRateLimiter(),
		})
	for _, obj := range append(listOwnedTypes(), &corev1.Pod{}) {
		b = b.Watches(obj, handler.EnqueueRequestsFromMapFunc(mapByBackup))
	}
	b = b.Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(mapVolumeToBackups(r.Client)), builder.WithPredicates(comesOrGoes()))
	if r.Concurrent > 0 {
		b = b.Watches(&v1alpha1.Backup{}, r.followTurns()).WatchesRawSource(source.Func(
			func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
				r.queue = queue // before the first pass
				return nil
			}))
	}
	for kind, obj := range clusters {
		b = b.Watches(obj, handler.EnqueueRequestsFromMapFunc(mapToOpenBackups(r.Client, kind)))
	}
	return b.Complete(r.Tracer.Wrap(r, "backup", "Backup"))
}

// mapByBackup finds the Backup that an object says it belongs to.
func mapByBackup(_ context.Context, obj client.Object) []reconcile.Request {
	name := obj.GetLabels()[v1alpha1.LabelBackup]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}}
}

// mapToOpenBackups finds the Backups of a cluster that are not done.
func mapToOpenBackups(reader client.Reader, kind string) handler.MapFunc {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		all, err := inventory.ListBackups(ctx, reader, v1alpha1.ClusterReference{Kind: kind, Name: obj.GetName()}, obj.GetNamespace())
		if err != nil {
			return nil
		}
		var requests []reconcile.Request
		for _, b := range all {
			if !b.IsFinished() {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
			}
		}
		return requests
	}
}

// mapVolumeToBackups finds the Backups whose data is on a volume, or is to be.
func mapVolumeToBackups(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		name, is := strings.CutSuffix(obj.GetName(), v1alpha1.SuffixBackups)
		var all v1alpha1.BackupList
		if !is || reader.List(ctx, &all, client.InNamespace(obj.GetNamespace())) != nil {
			return nil
		}
		var requests []reconcile.Request
		for i := range all.Items {
			if b := &all.Items[i]; b.Spec.ClusterRef.Name == name {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
			}
		}
		return requests
	}
}

func comesOrGoes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetDeletionTimestamp() == nil && e.ObjectNew.GetDeletionTimestamp() != nil
	}}
}

// Reconcile is one pass.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	b := &v1alpha1.Backup{}
	if err := r.Client.Get(ctx, req.NamespacedName, b); err != nil {
		if uid, known := r.known.LoadAndDelete(req.NamespacedName); known && apierrors.IsNotFound(err) {
			r.Applier.Forget(uid.(types.UID))
		}
		r.failed.Delete(req.NamespacedName)
		delete(r.behind, req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	tracing.FromContext(ctx).SetGeneration(b.Generation)
	r.known.Store(req.NamespacedName, b.UID)
	recheck, err := r.reconcileBackup(ctx, b)
	if r.waitsForCache(req.NamespacedName, err) {
		return ctrl.Result{RequeueAfter: requeue.AfterStep}, nil
	}
	r.recordPass(ctx, b, err)
	return ctrl.Result{RequeueAfter: recheck}, err
}

// reconcileBackup is one pass of a Backup that is there. It says when to look again.
func (r *Reconciler) reconcileBackup(ctx context.Context, b *v1alpha1.Backup) (recheck time.Duration, err error) {
	seen, err := r.observeBackup(ctx, b)
	if err != nil {
		return 0, fmt.Errorf("observe: %w", err)
	}
	p := planBackup(seen)
	return p.recheck, r.executePlan(ctx, b, &p)
}

// mostBehind is how many passes of a backup in a row may end in that another has changed what
// they write. A cache that is behind has caught up by then.
const mostBehind = 5

// waitsForCache says whether a pass failed since the cache may be behind. What ends each pass
// so has another cause, and is an error like any other: it is logged, and retries back off.
func (r *Reconciler) waitsForCache(name types.NamespacedName, err error) bool {
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		delete(r.behind, name)
		return false
	}
	if r.behind == nil {
		r.behind = map[types.NamespacedName]int{}
	}
	r.behind[name]++
	return r.behind[name] <= mostBehind
}

// executePlan does what was planned, in an order that survives a death at any point: the
// finalizer before there is data, the location before anything is stored, the
// result before its Job goes.
func (r *Reconciler) executePlan(ctx context.Context, b *v1alpha1.Backup, p *plan) error {
	if p.frees {
		if err := r.freeVolume(ctx, b); err != nil {
			return err
		}
	}
	if p.finalizer {
		return r.writeFinalizers(ctx, b, append(slices.Clone(b.Finalizers), v1alpha1.BackupFinalizer))
	}
	if p.release && b.DeletionTimestamp == nil {
		return r.removeFinalizer(ctx, b)
	}
	if err := r.writeStatus(ctx, b, p); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	if p.keepAccount {
		if err := r.keepAccount(ctx, b); err != nil {
			return err
		}
	}
	r.recordPlanEvent(b, p)
	if err := errors.Join(r.freeScratch(ctx, p.spent), r.stopJob(ctx, p.stop)); err != nil {
		return err
	}
	if len(p.objects) > 0 || p.complete {
		if err := r.applyObjects(ctx, b, p); err != nil {
			return err
		}
	}
	if p.release {
		return client.IgnoreNotFound(r.removeFinalizer(ctx, b))
	}
	return nil
}

// stopJob deletes a Job with its pods; nil for none.
func (r *Reconciler) stopJob(ctx context.Context, stop *batchv1.Job) error {
	if stop == nil {
		return nil
	}
	err := r.Client.Delete(ctx, stop, client.Preconditions{UID: new(stop.UID)}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("stop the Job: %w", err)
	}
	return nil
}

// recordPlanEvent makes the event of the plan.
func (r *Reconciler) recordPlanEvent(b *v1alpha1.Backup, p *plan) {
	if p.event.Reason == "" {
		return
	}
	kind := corev1.EventTypeNormal
	if p.warns {
		kind = corev1.EventTypeWarning
	}
	r.Recorder.Eventf(eventseries.RemoveVersion(b), new(eventseries.MakeReference(b, eventseries.HashCause(p.event.Message))), kind, p.event.Reason, p.event.Action, "%s", p.event.Message)
}

// announceStall makes one event of what keeps a backup from going on, unless the
// plan has an event of its own for that.
func (r *Reconciler) announceStall(b *v1alpha1.Backup, before []metav1.Condition, p *plan) {
	now := meta.FindStatusCondition(p.status.Conditions, v1alpha1.ConditionStalled)
	if now == nil || p.event.Reason == now.Reason || eventseries.HasSameCause(meta.FindStatusCondition(before, v1alpha1.ConditionStalled), now) {
		return
	}
	r.Recorder.Eventf(eventseries.RemoveVersion(b), new(eventseries.MakeReference(b, eventseries.HashCause(now.Message))), corev1.EventTypeWarning, now.Reason, "Backup", "%s", eventseries.TruncateText(now.Message, eventseries.MaxLength))
}

// removeFinalizer lets the Backup go: what becomes of its data is settled.
func (r *Reconciler) removeFinalizer(ctx context.Context, b *v1alpha1.Backup) error {
	return r.writeFinalizers(ctx, b, slices.DeleteFunc(slices.Clone(b.Finalizers), func(f string) bool { return f == v1alpha1.BackupFinalizer }))
}

// applyObjects applies what the Backup owns. What only a person can fix is said, and
// looked at again.
func (r *Reconciler) applyObjects(ctx context.Context, b *v1alpha1.Backup, p *plan) error {
	_, err := r.Applier.Sync(ctx, apply.Request{Owner: b, Objects: p.objects, Complete: p.complete, Labels: map[string]string{v1alpha1.LabelBackup: b.Name}})
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		// Nothing can be made any more, not even an event.
		if p.release = b.DeletionTimestamp != nil; p.release && b.Status.Location != nil {
			at := b.Status.Location
			logf.FromContext(ctx).Info("the namespace is going, and what is stored stays", "backup", b.Name, "url", at.URL, "prefix", at.Prefix)
		}
		return nil
	}
	var rest error
	for _, e := range engine.SplitErrors(err) {
		stuck := engine.FindBlocked(e)
		if stuck == nil {
			rest = errors.Join(rest, e)
			continue
		}
		tracing.FromContext(ctx).AddBlocked(stuck.Reason)
		p.recheck = requeue.AfterConflict
		if p.leaves {
			observation{backup: b}.leaveData(p)
			r.recordPlanEvent(b, p)
			continue
		}
		if p.status.CompletionTime != nil && b.DeletionTimestamp == nil {
			continue // how it ended stands
		}
		p.setState(v1alpha1.ConditionStalled, p.status.Phase, stuck.Reason, "%s", stuck.Message)
		p.resolveConditions(b)
		rest = errors.Join(rest, r.writeStatus(ctx, b, p))
	}
	return rest
}

// keepAccount makes the Backup an owner of its Jobs' ServiceAccount beside the
// cluster.
func (r *Reconciler) keepAccount(ctx context.Context, b *v1alpha1.Backup) error {
	account := &corev1.ServiceAccount{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.ClusterRef.Name + v1alpha1.SuffixBackup}, account)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	changed := account.DeepCopy()
	changed.OwnerReferences = append(changed.OwnerReferences, metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "Backup", Name: b.Name, UID: b.UID,
	})
	err = r.Client.Patch(ctx, changed, client.MergeFromWithOptions(account, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.BackupFieldManager))
	if err != nil {
		return fmt.Errorf("keep the ServiceAccount of Jobs: %w", err)
	}
	return nil
}

// writeFinalizers changes the finalizers, of the object as it was seen.
func (r *Reconciler) writeFinalizers(ctx context.Context, b *v1alpha1.Backup, finalizers []string) error {
	changed := b.DeepCopy()
	changed.Finalizers = finalizers
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(b, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.FieldManager))
	if err != nil {
		return fmt.Errorf("change the finalizers: %w", err)
	}
	return nil
}

// writeStatus applies the operator's part of the status, if it changed, and over
// nothing newer: neither what is recorded once, nor a Backup of the same
// name. A UID would not do: where only the status is written it is not looked at.
func (r *Reconciler) writeStatus(ctx context.Context, b *v1alpha1.Backup, p *plan) error {
	before := b.Status.DeepCopy()
	before.Run = nil
	if equality.Semantic.DeepEqual(before, &p.status) {
		return nil
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Backup", "status": p.status,
		"metadata": map[string]any{"namespace": b.Namespace, "name": b.Name, "resourceVersion": b.ResourceVersion},
	})
	if err != nil {
		return err
	}
	answer := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name}}
	err = r.Client.Status().Patch(ctx, answer, client.RawPatch(types.ApplyPatchType, body), client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership)
	if before.Location == nil && p.status.Location != nil && r.Concurrent > 0 && mayBeWritten(err) {
		r.rememberBegun(b) // also without an answer: others that took its place would be too many
	}
	if err != nil {
		return err
	}
	r.announceStall(b, before.Conditions, p)
	run := b.Status.Run
	b.ResourceVersion, b.Status = answer.ResourceVersion, *p.status.DeepCopy()
	b.Status.Run = run
	return nil
}
