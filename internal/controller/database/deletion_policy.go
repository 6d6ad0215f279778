package database

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/controller/requeue"
)

// A Database that is deleted takes its cluster with it, and the cluster's own policy
// decides about the data. So status.deletionPolicy of a Database is Delete from before
// the cluster is declared with that policy, and Retain once the cluster says it.

// mustAnnounceDeletion says whether the cluster may be declared with Delete only after the status
// of the Database says so.
func (o *observation) mustAnnounceDeletion() bool {
	d := o.database
	return d.Spec.DeletionPolicy == v1alpha1.DeletionDelete && d.Status.DeletionPolicy != v1alpha1.DeletionDelete
}

// announceDeletion records that the data is about to go with the Database, and nothing
// else. The next pass declares the cluster.
func (r *Reconciler) announceDeletion(ctx context.Context, d *v1alpha1.Database) (ctrl.Result, error) {
	status := *d.Status.DeepCopy()
	status.DeletionPolicy = v1alpha1.DeletionDelete
	err := r.applyStatus(ctx, d, status)
	if apierrors.IsConflict(err) {
		err = nil // the cache is behind
	}
	return ctrl.Result{RequeueAfter: requeue.AfterStep}, client.IgnoreNotFound(err)
}

// judgeDeletion says what deleting the Database does to its data now. That the data stays
// is believed of a cluster that is observed as this operator wrote it last.
func (o *observation) judgeDeletion(own v1alpha1.Cluster) v1alpha1.DeletionPolicy {
	d := o.database
	recorded := d.Status.DeletionPolicy
	if own == nil && o.cluster != nil && isOwnedBy(o.cluster, d) {
		own = o.cluster // it has another controller, and goes with the Database all the same
	}
	switch {
	case d.Spec.DeletionPolicy == v1alpha1.DeletionDelete || d.DeletionTimestamp != nil:
		return recorded
	case own == nil && (o.cluster != nil || o.absent):
		return v1alpha1.DeletionRetain // it belongs to another owner, or there is none
	case own == nil:
		return recorded
	case own.Common().DeletionPolicy == v1alpha1.DeletionDelete || own.CommonStatus().DeletionPolicy == v1alpha1.DeletionDelete:
		return v1alpha1.DeletionDelete
	case own.CommonStatus().DeletionPolicy == v1alpha1.DeletionRetain && !o.isBehind():
		return v1alpha1.DeletionRetain
	}
	return recorded
}

// isOwnedBy says whether the garbage collector deletes a cluster after the Database,
// also where another object controls it.
func isOwnedBy(c v1alpha1.Cluster, d *v1alpha1.Database) bool {
	return slices.ContainsFunc(c.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == d.UID })
}

// mayBeAbsent says whether it matters that the Database has no cluster: none could be made
// after Delete was recorded, and none is to go.
func (o *observation) mayBeAbsent() bool {
	d := o.database
	return d.DeletionTimestamp == nil && o.cluster == nil && o.former == nil &&
		d.Spec.DeletionPolicy != v1alpha1.DeletionDelete && d.Status.DeletionPolicy == v1alpha1.DeletionDelete
}

// isAbsent asks the API server whether there is no cluster of any engine that has the name of
// the Database: the cache may not show one yet.
func (r *Reconciler) isAbsent(ctx context.Context, d *v1alpha1.Database) (bool, error) {
	for _, e := range r.Engines {
		there := &metav1.PartialObjectMetadata{}
		there.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(e.Kind))
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(d), there); !apierrors.IsNotFound(err) {
			return false, err
		}
	}
	return true, nil
}

// isBehind says whether the cluster may be observed as it was before the last write of
// this operator.
func (o *observation) isBehind() bool {
	return o.canApply() && (o.err != nil || !o.sync.Settled)
}
