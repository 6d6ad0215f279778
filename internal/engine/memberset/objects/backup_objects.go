package objects

import (
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// backupObjects are what Jobs that make backups need of the cluster: who they
// are, for a cloud that knows its pods by that, and where they write.
func backupObjects(s Set, d Desired) []runtime.ApplyConfiguration {
	var out []runtime.ApplyConfiguration
	if s.Cluster.Common().Backup.IsEnabled() {
		out = append(out, BackupAccount(s))
	}
	if d.Backups != nil && !d.BackupsLater {
		out = append(out, backupVolumeClaim(s, *d.Backups))
	}
	return out
}

// BackupVolumeClaim is the volume for backups that is to be made with the first of
// them; nil for none. Until then it would take room, of a quota at least, for
// nothing, and a claim that waits for its first pod looks as if something were
// under way.
func BackupVolumeClaim(s Set, d Desired) runtime.ApplyConfiguration {
	if d.Backups == nil || !d.BackupsLater {
		return nil
	}
	return backupVolumeClaim(s, *d.Backups)
}

func backupVolumeClaim(s Set, v Volume) *corev1ac.PersistentVolumeClaimApplyConfiguration {
	return corev1ac.PersistentVolumeClaim(s.Named(v1alpha1.SuffixBackups), s.Key().Namespace).
		WithLabels(s.Labels(ComponentBackup)).WithOwnerReferences(s.DataOwners()...).WithSpec(claimSpec(v))
}

// BackupAccount is who reaches the store of backups, to write and to read.
func BackupAccount(s Set) *corev1ac.ServiceAccountApplyConfiguration {
	return corev1ac.ServiceAccount(s.Named(v1alpha1.SuffixBackup), s.Key().Namespace).
		WithLabels(s.Labels(ComponentBackup)).WithOwnerReferences(s.owner()).WithAutomountServiceAccountToken(false).
		WithAnnotations(s.Cluster.Common().ServiceAccount.Annotations)
}
