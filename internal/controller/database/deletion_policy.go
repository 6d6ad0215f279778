package database

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	switch {
	case d.Spec.DeletionPolicy == v1alpha1.DeletionDelete || d.DeletionTimestamp != nil:
		return recorded
	case own == nil && o.cluster != nil:
		return v1alpha1.DeletionRetain // it belongs to another owner, and stays
	case own == nil:
		return recorded
	case own.Common().DeletionPolicy == v1alpha1.DeletionDelete || own.CommonStatus().DeletionPolicy == v1alpha1.DeletionDelete:
		return v1alpha1.DeletionDelete
	case own.CommonStatus().DeletionPolicy == v1alpha1.DeletionRetain && !o.isBehind():
		return v1alpha1.DeletionRetain
	}
	return recorded
}

// isBehind says whether the cluster may be observed as it was before the last write of
// this operator.
func (o *observation) isBehind() bool {
	return o.canApply() && (o.err != nil || !o.sync.Settled)
}
