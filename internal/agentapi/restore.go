package agentapi

import (
	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// RestoreTask is what the pod of a Job is to do that fills the volume of a new
// cluster's first member. It stands in EnvTask as JSON, and holds no secrets.
// The volume is mounted at DataDir.
type RestoreTask struct {
	// Namespace, Name, UID and Kind of the new cluster.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Kind      string `json:"kind"`
	// Member is the pod that will run on the volume.
	Member string `json:"member"`
	// Store of the backup.
	Store BackupStore `json:"store"`
	// Manifest of the backup in the store, and its checksum. Where they are
	// empty, the backup is looked for below Prefix.
	Manifest string `json:"manifest,omitempty"`
	Checksum string `json:"checksum,omitempty"`
	// Prefix of the cluster that was backed up: <namespace>/<cluster>/, or with
	// its UID <namespace>/<cluster>/<uid>/. Without the UID there must be no more
	// than one.
	Prefix string `json:"prefix,omitempty"`
	// Backup below Prefix, by its name; empty for the newest.
	Backup string `json:"backup,omitempty"`
	// Target in the WAL that was archived beside the backup; nil for the end of
	// the backup.
	Target *v1alpha1.RestoreTarget `json:"target,omitempty"`
	// VolumeSize of the member in bytes, as it is declared.
	VolumeSize int64 `json:"volumeSize"`
	// Bandwidth in bytes a second, of the data as the database has it; 0 for no
	// limit.
	Bandwidth int64 `json:"bandwidth,omitempty"`
	etcdapi.RestoreGroup
}

// Keys of the ConfigMap <cluster>-restore, which a restore's pod applies to tell
// how far it is.
const (
	// RestoreKeyClusterUID is the UID of the cluster that the rest speaks of,
	// and RestoreKeyPod the pod that says so.
	RestoreKeyClusterUID = "clusterUID"
	RestoreKeyPod        = "pod"
	// RestoreKeyStep is one of the steps in v1alpha1, and RestoreKeyProgress how
	// far it is, such as 45%.
	RestoreKeyStep     = "step"
	RestoreKeyProgress = "progress"
	// RestoreKeyError ended the run; RestoreKeyPermanent is "true" where another
	// try is in vain until a person fixes it. Both are empty otherwise.
	RestoreKeyError     = "error"
	RestoreKeyPermanent = "permanent"
	// RestoreKeyResult is a v1alpha1.RestoreResult as JSON, when it is done.
	RestoreKeyResult = "result"
)
