package backups

import (
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// FindBackupRead names the Backup that a cluster is being restored from, or is about to be;
// empty for none.
func FindBackupRead(c v1alpha1.Cluster) string {
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

// Follower is a cluster that is being restored with the WAL that was archived
// beside a backup, which only its pod may know by name.
type Follower struct {
	Cluster string
	From    v1alpha1.RestoreStatus
}

// ChoosesBackup says whether its pod may have chosen a backup of a store. Where the
// backup is recorded, it is known by its name.
func (f Follower) ChoosesBackup(b *v1alpha1.Backup) bool {
	at, from := b.Status.Location, f.From.Location
	return f.From.Manifest == "" && at != nil && at.ClaimName == "" && at.URL == from.URL &&
		strings.HasPrefix(at.Prefix, from.Prefix) && (f.From.Backup == "" || f.From.Backup == b.Name)
}

// ReadsArchive says whether it goes on with the WAL of an archive in the store of a
// backup.
func (f Follower) ReadsArchive(log *agentapi.LogTask, at *v1alpha1.BackupLocation) bool {
	const cluster = 3 // <namespace>/<cluster>/<uid>
	from := f.From.Location
	parts := strings.SplitAfter(from.Prefix, "/")
	return log != nil && at != nil && at.URL == from.URL && strings.HasPrefix(log.Prefix, strings.Join(parts[:min(cluster, len(parts))], ""))
}
