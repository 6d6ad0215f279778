package controller

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// listReaders lists the clusters of a kind that are being restored, for good or on
// trial, by the Backup in their namespace that is read: until they are done it
// keeps what it has.
func listReaders(ctx context.Context, c client.Client, kind, namespace string) (map[string]string, error) {
	clusters, err := listKind(ctx, c, c.Scheme(), kind, client.InNamespace(namespace))
	if err != nil {
		return nil, fmt.Errorf("list what is being restored: %w", err)
	}
	found := map[string]string{}
	for _, cluster := range clusters {
		if name := findBackupRead(cluster); name != "" {
			found[name] = cluster.GetName()
		}
		if d := cluster.CommonStatus().Drill; d != nil && d.Running != nil && cluster.GetDeletionTimestamp() == nil {
			found[d.Running.Backup] = cluster.GetName()
		}
	}
	return found, nil
}

// listKind lists the clusters of a kind.
func listKind(ctx context.Context, reader client.Reader, scheme *runtime.Scheme, kind string, opts ...client.ListOption) ([]v1alpha1.Cluster, error) {
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

// findBackupRead names the Backup that a cluster is being restored from, or is about to be;
// empty for none.
func findBackupRead(c v1alpha1.Cluster) string {
	declared, st := c.Common().Restore, c.CommonStatus().Restore
	switch {
	case st.Done() || c.GetDeletionTimestamp() != nil:
		return ""
	case st != nil && st.Manifest != "":
		return st.Backup // one in the store alone has no manifest before it is found
	case st == nil && declared != nil && c.CommonStatus().SystemIdentifier == "":
		return declared.Backup
	}
	return ""
}

// filterUnread leaves out the backups that a restore reads: retention takes them when
// that is done.
func (r *Reconciler[C, O]) filterUnread(ctx context.Context, kind, namespace string, surplus []*v1alpha1.Backup) ([]*v1alpha1.Backup, error) {
	if len(surplus) == 0 {
		return nil, nil
	}
	read, err := listReaders(ctx, r.Client, kind, namespace)
	if err != nil {
		return nil, err
	}
	following, err := listFollowers(ctx, r.Client, kind, namespace)
	return slices.DeleteFunc(surplus, func(b *v1alpha1.Backup) bool {
		return read[b.Name] != "" || slices.ContainsFunc(following, func(f follower) bool { return f.choosesBackup(b) })
	}), err
}

// observeReaders finds who is being restored from a backup that is to go.
func (r *BackupReconciler) observeReaders(ctx context.Context, s *backupObservation) error {
	if s.backup.DeletionTimestamp == nil {
		return nil
	}
	read, err := listReaders(ctx, r.Client, s.backup.Spec.ClusterRef.Kind, s.backup.Namespace)
	s.reader = read[s.backup.Name]
	return err
}
