package controller

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/fluxcd/pkg/runtime/predicates"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/controller/requeue"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// Applied are the kinds of objects that the operator applies, and may prune.
func Applied() []schema.GroupVersionKind { return apply.ListKinds(listAppliedTypes()) }

// listOwnedTypes lists the kinds of objects that clusters consist of.
func listOwnedTypes() []client.Object {
	return append(listAppliedTypes(), &corev1.Pod{}, &discoveryv1.EndpointSlice{})
}

func listAppliedTypes() []client.Object {
	return []client.Object{
		&appsv1.StatefulSet{}, &corev1.Service{}, &corev1.ConfigMap{}, &corev1.Secret{}, &corev1.ServiceAccount{},
		&corev1.PersistentVolumeClaim{}, &policyv1.PodDisruptionBudget{}, &networkingv1.NetworkPolicy{},
		&rbacv1.Role{}, &rbacv1.RoleBinding{},
	}
}

// CacheOptions keep in memory only what belongs to clusters, and of that only
// what is read.
func CacheOptions(namespaces []string) cache.Options {
	belongs, err := labels.NewRequirement(v1alpha1.LabelCluster, selection.Exists, nil)
	if err != nil {
		panic(fmt.Sprintf("a constant selector: %v", err))
	}
	selector := labels.NewSelector().Add(*belongs)
	opts := cache.Options{ByObject: map[client.Object]cache.ByObject{}, DefaultTransform: engine.ShareManagedFields}
	for _, obj := range append(listOwnedTypes(), &batchv1.Job{}) {
		opts.ByObject[obj] = cache.ByObject{Label: selector, Transform: engine.LeanObject}
	}
	for _, ns := range namespaces {
		if opts.DefaultNamespaces == nil {
			opts.DefaultNamespaces = map[string]cache.Config{}
		}
		opts.DefaultNamespaces[ns] = cache.Config{}
	}
	return opts
}

// Setup makes the controller of one kind and its watches.
func (r *Reconciler[C, O]) Setup(mgr ctrl.Manager, gvk schema.GroupVersionKind, concurrent int, sources ...source.Source) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named(strings.ToLower(gvk.Kind)).
		For(r.New(), builder.WithPredicates(goesOn(), predicate.Or(predicate.GenerationChangedPredicate{}, predicates.ReconcileRequestedPredicate{}, requestPredicate()))).
		Watches(r.New(), handler.Funcs{CreateFunc: enqueueNew}).
		WithOptions(ctrlcontroller.Options{
			MaxConcurrentReconciles: concurrent,
			RateLimiter:             requeue.NewRateLimiter(),
		})
	for _, s := range sources {
		b = b.WatchesRawSource(s)
	}
	for _, obj := range listOwnedTypes() {
		b = b.Watches(obj, handler.EnqueueRequestsFromMapFunc(mapByLabel(gvk)))
	}
	b = b.Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(mapByLabel(gvk)))
	b = b.Watches(&v1alpha1.Backup{}, handler.EnqueueRequestsFromMapFunc(mapBackupToCluster(gvk.Kind)), builder.WithPredicates(backupEndedPredicate()))
	return b.Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(r.mapToAllClusters(mgr, gvk))).Complete(r.Tracer.Wrap(r, strings.ToLower(gvk.Kind), gvk.Kind))
}

// mapByLabel finds the cluster that an object says it belongs to.
func mapByLabel(gvk schema.GroupVersionKind) handler.MapFunc {
	kind := strings.ToLower(gvk.Kind)
	return func(_ context.Context, obj client.Object) []reconcile.Request {
		l := obj.GetLabels()
		if l[v1alpha1.LabelKind] != kind && l[v1alpha1.LabelRestore] != kind && l[v1alpha1.LabelImport] != kind && l[v1alpha1.LabelDrill] != kind && l[v1alpha1.LabelStoreCheck] != kind {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: l[v1alpha1.LabelCluster]}}}
	}
}

// mapToAllClusters clusters look again when what they share changes.
func (r *Reconciler[C, O]) mapToAllClusters(mgr ctrl.Manager, gvk schema.GroupVersionKind) handler.MapFunc {
	return func(ctx context.Context, _ client.Object) []reconcile.Request {
		obj, err := mgr.GetScheme().New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err != nil {
			return nil
		}
		list, ok := obj.(client.ObjectList)
		if !ok || mgr.GetCache().List(ctx, list) != nil {
			return nil
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return nil
		}
		var requests []reconcile.Request
		for _, item := range items {
			if c, ok := item.(client.Object); ok {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c)})
			}
		}
		return requests
	}
}

// mapBackupToCluster finds the cluster of a kind that a Backup is of.
func mapBackupToCluster(kind string) handler.MapFunc {
	return func(_ context.Context, obj client.Object) []reconcile.Request {
		b, ok := obj.(*v1alpha1.Backup)
		if !ok || b.Spec.ClusterRef.Kind != kind {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.ClusterRef.Name}}}
	}
}

// backupEndedPredicate lets through that a Backup appears, is done, cannot go on, or goes: its
// progress concerns no cluster.
func backupEndedPredicate() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.Backup)
		after, also := e.ObjectNew.(*v1alpha1.Backup)
		return ok && also && (before.IsFinished() != after.IsFinished() || before.HasSucceeded() != after.HasSucceeded() ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			conditions.GetReason(before, v1alpha1.ConditionStalled) != conditions.GetReason(after, v1alpha1.ConditionStalled))
	}}
}

// requestPredicate lets through what changes an annotation of ours: one-shot orders are
// given as such, and they change no generation.
func requestPredicate() predicate.Predicate {
	own := func(o client.Object) map[string]string {
		orders := map[string]string{}
		for name, token := range o.GetAnnotations() {
			if strings.HasPrefix(name, v1alpha1.GroupVersion.Group+"/") {
				orders[name] = token
			}
		}
		return orders
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(own(e.ObjectOld), own(e.ObjectNew))
	}}
}
