package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterBackup says when a cluster is backed up, where to, and for how long
// backups are kept.
//
// +kubebuilder:validation:XValidation:rule="!has(self.continuous) || !self.continuous || has(self.destination)",message="spec.backup.continuous needs spec.backup.destination, an object store: a volume of the cluster's own is no place for its WAL or binlog",fieldPath=".continuous"
type ClusterBackup struct {
	// Enabled says whether backups are made: without it, none by schedule and
	// none by hand. What there is stays. Default: true.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// Schedule of backups, as a line of cron such as "0 2 * * *": minute, hour,
	// day of the month, month, day of the week; or @daily, @weekly and the like.
	// Default: every night between two and three, at a minute that follows from
	// the cluster's namespace and name, so that clusters do not all begin at once:
	// status.nextBackup says when. The first backup of a cluster does not wait for
	// the schedule: it is made as soon as the cluster serves.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^@(yearly|annually|monthly|weekly|daily|midnight|hourly)$|^[0-9*?][0-9*?,/-]* +[0-9*?][0-9*?,/-]* +[0-9*?][0-9*?,/-]* +[0-9A-Za-z*?][0-9A-Za-z*?,/-]* +[0-9A-Za-z*?][0-9A-Za-z*?,/-]*$')",message="must be five fields, minute, hour, day of the month, month, day of the week, such as 0 2 * * *; or @hourly, @daily, @weekly, @monthly, @yearly. A time zone goes into timeZone"
	Schedule string `json:"schedule,omitempty"`

	// TimeZone of the schedule, by its name in the IANA database, such as
	// Europe/Berlin. Default: UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$') && self != 'Local' && timestamp('2000-01-01T00:00:00Z').getHours(self) >= 0",message="must be a time zone by its name in the IANA database, such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`

	// Retention is how long backups by schedule are kept, in hours, days or
	// weeks, such as 7d. They are deleted after a newer one has succeeded; the
	// newest good one is never deleted. Manual backups stay until a user deletes
	// them.
	// Default: a week. Without it and without maxBackups, the oldest backups on a
	// volume go earlier, down to two, where it lacks disk space for the next one.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string && self.matches('^[1-9][0-9]{0,4}[hdw]$')",message="must be a number of hours, days or weeks with its unit, such as 12h, 7d or 4w"
	Retention string `json:"retention,omitempty"`

	// MaxBackups by schedule that are kept, the newest of those that succeeded.
	// Default: no limit but retention.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxBackups *int32 `json:"maxBackups,omitempty"`

	// Destination of backups. Default: a volume of the cluster's own. When it is
	// removed, no backup is made until it is declared again, or volume says that
	// backups are to go to a volume from then on.
	// +optional
	Destination *BackupDestination `json:"destination,omitempty"`

	// Volume that backups are kept on where there is no destination. Declared
	// without a destination, even as {}, it says that backups go to a volume,
	// wherever they went before. Default: a volume of twice storage.size.
	// +optional
	Volume *BackupVolume `json:"volume,omitempty"`

	// Resources of the Jobs that copy the cluster. Default: requests of 100m and
	// 256Mi, limits of 2 and 1Gi.
	// +optional
	// +kubebuilder:validation:XValidation:rule="['cpu','memory','ephemeral-storage'].all(k, !has(self.limits) || !(k in self.limits) || isQuantity(string(self.limits[k])))",message="a limit must be a quantity: memory such as 1Gi or 512Mi, cpu such as 2 or 500m"
	// +kubebuilder:validation:XValidation:rule="['cpu','memory','ephemeral-storage'].all(k, !has(self.requests) || !(k in self.requests) || isQuantity(string(self.requests[k])))",message="a request must be a quantity: memory such as 1Gi or 512Mi, cpu such as 2 or 500m"
	// +kubebuilder:validation:XValidation:rule="['cpu','memory','ephemeral-storage'].all(k, !has(self.requests) || !has(self.limits) || !(k in self.requests) || !(k in self.limits) || !isQuantity(string(self.requests[k])) || !isQuantity(string(self.limits[k])) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",message="a request must not be more than the limit of the same name: lower resources.requests, or raise resources.limits"
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// Bandwidth that the Jobs which copy the cluster, and the one that restores
	// it, use at most, in bytes a second, such as 50Mi: of the data as the database
	// has it, before it is compressed. It begins to count with the next Job.
	// Default: no limit.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="must be a size in bytes, such as 50Mi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('64Ki')) >= 0",message="spec.backup.bandwidth must be at least 64Ki, in bytes a second"
	Bandwidth *resource.Quantity `json:"bandwidth,omitempty"`

	// Verify restores the newest good backup on trial, on its own schedule: into
	// a temporary volume that no client can reach. Default: no drills.
	// +optional
	Verify *BackupVerify `json:"verify,omitempty"`

	// Continuous archives WAL, or MySQL's binlog, to the destination all the time,
	// beside the backups. Turning it on or off restarts members, one by one.
	// PostgresCluster and MySQLCluster only. Default: false.
	// +optional
	Continuous bool `json:"continuous,omitempty"`

	// WALBudget is how much of a member's volume, in bytes, may hold WAL or binlog that
	// the destination has not accepted yet. When it is used up, the oldest is
	// discarded, and a new backup begins once the destination is back. The
	// database continues in any case. Default: a fifth of storage.size.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="must be a size in bytes, such as 2Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('32Mi')) >= 0",message="spec.backup.walBudget must be at least 32Mi: two WAL segments"
	WALBudget *resource.Quantity `json:"walBudget,omitempty"`
}

// BackupDestination is an object store.
type BackupDestination struct {
	// URL of the bucket or container, with a prefix where wanted:
	// s3://bucket/prefix, gs://bucket/prefix or azblob://container/prefix.
	// Several clusters may share one.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^(s3|gs|azblob)://[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9!_.*()=/-]*)?$') && !self.contains('/../')",message="must be s3://bucket/prefix, gs://bucket/prefix or azblob://container/prefix, with no host, keys or options in it: those have fields of their own"
	URL string `json:"url"`

	// Endpoint of a service that is not Amazon's, or not Azure's, such as
	// https://minio.example:9000. Default: the service that the URL names.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^/?#@ ]+(/[^?#@ ]*)?$')",message="must be an address such as https://minio.example:9000"
	Endpoint string `json:"endpoint,omitempty"`

	// Region of the bucket, for S3. Default: us-east-1.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Region string `json:"region,omitempty"`

	// PathStyle puts the bucket into the path and not into the name of the host,
	// as most services beside Amazon's want it. Default: false.
	// +optional
	PathStyle bool `json:"pathStyle,omitempty"`

	// CredentialsSecretRef names a Secret in the same namespace with the credentials
	// of the store: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and
	// AWS_SESSION_TOKEN); credentials.json of a Google service account; or
	// AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN.
	// ca.crt, where it is there, is the CA of the endpoint. Default: the
	// identity of the ServiceAccount <cluster>-backup.
	// +optional
	CredentialsSecretRef *SecretReference `json:"credentialsSecretRef,omitempty"`
}

// BackupPlace is where backups of a cluster go.
type BackupPlace struct {
	// URL of the store; file:///backups on the cluster's own volume.
	URL string `json:"url"`
	// Endpoint of the store.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
}

// StoreCheck is whether a destination could be used when it was tried.
type StoreCheck struct {
	// Given names what was tried: the destination and the version of its Secret.
	// With anything else it is tried anew, at once where the destination is
	// another one.
	Given string `json:"given"`
	// Time when it was tried last.
	Time metav1.Time `json:"time"`
	// Error that it cannot be used for, or could not be tried; empty where it can.
	// +optional
	Error string `json:"error,omitempty"`
	// Reason is StoreUnusable or StoreUnchecked; empty where it can be used.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Failures is how many times in a row it could not be, with whatever keys. The
	// more, the later it is tried again.
	// +optional
	Failures int32 `json:"failures,omitempty"`
}

// BackupVolume is a volume for backups.
type BackupVolume struct {
	// Size in bytes, such as 20Gi. It can grow where the storage class allows
	// it, and never shrinks. Default: twice storage.size, or twice the largest
	// volume of a member when it is made.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="must be a size in bytes, such as 20Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('64Mi')) >= 0",message="spec.backup.volume.size must be at least 64Mi"
	Size *resource.Quantity `json:"size,omitempty"`

	// StorageClass of the volume. It cannot change once the volume exists.
	// Default: that of the members' volumes.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClass string `json:"storageClass,omitempty"`
}

// IsEnabled says whether backups are made. The schema sets it for every cluster: one
// without it was read by a schema that knew of no backups by default, and has
// none.
func (b *ClusterBackup) IsEnabled() bool { return b != nil && (b.Enabled == nil || *b.Enabled) }

// BytesPerSecond that a Job may use; 0 for no limit.
func (b *ClusterBackup) BytesPerSecond() int64 {
	if b == nil || b.Bandwidth == nil {
		return 0
	}
	return b.Bandwidth.Value()
}

// ArchivesWAL says whether WAL is archived all the time.
func (b *ClusterBackup) ArchivesWAL() bool {
	return b.IsEnabled() && b.Continuous && b.Destination != nil
}

// RunsDrills says whether backups are restored on trial.
func (b *ClusterBackup) RunsDrills() bool { return b.IsEnabled() && b.Verify != nil }

// ClusterReference names a cluster in the same namespace.
type ClusterReference struct {
	// Kind of the cluster.
	// +required
	// +kubebuilder:validation:Enum=PostgresCluster;MySQLCluster;EtcdCluster
	Kind string `json:"kind"`

	// Name of the cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	Name string `json:"name"`
}

// BackupSpec declares one backup.
//
// +kubebuilder:validation:XValidation:rule="self.clusterRef == oldSelf.clusterRef",message="spec.clusterRef cannot change: a backup is of one cluster; make another Backup",fieldPath=".clusterRef"
type BackupSpec struct {
	// ClusterRef names the cluster that is backed up, where its spec.backup
	// says.
	// +required
	ClusterRef ClusterReference `json:"clusterRef"`

	// DeletionPolicy says what becomes of the stored data when this object is
	// deleted: Retain keeps it, Delete deletes it. Default: Retain; backups by
	// schedule have Delete.
	// +optional
	// +kubebuilder:default=Retain
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// BackupLocation is where the data of a backup is stored.
type BackupLocation struct {
	// URL of the store; file:///backups on a volume.
	URL string `json:"url"`
	// Endpoint of the store.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// Region of the store.
	// +optional
	Region string `json:"region,omitempty"`
	// PathStyle of the store.
	// +optional
	PathStyle bool `json:"pathStyle,omitempty"`
	// CredentialsSecret is the Secret with the credentials of the store.
	// +optional
	CredentialsSecret string `json:"credentialsSecret,omitempty"`
	// ClaimName of the PersistentVolumeClaim, where it is a volume, and its
	// ClaimUID: another claim of that name does not hold the data.
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// +optional
	ClaimUID string `json:"claimUID,omitempty"`
	// Prefix of all objects of this backup, below the URL.
	Prefix string `json:"prefix"`
}

// BackupPlacement says where Jobs of a backup run.
type BackupPlacement struct {
	// NodeSelector of their pods.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Tolerations of their pods.
	// +optional
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// ImagePullSecrets of their pods.
	// +optional
	// +listType=map
	// +listMapKey=name
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
}

// Steps of a run.
const (
	// BackupStepCopying: the database is copied to the store.
	BackupStepCopying = "Copying"
	// BackupStepVerifying: what is stored is read and checked.
	BackupStepVerifying = "Verifying"
	// BackupStepDone: the backup is complete and known to be good.
	BackupStepDone = "Done"
)

// BackupRun is what the pod of a backup reports. No other client writes it.
type BackupRun struct {
	// Pod that reports.
	Pod string `json:"pod"`
	// BackupUID is the UID of the Backup that the report is about: a newer Backup
	// may have the same name.
	// +optional
	BackupUID string `json:"backupUID,omitempty"`
	// Step: Copying, Verifying or Done.
	Step string `json:"step"`
	// Progress of the step, such as 45% or 1200Mi.
	// +optional
	Progress string `json:"progress,omitempty"`
	// Error that ended the run, or that the run tries again after; empty for none.
	// +optional
	Error string `json:"error,omitempty"`
	// Permanent says that a retry fails until a user fixes the cause.
	// +optional
	Permanent bool `json:"permanent,omitempty"`
	// Result of a run that is done.
	// +optional
	Result *BackupResult `json:"result,omitempty"`
}

// BackupResult is what a backup holds.
type BackupResult struct {
	// Size of what is stored, in bytes.
	Size resource.Quantity `json:"size"`
	// DataSize is that of the copy before it was compressed, in bytes.
	DataSize resource.Quantity `json:"dataSize"`
	// Source is the member that was copied.
	// +optional
	Source string `json:"source,omitempty"`
	// Version of the database.
	Version string `json:"version"`
	// SystemIdentifier of the database system, where it has one.
	// +optional
	SystemIdentifier string `json:"systemIdentifier,omitempty"`
	// StartPosition is where the WAL begins that the copy needs to be consistent:
	// timeline and LSN of PostgreSQL, the set of GTIDs of MySQL, or the revision of
	// etcd.
	// +optional
	StartPosition string `json:"startPosition,omitempty"`
	// EndPosition is where a restore of this backup ends, in the same form.
	EndPosition string `json:"endPosition"`
	// Manifest is the object that names all others of the backup, below the
	// location.
	Manifest string `json:"manifest"`
	// Checksum of the manifest, which holds those of all else.
	Checksum string `json:"checksum"`
}

// BackupStatus is the state of a backup.
type BackupStatus struct {
	// ObservedGeneration is the newest generation of the spec that this status
	// speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Phase is a summary for people: Pending, Copying, Verifying, Completed,
	// Failed, DataLost or Deleting. No decision reads it.
	// +optional
	Phase string `json:"phase,omitempty"`

	// Conditions, kstatus-compatible: Ready, Reconciling, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// ClusterUID of the cluster that is backed up.
	// +optional
	ClusterUID string `json:"clusterUID,omitempty"`

	// Location of the data, recorded before anything is stored.
	// +optional
	Location *BackupLocation `json:"location,omitempty"`

	// Placement is where Jobs of the cluster ran when the backup was begun: the
	// one that removes the data runs there, too, once the cluster is gone.
	// +optional
	Placement *BackupPlacement `json:"placement,omitempty"`

	// StartTime is when the backup was begun.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// CompletionTime is when the backup was known to be good, or abandoned.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// Duration between the two, such as 1m12s.
	// +optional
	Duration string `json:"duration,omitempty"`

	// Size of what is stored, rounded for people, such as 126 MiB; result.size
	// is exact.
	// +optional
	Size string `json:"size,omitempty"`

	// Source is the member that the data was copied from.
	// +optional
	Source string `json:"source,omitempty"`

	// Result of a backup that is complete and was verified.
	// +optional
	Result *BackupResult `json:"result,omitempty"`

	// Error that the backup failed with.
	// +optional
	Error string `json:"error,omitempty"`

	// DataLost says that the volume that the data was on is gone.
	// +optional
	DataLost bool `json:"dataLost,omitempty"`

	// Run is what the pod that makes the backup says.
	// +optional
	Run *BackupRun `json:"run,omitempty"`
}

// Backup is one backup of a cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=bk,categories={holdfast}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.clusterRef.kind`
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterRef.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Progress",type=string,JSONPath=`.status.run.progress`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Duration",type=string,JSONPath=`.status.duration`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 54 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must start with a letter, hold only lower-case letters, digits and dashes, and have at most 54 characters: Jobs are named after it"
type Backup struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what to back up.
	// +required
	Spec BackupSpec `json:"spec"`

	// Status is what became of it.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status BackupStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions.
func (b *Backup) GetConditions() []metav1.Condition { return b.Status.Conditions }

// SetConditions replaces the conditions.
func (b *Backup) SetConditions(l []metav1.Condition) { b.Status.Conditions = l }

// HasSucceeded says whether the backup is complete and was verified, and its data
// is still there.
func (b *Backup) HasSucceeded() bool {
	return b.Status.CompletionTime != nil && b.Status.Result != nil && !b.Status.DataLost
}

// SourceClusterUID is the UID of the cluster that the backup is of; empty while that is open,
// as it is of one by hand that has not begun.
func (b *Backup) SourceClusterUID() string {
	if b.Status.ClusterUID != "" {
		return b.Status.ClusterUID
	}
	return b.Labels[LabelClusterUID]
}

// IsFinished says whether the backup is complete, or was abandoned.
func (b *Backup) IsFinished() bool { return b.Status.CompletionTime != nil }

// BackupList is a list of Backup.
//
// +kubebuilder:object:root=true
type BackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Backup `json:"items"`
}
