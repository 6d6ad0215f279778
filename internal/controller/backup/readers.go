package backup

import (
	"context"
	"encoding/json"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/controller/inventory"
)

// observeReaders finds who is being restored from a backup that is to go.
func (r *Reconciler) observeReaders(ctx context.Context, s *observation) error {
	if s.backup.DeletionTimestamp == nil {
		return nil
	}
	read, err := inventory.ListReaders(ctx, r.Client, s.backup.Spec.ClusterRef.Kind, s.backup.Namespace)
	s.reader = read[s.backup.Name]
	return err
}

// observeFollowers finds who goes on with the WAL beside a backup that is to go:
// until they are done, no log goes, and nor does a backup that one of them may
// have chosen.
func (r *Reconciler) observeFollowers(ctx context.Context, s *observation) error {
	if s.backup.DeletionTimestamp == nil {
		return nil
	}
	all, err := inventory.ListFollowers(ctx, r.Client, s.backup.Spec.ClusterRef.Kind, s.backup.Namespace)
	for _, f := range all {
		if f.ChoosesBackup(s.backup) {
			s.reader = f.Cluster
		}
		if f.ReadsArchive(s.log, s.backup.Status.Location) {
			s.log = nil
		}
		if f.ReadsArchive(findArchiveTask(s.removal), s.backup.Status.Location) {
			s.follower = f.Cluster
		}
	}
	return err
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
