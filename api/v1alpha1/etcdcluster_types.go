package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdClusterSpec declares an etcd cluster.
//
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || self.replicas % 2 == 1",message="spec.replicas must be odd: an even number of members bears no more failures than one less",fieldPath=".replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.quota) || !isQuantity(string(self.quota)) || !isQuantity(string(self.storage.size)) || quantity(string(self.quota)).add(quantity(string(self.quota))).compareTo(quantity(string(self.storage.size))) <= 0",message="spec.quota must be at most half of spec.storage.size: a defragmentation writes the data once more before it drops the old copy",fieldPath=".quota"
// +kubebuilder:validation:XValidation:rule="!has(self.backup) || (!has(self.backup.continuous) || !self.backup.continuous) && !has(self.backup.walBudget)",message="etcd keeps no log that could be archived: remove spec.backup.continuous and spec.backup.walBudget, and have a shorter spec.backup.schedule instead",fieldPath=".backup"
// +kubebuilder:validation:XValidation:rule="!has(self.restore) || !has(self.restore.target)",message="etcd keeps no log that could be archived: remove spec.restore.target, and name the backup that comes before the moment",fieldPath=".restore"
// +kubebuilder:validation:XValidation:rule="!has(self.tuning) || !has(self.tuning.mode) || self.tuning.mode != 'Apply'",message="spec.tuning.mode Apply is for PostgreSQL: use Recommend, and commit what status.recommendations has",fieldPath=".tuning"
type EtcdClusterSpec struct {
	CommonSpec `json:",inline"`

	// Version of etcd: a minor version such as "3.6", or a patch such as
	// "3.6.16". For a minor version, members get the newest patch that Holdfast
	// knows when the first of them starts. They keep it until this is changed:
	// see status.image. Upgrades go one minor version at a time, and there is no way
	// back to an older one.
	// +required
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string",message="write the version in quotes, such as \"3.6\" or \"3.6.16\": without them YAML reads a number"
	// +kubebuilder:validation:XValidation:rule="type(self) != string || self.matches('^3[.]([5-7]|[5-9][.](0|[1-9][0-9]{0,2}))$')",message="must be a version of etcd from 3.5 on: a minor version, \"3.5\", \"3.6\" or \"3.7\", or a patch such as \"3.6.16\""
	Version string `json:"version"`

	// Storage is the volume of each member.
	// +required
	Storage StorageSpec `json:"storage"`

	// Quota is the size, in bytes, that the data may grow to before etcd takes
	// no more writes; at most half of storage.size. Default: 2Gi, or two fifths
	// of storage.size where that is less.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="must be a size in bytes, such as 2Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('16Mi')) >= 0",message="spec.quota must be at least 16Mi"
	Quota *resource.Quantity `json:"quota,omitempty"`

	// Defragmentation says when members give back what they no longer use.
	// Default: as soon as there is enough to free.
	// +optional
	// +kubebuilder:default:={}
	Defragmentation EtcdDefragmentation `json:"defragmentation,omitempty"`

	// Parameters are etcd's settings by the name of their flag without dashes in
	// front, such as snapshot-count: "10000". Whole numbers may stand without
	// quotes; true and false must be in quotes. Settings that Holdfast owns are
	// refused. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 128 && k.matches('^[a-z][a-z0-9-]*$'))",messageExpression="'\"' + self.filter(k, size(k) > 128 || !k.matches('^[a-z][a-z0-9-]*$'))[0] + '\" is no name of an etcd flag: write it in lower case without dashes in front, such as snapshot-count'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, type(self[k]) != string || size(self[k]) <= 1024)",messageExpression="'spec.parameters.' + self.filter(k, type(self[k]) == string && size(self[k]) > 1024)[0] + ' is longer than 1024 characters: shorten it'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !(k in ['name','data-dir','wal-dir','config-file','version','help','cert-file','key-file','client-cert-auth','client-crl-file','client-cert-allowed-hostname','trusted-ca-file','auto-tls','force-new-cluster','force-new-cluster-bump-amount','unsafe-no-fsync','quota-backend-bytes','strict-reconfig-check','logger','log-outputs','log-format','log-rotation-config-json','enable-log-rotation','self-signed-cert-validity','host-whitelist','enable-v2','enable-grpc-gateway','proxy','gateway'] || k.startsWith('listen-') || k.startsWith('advertise-') || k.startsWith('initial-') || k.startsWith('peer-') || k.startsWith('discovery') || k.startsWith('proxy-')))",messageExpression="'spec.parameters.' + self.filter(k, k in ['name','data-dir','wal-dir','config-file','version','help','cert-file','key-file','client-cert-auth','client-crl-file','client-cert-allowed-hostname','trusted-ca-file','auto-tls','force-new-cluster','force-new-cluster-bump-amount','unsafe-no-fsync','quota-backend-bytes','strict-reconfig-check','logger','log-outputs','log-format','log-rotation-config-json','enable-log-rotation','self-signed-cert-validity','host-whitelist','enable-v2','enable-grpc-gateway','proxy','gateway'] || k.startsWith('listen-') || k.startsWith('advertise-') || k.startsWith('initial-') || k.startsWith('peer-') || k.startsWith('discovery') || k.startsWith('proxy-'))[0] + ' is set by Holdfast and cannot be declared: remove it (docs/reference/etcdcluster.md lists what Holdfast owns)'"
	Parameters Parameters `json:"parameters,omitempty"`
}

// EtcdDefragmentation says when members give back what they no longer use.
type EtcdDefragmentation struct {
	// ThresholdPercent is the share of the data's size that is not in use, in
	// percent, from which on a member is defragmented, one at a time while all
	// are healthy; 100 for never. Default: 50.
	// +optional
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=100
	ThresholdPercent *int32 `json:"thresholdPercent,omitempty"`

	// Schedule keeps it to runs that begin at the times of this line of cron,
	// such as "30 2 * * 0": minute, hour, day of the month, month, day of the
	// week; or @daily, @weekly and the like. In a run each member that has so
	// much to give back is defragmented once. Default: at any time.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^@(yearly|annually|monthly|weekly|daily|midnight|hourly)$|^[0-9*?][0-9*?,/-]* +[0-9*?][0-9*?,/-]* +[0-9*?][0-9*?,/-]* +[0-9A-Za-z*?][0-9A-Za-z*?,/-]* +[0-9A-Za-z*?][0-9A-Za-z*?,/-]*$')",message="must be five fields, minute, hour, day of the month, month, day of the week, such as 30 2 * * 0; or @hourly, @daily, @weekly, @monthly, @yearly. A time zone goes into timeZone"
	Schedule string `json:"schedule,omitempty"`

	// TimeZone of the schedule, by its name in the IANA database, such as
	// Europe/Berlin. Default: UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$') && self != 'Local' && timestamp('2000-01-01T00:00:00Z').getHours(self) >= 0",message="must be a time zone by its name in the IANA database, such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`
}

// EtcdClusterStatus is the observed state of an etcd cluster.
type EtcdClusterStatus struct {
	CommonStatus `json:",inline"`
}

// EtcdCluster is an etcd cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=ec,categories={all,holdfast}
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Leader",type=string,JSONPath=`.status.primary`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Synced",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Synced")].status`
// +kubebuilder:printcolumn:name="BackedUp",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="BackedUp")].status`
// +kubebuilder:printcolumn:name="Last Backup",type=date,priority=1,JSONPath=`.status.lastBackup.time`
// +kubebuilder:printcolumn:name="Drill",type=string,priority=1,JSONPath=`.status.drill.result`
// +kubebuilder:printcolumn:name="New Agent",type=string,priority=1,JSONPath=`.status.agent.available`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must start with a letter, hold only lower-case letters, digits and dashes, and have at most 40 characters: pods and Services are named after it"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.restore) || (has(oldSelf.status) && has(oldSelf.status.restore) ? has(oldSelf.spec.restore) && self.spec.restore == oldSelf.spec.restore || has(oldSelf.status.restore.completionTime) || has(oldSelf.status.restore.error) : has(oldSelf.spec.restore))",message="spec.restore cannot be added to a cluster that began without it, nor change while it is under way: declare another cluster, or wait until it is done or has failed",fieldPath=".spec.restore"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.tls) || ['-ca','-tls','-internal','-app'].all(s, (!has(self.spec.tls.certificateSecretRef) || self.spec.tls.certificateSecretRef.name != self.metadata.name + s) && (!has(self.spec.tls.caSecretRef) || self.spec.tls.caSecretRef.name != self.metadata.name + s))",message="spec.tls must name Secrets of your own: those named after the cluster with -ca, -tls, -internal and -app are Holdfast's"
type EtcdCluster struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the cluster should be.
	// +required
	Spec EtcdClusterSpec `json:"spec"`

	// Status is what the cluster is.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status EtcdClusterStatus `json:"status,omitempty"`
}

// EtcdClusterList is a list of EtcdCluster.
//
// +kubebuilder:object:root=true
type EtcdClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EtcdCluster `json:"items"`
}
