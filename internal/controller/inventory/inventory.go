// Package inventory lists clusters and Backups by what they are to each other: the
// Backups of a cluster, and the clusters that read a Backup or the archive beside
// it.
package inventory

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups"
)

// ListBackups lists the Backups of a cluster, the oldest first.
func ListBackups(ctx context.Context, reader client.Reader, of v1alpha1.ClusterReference, namespace string) ([]*v1alpha1.Backup, error) {
	var list v1alpha1.BackupList
	if err := reader.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list backups: %w", err)
	}
	var found []*v1alpha1.Backup
	for i := range list.Items {
		if list.Items[i].Spec.ClusterRef == of {
			found = append(found, &list.Items[i])
		}
	}
	slices.SortFunc(found, func(a, b *v1alpha1.Backup) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	return found, nil
}

// ListClusters lists the clusters of a kind.
func ListClusters(ctx context.Context, reader client.Reader, scheme *runtime.Scheme, kind string, opts ...client.ListOption) ([]v1alpha1.Cluster, error) {
	obj, err := scheme.New(v1alpha1.GroupVersion.WithKind(kind + "List"))
	if err != nil {
		return nil, err
	}
	list, isList := obj.(client.ObjectList)
	if !isList {
		return nil, fmt.Errorf("%T is no list", obj)
	}
	if err := reader.List(ctx, list, opts...); err != nil {
		return nil, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	var clusters []v1alpha1.Cluster
	for _, item := range items {
		if cluster, ok := item.(v1alpha1.Cluster); ok {
			clusters = append(clusters, cluster)
		}
	}
	return clusters, nil
}

// ListReaders lists the clusters of a kind that are being restored, for good or on
// trial, by the Backup in their namespace that is read: until they are done it
// keeps what it has.
func ListReaders(ctx context.Context, c client.Client, kind, namespace string) (map[string]string, error) {
	clusters, err := ListClusters(ctx, c, c.Scheme(), kind, client.InNamespace(namespace))
	if err != nil {
		return nil, fmt.Errorf("list what is being restored: %w", err)
	}
	found := map[string]string{}
	for _, cluster := range clusters {
		if name := backups.FindBackupRead(cluster); name != "" {
			found[name] = cluster.GetName()
		}
		if d := cluster.CommonStatus().Drill; d != nil && d.Running != nil && cluster.GetDeletionTimestamp() == nil {
			found[d.Running.Backup] = cluster.GetName()
		}
	}
	return found, nil
}

// ListFollowers lists the clusters of a kind in a namespace that restore from an
// archive.
func ListFollowers(ctx context.Context, c client.Client, kind, namespace string) (found []backups.Follower, err error) {
	clusters, err := ListClusters(ctx, c, c.Scheme(), kind, client.InNamespace(namespace))
	for _, cluster := range clusters {
		st := cluster.CommonStatus().Restore
		if st != nil && !st.Done() && st.Target != nil && st.Location != nil && cluster.GetDeletionTimestamp() == nil {
			found = append(found, backups.Follower{Cluster: cluster.GetName(), From: *st})
		}
	}
	return found, err
}
