package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterRestore says which backup a cluster begins with.
//
// +kubebuilder:validation:XValidation:rule="has(self.backup) != has(self.source)",message="name either backup, a Backup in this namespace, or source, objects in a store"
type ClusterRestore struct {
	// Backup names a Backup in the same namespace, of a cluster of the same
	// kind.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=54
	Backup string `json:"backup,omitempty"`

	// Source is a backup in a store, of which nothing else need be left.
	// +optional
	Source *RestoreSource `json:"source,omitempty"`

	// Target is the point in time to restore, from the WAL or the binlog that was
	// archived beside the backup (spec.backup.continuous). Default: where the backup
	// ends. PostgreSQL and MySQL only.
	// +optional
	Target *RestoreTarget `json:"target,omitempty"`
}

// RestoreTarget is a position in a database's WAL or binlog.
//
// +kubebuilder:validation:XValidation:rule="[has(self.time), has(self.lsn), has(self.gtid), has(self.name), has(self.latest)].filter(is, is).size() == 1",message="name one of time, lsn, gtid, name and latest"
type RestoreTarget struct {
	// Time by the clock of the primary that wrote the WAL or the binlog, with its zone and up
	// to microseconds, such as 2026-03-01T12:00:00.123456+01:00. Transactions that
	// were committed at exactly that time are included.
	// +optional
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|[12][0-9]))T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$')",message="must be a time with its zone, such as 2026-03-01T12:00:00Z or 2026-03-01T12:00:00.123456+01:00"
	Time string `json:"time,omitempty"`

	// LSN is a position in PostgreSQL's WAL, such as 0/5000028. The record that
	// begins there, or the next one, is the last that is restored.
	// +optional
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-F]{1,8}/[0-9A-F]{1,8}$')",message="must be a position in PostgreSQL's WAL as pg_current_wal_lsn shows it, such as 0/5000028"
	LSN string `json:"lsn,omitempty"`

	// GTID of a transaction of MySQL, such as
	// 3e11fa47-71ca-11e1-9e33-c80aa9429562:23, or with a tag
	// 3e11fa47-71ca-11e1-9e33-c80aa9429562:nightly:23. It is the last transaction
	// that is restored, in the order of the binlog.
	// +optional
	// +kubebuilder:validation:MaxLength=90
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(:[a-zA-Z_][a-zA-Z0-9_]{0,31})?:[1-9][0-9]{0,17}$')",message="must be the GTID of one transaction, as SHOW BINLOG EVENTS lists it, such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:23"
	GTID string `json:"gtid,omitempty"`

	// Name of a restore point that pg_create_restore_point made.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^[:cntrl:]]+$')",message="must be the name of a restore point, without control characters"
	// +kubebuilder:validation:XValidation:rule="bytes(self).size() <= 63",message="PostgreSQL's names have at most 63 bytes"
	Name string `json:"name,omitempty"`

	// Latest is all that was archived.
	// +optional
	// +kubebuilder:validation:Enum=true
	Latest bool `json:"latest,omitempty"`
}

// String is the target in words.
func (t *RestoreTarget) String() string {
	switch {
	case t == nil:
		return "the end of the backup"
	case t.Time != "":
		return "the time " + t.Time
	case t.LSN != "":
		return "the position " + t.LSN
	case t.Name != "":
		return "the restore point " + t.Name
	case t.GTID != "":
		return "the transaction " + t.GTID
	}
	return "the end of the archived WAL"
}

// Equal says whether two targets are declared in the same way.
func (t *RestoreTarget) Equal(o *RestoreTarget) bool {
	return t == nil && o == nil || t != nil && o != nil && *t == *o
}

// RestoreSource is a backup in an object store.
type RestoreSource struct {
	// BackupDestination that the backup was written to.
	BackupDestination `json:",inline"`

	// Namespace of the cluster that was backed up. Default: this cluster's own.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="must be the name of a namespace: lower-case letters, digits and dashes, such as shop"
	Namespace string `json:"namespace,omitempty"`

	// Cluster that was backed up. Default: this cluster's own name.
	// +optional
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="must be the name of a cluster: lower-case letters, digits and dashes, such as orders"
	Cluster string `json:"cluster,omitempty"`

	// ClusterUID of it, where several clusters had that name: Stalled lists
	// them then. Default: the only one.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-zA-Z-]+$')",message="must be the UID of a cluster, as Stalled lists them, such as 0b5d3f5c-1c5e-4d8e-9d6b-0f8f8a8d2c11"
	ClusterUID string `json:"clusterUID,omitempty"`

	// Backup by its name. Default: the newest one that is complete.
	// +optional
	// +kubebuilder:validation:MaxLength=54
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="must be the name of a Backup: lower-case letters, digits and dashes, such as orders-20260301"
	Backup string `json:"backup,omitempty"`
}

// RestoreStatus is the state of the restore that a cluster begins with.
type RestoreStatus struct {
	// Backup that is restored: a Backup in this namespace, or where location is
	// in a store, one there. Empty for the newest.
	// +optional
	Backup string `json:"backup,omitempty"`
	// Location that is read, recorded before anything is written.
	// +optional
	Location *BackupLocation `json:"location,omitempty"`
	// Manifest of the backup, below the location, and its checksum. Empty while
	// it is still to be found.
	// +optional
	Manifest string `json:"manifest,omitempty"`
	// +optional
	Checksum string `json:"checksum,omitempty"`
	// Target is the point in time to restore; empty for the end of the backup.
	// +optional
	Target *RestoreTarget `json:"target,omitempty"`
	// StartTime is when the restore was begun.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// CompletionTime is when the data was in its place.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Progress of the restore, such as Copying 45%.
	// +optional
	Progress string `json:"progress,omitempty"`
	// Error that ended the last run; empty for none.
	// +optional
	Error string `json:"error,omitempty"`
	// Result of a restore that is done.
	// +optional
	Result *RestoreResult `json:"result,omitempty"`
}

// Done says whether the data is in its place.
func (r *RestoreStatus) Done() bool { return r != nil && r.CompletionTime != nil }

// RestoreFieldManager is the field manager of what the pod that restores a
// cluster writes: the ConfigMap <cluster>-restore.
const RestoreFieldManager = "holdfast-restore"

// SuffixRestore of the names of what a restore needs while it lasts.
const SuffixRestore = "-restore"

// Steps of a restore.
const (
	// RestoreStepFinding: the backup is looked for, and compared with the
	// cluster.
	RestoreStepFinding = "Finding"
	// RestoreStepCopying: its data is copied to the first member's volume, and
	// checked.
	RestoreStepCopying = "Copying"
	// RestoreStepRecovering: the database recovers there, and is checked.
	RestoreStepRecovering = "Recovering"
	// RestoreStepDone: the data is in its place.
	RestoreStepDone = "Done"
)

// RestoreResult is what was restored.
type RestoreResult struct {
	// Backup that was restored, and ClusterUID of the cluster that it was of.
	Backup     string `json:"backup"`
	ClusterUID string `json:"clusterUID"`
	// Manifest of the backup in its store, and the checksum of the manifest.
	Manifest string `json:"manifest"`
	Checksum string `json:"checksum"`
	// Version of the database that was backed up.
	Version string `json:"version"`
	// SystemIdentifier of the restored database system. etcd has a new one.
	SystemIdentifier string `json:"systemIdentifier"`
	// EndPosition is where the restored data ends: the end of the backup, as its
	// own status reports it, or where a target made the recovery end.
	EndPosition string `json:"endPosition"`
	// Target that was asked for; empty for the end of the backup.
	// +optional
	Target *RestoreTarget `json:"target,omitempty"`
	// RecoveredTo is when the last transaction was committed that was restored
	// from the archived WAL. Empty if there was none, and without a target.
	// +optional
	RecoveredTo *metav1.MicroTime `json:"recoveredTo,omitempty"`
	// Size of the data before it was compressed, in bytes.
	Size resource.Quantity `json:"size"`
}
