package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// CommonSpec is the part of the spec that all kinds of cluster share.
type CommonSpec struct {
	// Image replaces the image that version maps to. It must contain the
	// database at the declared version. Default: the upstream image of version.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-zA-Z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?(@[a-z0-9]+:[0-9a-f]{32,})?$')",message="can never be pulled: name it as [registry[:port]/]repository[:tag][@digest], the repository in lower case, such as postgres:17.6"
	Image string `json:"image,omitempty"`

	// ImagePullSecrets name Secrets in the same namespace that hold
	// credentials of the image's registry. Default: none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// Replicas is the number of members. Default: 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9
	Replicas *int32 `json:"replicas,omitempty"`

	// Resources of the database container. The database's own memory settings
	// are computed from them. Default: none.
	// +optional
	// +kubebuilder:validation:XValidation:rule="['cpu','memory','ephemeral-storage'].all(k, !has(self.limits) || !(k in self.limits) || isQuantity(string(self.limits[k])))",message="a limit must be a quantity: memory such as 1Gi or 512Mi, cpu such as 2 or 500m"
	// +kubebuilder:validation:XValidation:rule="['cpu','memory','ephemeral-storage'].all(k, !has(self.requests) || !(k in self.requests) || isQuantity(string(self.requests[k])))",message="a request must be a quantity: memory such as 1Gi or 512Mi, cpu such as 2 or 500m"
	// +kubebuilder:validation:XValidation:rule="['cpu','memory','ephemeral-storage'].all(k, !has(self.requests) || !has(self.limits) || !(k in self.requests) || !(k in self.limits) || !isQuantity(string(self.requests[k])) || !isQuantity(string(self.limits[k])) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",message="a request must not be more than the limit of the same name: lower resources.requests, or raise resources.limits"
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// Drift says what happens to changes that other clients make to owned
	// objects. Default: they are reverted.
	// +optional
	Drift DriftSpec `json:"drift,omitempty"`

	// DeletionPolicy says what becomes of volumes, CA and credentials when the
	// cluster is deleted, and of the volume of a member that is scaled away:
	// Retain keeps them, and a cluster created again under the same name
	// adopts them; Delete deletes them. What Retain kept of a member that was
	// scaled away stays when this becomes Delete later. Default: Retain.
	// +optional
	// +kubebuilder:default=Retain
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// ProgressDeadlineSeconds is the time without progress, in seconds, after
	// which a change is reported as Stalled. Work goes on, and the condition
	// clears itself. Default: 600.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`

	// Suspend stops every write of the operator for this cluster, but for the
	// owner references that deletionPolicy is made of; it goes on observing and
	// reporting, and the database goes on serving. Default: false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// Backup says when the cluster is backed up, where to, and for how long
	// backups are kept. Default: every night, to a volume of the cluster's own,
	// which is made with the first backup.
	// +optional
	// +kubebuilder:default:={}
	Backup *ClusterBackup `json:"backup,omitempty"`

	// Restore says which backup the cluster begins with. It cannot be added
	// later, and not change while the restore is under way; once that is done,
	// it may be removed. Default: none, the cluster begins empty.
	// +optional
	Restore *ClusterRestore `json:"restore,omitempty"`

	// TLS says which certificates and CAs of your own are used. Default: none,
	// Holdfast makes and renews its own.
	// +optional
	TLS TLSSpec `json:"tls,omitzero"`

	// ServiceAccount is what the cluster's ServiceAccounts carry. Default: no
	// annotations.
	// +optional
	ServiceAccount ServiceAccountSpec `json:"serviceAccount,omitzero"`

	// Network says who may connect to members. Default: everyone.
	// +optional
	// +kubebuilder:default={}
	Network NetworkSpec `json:"network,omitzero"`

	// Tuning says whether settings and resources are recommended by what the members measured,
	// and settings tried. Default: they are recommended, in status.recommendations.
	// +optional
	Tuning TuningSpec `json:"tuning,omitzero"`

	// Scheduling says where members run.
	SchedulingSpec `json:",inline"`
}

// ServiceAccountSpec is what the ServiceAccounts carry that Holdfast makes for a
// cluster: <cluster>, which members run as, and <cluster>-backup, which Jobs of
// backups, restores and drills run as.
type ServiceAccountSpec struct {
	// Annotations are added to both ServiceAccounts, such as those that give them
	// an identity at a cloud provider to reach the store of backups with. Where
	// the WAL is archived, a change restarts members, one by one. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, type(self[k]) == string)",messageExpression="'spec.serviceAccount.annotations.' + self.filter(k, type(self[k]) != string)[0] + ' must be in quotes, such as \"17\": without them YAML reads a number'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('holdfast.dev/') && size(k) <= 317)",message="must not use the prefix holdfast.dev/, which Holdfast owns: choose another annotation"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// SchedulingSpec says where members run, and what their pods carry.
type SchedulingSpec struct {
	// NodeSelector that a member's node must match. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, type(self[k]) == string)",messageExpression="'spec.nodeSelector.' + self.filter(k, type(self[k]) != string)[0] + ' must be in quotes, such as \"17\": without them YAML reads a number'"
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Affinity of members' pods. Default: members avoid each other's nodes
	// where they can.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// Tolerations of members' pods. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// TopologySpreadConstraints of members' pods. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// PriorityClassName of members' pods. Default: the cluster's default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// PodLabels are added to members' pods. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, type(self[k]) == string)",messageExpression="'spec.podLabels.' + self.filter(k, type(self[k]) != string)[0] + ' must be in quotes, such as \"17\": without them YAML reads a number'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('holdfast.dev/') && !k.startsWith('app.kubernetes.io/') && size(k) <= 317)",message="spec.podLabels must not use the prefixes holdfast.dev/ and app.kubernetes.io/, which Holdfast owns: choose another label"
	PodLabels map[string]string `json:"podLabels,omitempty"`

	// PodAnnotations are added to members' pods. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, type(self[k]) == string)",messageExpression="'spec.podAnnotations.' + self.filter(k, type(self[k]) != string)[0] + ' must be in quotes, such as \"17\": without them YAML reads a number'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('holdfast.dev/') && size(k) <= 317)",message="spec.podAnnotations must not use the prefix holdfast.dev/, which Holdfast owns: choose another annotation"
	PodAnnotations map[string]string `json:"podAnnotations,omitempty"`
}

// StorageSpec is the volume of each member.
// +kubebuilder:validation:XValidation:rule="!has(self.autoGrow) || !isQuantity(string(self.autoGrow.maxSize)) || !isQuantity(string(self.size)) || quantity(string(self.autoGrow.maxSize)).compareTo(quantity(string(self.size))) >= 0",message="spec.storage.autoGrow.maxSize must be at least spec.storage.size: volumes are made with that size, and never shrink",fieldPath=".autoGrow.maxSize"
type StorageSpec struct {
	// Size of the volume, in bytes, such as 10Gi. It can grow where the
	// storage class allows it, and never shrinks. With autoGrow it is the size
	// that volumes begin with.
	// +required
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="must be a size in bytes, such as 10Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('64Mi')) >= 0",message="spec.storage.size must be at least 64Mi"
	Size resource.Quantity `json:"size"`

	// StorageClass of the volume. Default: the cluster's default class. It
	// cannot change once volumes exist.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClass string `json:"storageClass,omitempty"`

	// AutoGrow lets volumes grow as they fill, where the storage class allows
	// it. All members' volumes grow together. Default: they stay as they are.
	// +optional
	AutoGrow *AutoGrowSpec `json:"autoGrow,omitempty"`
}

// AutoGrowSpec says when volumes grow by themselves, and how far.
type AutoGrowSpec struct {
	// MaxSize is what a volume grows to at most, in bytes, such as 100Gi.
	// +required
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="must be a size in bytes, such as 100Gi"
	MaxSize resource.Quantity `json:"maxSize"`

	// ThresholdPercent of a volume that is filled when it grows. Default: 80.
	// +optional
	// +kubebuilder:default=80
	// +kubebuilder:validation:Minimum=50
	// +kubebuilder:validation:Maximum=95
	ThresholdPercent int32 `json:"thresholdPercent,omitempty"`

	// StepPercent of its size is what a volume grows by. A member that needs
	// more to go on gets that. Default: 20.
	// +optional
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=100
	StepPercent int32 `json:"stepPercent,omitempty"`
}

// DeletionPolicy says what becomes of data when its owner is deleted.
// +kubebuilder:validation:Enum=Retain;Delete
type DeletionPolicy string

// The deletion policies.
const (
	DeletionRetain DeletionPolicy = "Retain"
	DeletionDelete DeletionPolicy = "Delete"
)

// DriftMode says what to do about drift.
// +kubebuilder:validation:Enum=Revert;Report
type DriftMode string

// The drift modes.
const (
	DriftRevert DriftMode = "Revert"
	DriftReport DriftMode = "Report"
)

// DriftSpec says what happens to changes that other clients make to owned
// objects.
type DriftSpec struct {
	// Mode Revert puts drift back; Report only reports it. Default: Revert.
	// +optional
	// +kubebuilder:default=Revert
	Mode DriftMode `json:"mode,omitempty"`

	// Ignore lists changes that are left alone and not reported. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Ignore []DriftIgnore `json:"ignore,omitempty"`
}

// DriftIgnore is one rule of what drift to leave alone. All parts that are set
// must match.
// +kubebuilder:validation:XValidation:rule="has(self.paths) || has(self.managers)",message="an ignore rule needs paths or managers: say what to leave alone"
type DriftIgnore struct {
	// Kind of the objects, such as Service. Default: every kind.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`

	// Name of the object. Default: every name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// Paths are JSON pointers (RFC 6901), such as /spec/type. A path covers
	// everything below it. Default: every path.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:XValidation:rule="self.startsWith('/')",message="must be a JSON pointer that starts with a slash, such as /spec/type"
	// +kubebuilder:validation:items:MaxLength=512
	Paths []string `json:"paths,omitempty"`

	// Managers are the field managers whose changes are left alone. Default:
	// every manager.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=128
	Managers []string `json:"managers,omitempty"`
}
