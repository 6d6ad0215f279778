package controller

import (
	"context"
	"encoding/json"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// follower is a cluster that is being restored with the WAL that was archived
// beside a backup, which only its pod may know by name.
type follower struct {
	cluster string
	from    v1alpha1.RestoreStatus
}

// listFollowers lists the clusters of a kind in a namespace that restore from an
// archive.
func listFollowers(ctx context.Context, c client.Client, kind, namespace string) (found []follower, err error) {
	clusters, err := listKind(ctx, c, c.Scheme(), kind, client.InNamespace(namespace))
	for _, cluster := range clusters {
		st := cluster.CommonStatus().Restore
		if st != nil && !st.Done() && st.Target != nil && st.Location != nil && cluster.GetDeletionTimestamp() == nil {
			found = append(found, follower{cluster.GetName(), *st})
		}
	}
	return found, err
}

// choosesBackup says whether its pod may have chosen a backup of a store. Where the
// backup is on record, it is known by its name.
func (f follower) choosesBackup(b *v1alpha1.Backup) bool {
	at, from := b.Status.Location, f.from.Location
	return f.from.Manifest == "" && at != nil && at.ClaimName == "" && at.URL == from.URL &&
		strings.HasPrefix(at.Prefix, from.Prefix) && (f.from.Backup == "" || f.from.Backup == b.Name)
}

// readsArchive says whether it goes on with the log of an archive in the store of a
// backup.
func (f follower) readsArchive(log *agentapi.LogTask, at *v1alpha1.BackupLocation) bool {
	const cluster = 3 // <namespace>/<cluster>/<uid>
	from := f.from.Location
	parts := strings.SplitAfter(from.Prefix, "/")
	return log != nil && at != nil && at.URL == from.URL && strings.HasPrefix(log.Prefix, strings.Join(parts[:min(cluster, len(parts))], ""))
}

// findArchiveTask says which log stays of what a Job was to remove; nil where it
// removes none.
func findArchiveTask(removal *batchv1.Job) *agentapi.LogTask {
	if removal == nil {
		return nil
	}
	for _, ctr := range removal.Spec.Template.Spec.Containers {
		for _, env := range ctr.Env {
			var task agentapi.BackupTask
			if env.Name == agentapi.EnvTask && json.Unmarshal([]byte(env.Value), &task) == nil {
				return task.Log
			}
		}
	}
	return nil
}

// observeFollowers finds who goes on with the log beside a backup that is to go:
// until they are done, no log goes, and nor does a backup that one of them may
// have chosen.
func (r *BackupReconciler) observeFollowers(ctx context.Context, s *backupObservation) error {
	if s.backup.DeletionTimestamp == nil {
		return nil
	}
	all, err := listFollowers(ctx, r.Client, s.backup.Spec.ClusterRef.Kind, s.backup.Namespace)
	for _, f := range all {
		if f.choosesBackup(s.backup) {
			s.reader = f.cluster
		}
		if f.readsArchive(s.log, s.backup.Status.Location) {
			s.log = nil
		}
		if f.readsArchive(findArchiveTask(s.removal), s.backup.Status.Location) {
			s.follower = f.cluster
		}
	}
	return err
}
