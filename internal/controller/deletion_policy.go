package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/job"
)

// status.deletionPolicy records what becomes of the data of a cluster that is deleted
// now, whether or not the operator runs then. Kubernetes goes by the owner references
// of volumes and Secrets, and an admission policy goes by the record. So Delete is
// recorded before the first of these references is written, and Retain only after
// the API server was asked and none was left.

// announceDeletion says whether this pass does nothing but record that the data is about
// to go with the cluster.
func (p *pass[C]) announceDeletion() bool {
	if p.c.Common().DeletionPolicy != v1alpha1.DeletionDelete || p.c.CommonStatus().DeletionPolicy == v1alpha1.DeletionDelete {
		return false
	}
	p.deletion, p.stepped = v1alpha1.DeletionDelete, true
	return true
}

// observeDeletion says of a cluster whose data is to stay whether any of it still goes with
// the cluster. The cache is believed where it says so. That none goes is recorded once
// the API server has said it, after the writes of this pass: the cache may not show
// an earlier one yet, or not show an object that lost its labels.
func (r *Reconciler[C, O]) observeDeletion(ctx context.Context, p *pass[C]) error {
	if p.c.Common().DeletionPolicy == v1alpha1.DeletionDelete {
		return nil
	}
	goes, err := dataGoesWith(ctx, r.Client, p.c, &corev1.PersistentVolumeClaimList{}, &corev1.SecretList{})
	switch {
	case err != nil:
		return err
	case goes:
		p.deletion = v1alpha1.DeletionDelete
		return nil
	case p.c.CommonStatus().DeletionPolicy == v1alpha1.DeletionRetain:
		return nil
	}
	goes, err = dataGoesWith(ctx, r.Live, p.c, newMetadataList("PersistentVolumeClaim"), newMetadataList("Secret"))
	if err != nil {
		return err
	}
	p.deletion = v1alpha1.DeletionRetain
	if goes {
		p.deletion, p.deletionRecheck = v1alpha1.DeletionDelete, job.RecheckInterval
	}
	return nil
}

func newMetadataList(kind string) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind + "List"))
	return list
}

// dataGoesWith says whether Kubernetes deletes a volume or a Secret that holds data, trust
// or credentials once the cluster is deleted. One that is being deleted goes anyway.
func dataGoesWith(ctx context.Context, from client.Reader, c v1alpha1.Cluster, volumes, secrets client.ObjectList) (bool, error) {
	goes, err := listGoing(ctx, from, c, volumes, isDataVolume)
	if goes || err != nil {
		return goes, err
	}
	return listGoing(ctx, from, c, secrets, isDataSecret)
}

// listGoing lists objects, and says whether one that holds data goes with the cluster.
func listGoing(ctx context.Context, from client.Reader, c v1alpha1.Cluster, list client.ObjectList, isData func(cluster, name string) bool) (goes bool, err error) {
	if err := from.List(ctx, list, client.InNamespace(c.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("observe the deletion policy of %T: %w", list, err)
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		obj, is := item.(client.Object)
		goes = goes || is && obj.GetDeletionTimestamp() == nil && isData(c.GetName(), obj.GetName()) &&
			slices.ContainsFunc(obj.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return isOwnerOfData(c, owner) })
		return nil
	})
	return goes, err
}

// isOwnerOfData says whether what has that owner is deleted after the cluster. Of its
// StatefulSet Kubernetes makes an owner where another client changed what that does with
// its volumes.
func isOwnerOfData(c v1alpha1.Cluster, owner metav1.OwnerReference) bool {
	return owner.UID == c.GetUID() || owner.Kind == "StatefulSet" && owner.Name == c.GetName()
}

// isDataVolume says whether a claim has the name of a member's, or of the one that holds
// backups. Others, such as those of drills, always go with their cluster.
func isDataVolume(cluster, name string) bool {
	return strings.HasPrefix(name, "data-"+cluster+"-") || name == cluster+v1alpha1.SuffixBackups
}

// isDataSecret says whether a Secret has the name of one without which the data is of no use.
func isDataSecret(cluster, name string) bool {
	return name == cluster+v1alpha1.SuffixCA || name == cluster+v1alpha1.SuffixInternal
}
