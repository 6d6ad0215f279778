package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PostgresClusterSpec declares a PostgreSQL cluster.
//
// +kubebuilder:validation:XValidation:rule="!has(self.backup) || !has(self.backup.walBudget) || !isQuantity(string(self.backup.walBudget)) || !isQuantity(string(self.storage.size)) || quantity(string(self.backup.walBudget)).add(quantity(string(self.backup.walBudget))).compareTo(quantity(string(self.storage.size))) <= 0",message="spec.backup.walBudget must be at most half of spec.storage.size: the data needs disk space, too",fieldPath=".backup.walBudget"
// +kubebuilder:validation:XValidation:rule="!has(self.failover) || !has(self.failover.noFailover) || self.failover.noFailover.filter(n, n < (has(self.replicas) ? self.replicas : 1)).size() < (has(self.replicas) ? self.replicas : 1)",message="spec.failover.noFailover must leave at least one of spec.replicas members: remove an ordinal, or raise spec.replicas",fieldPath=".failover.noFailover"
// +kubebuilder:validation:XValidation:rule="!has(self.synchronous) || !has(self.synchronous.mode) || self.synchronous.mode != 'Quorum' || (has(self.replicas) ? self.replicas : 1) > 1",message="spec.replicas must be at least 2 in spec.synchronous.mode Quorum, and its default is 1: declare spec.replicas, also where an autoscaler sets it later, or set spec.synchronous.mode to \"Off\"",fieldPath=".replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.synchronous) || !has(self.synchronous.mode) || self.synchronous.mode != 'Quorum' || !has(self.synchronous.number) || self.synchronous.number == 1 || self.synchronous.number < (has(self.replicas) ? self.replicas : 1)",message="spec.synchronous.number must be less than spec.replicas in mode Quorum: lower it, or raise spec.replicas, whose default is 1",fieldPath=".synchronous.number"
// +kubebuilder:validation:XValidation:rule="!has(self.restore) || !has(self.restore.target) || !has(self.restore.target.gtid)",message="spec.restore.target.gtid is for MySQL: use time, lsn, name or latest",fieldPath=".restore"
// +kubebuilder:validation:XValidation:rule="!has(self.restore) || !has(self.bootstrap) || !has(self.bootstrap.__import__)",message="spec.restore and spec.bootstrap.import exclude each other: a cluster begins with a backup or with an import",fieldPath=".bootstrap"
type PostgresClusterSpec struct {
	CommonSpec `json:",inline"`

	// Version of PostgreSQL: a major version such as "17", or a minor one such
	// as "17.4", in quotes. The image that the tag names when the first
	// member runs is kept until this is changed: see status.image.
	// +required
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="string(self).matches('^1[4-8]([.](0|[1-9][0-9]{0,2}))?$')",message="must be a version of PostgreSQL from 14 to 18: a major version such as \"17\", or a minor one such as \"17.4\""
	Version PostgresVersion `json:"version"`

	// Storage is the volume of each member.
	// +required
	Storage StorageSpec `json:"storage"`

	// Parameters are PostgreSQL settings by name, such as
	// max_connections: "200". Whole numbers may stand without quotes; fractions,
	// on and off must be in quotes. They go over defaults that are computed from
	// resources. Settings that Holdfast owns are refused. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=128
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 128 && k.matches('^[a-z_][a-z0-9_]*([.][a-z_][a-z0-9_]*)?$'))",messageExpression="'\"' + self.filter(k, size(k) > 128 || !k.matches('^[a-z_][a-z0-9_]*([.][a-z_][a-z0-9_]*)?$'))[0] + '\" is no name of a PostgreSQL setting: write it in lower case, as pg_settings lists it, such as work_mem'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, type(self[k]) != string || size(self[k]) <= 4096)",messageExpression="'spec.parameters.' + self.filter(k, type(self[k]) == string && size(self[k]) > 4096)[0] + ' is longer than 4096 characters: shorten it'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !(k in ['listen_addresses','port','unix_socket_directories','unix_socket_group','unix_socket_permissions','data_directory','config_file','hba_file','ident_file','external_pid_file','ssl','ssl_cert_file','ssl_key_file','ssl_ca_file','ssl_crl_file','ssl_crl_dir','primary_conninfo','primary_slot_name','hot_standby','wal_level','archive_mode','archive_command','archive_library','restore_command','recovery_target','recovery_target_time','recovery_target_lsn','recovery_target_xid','recovery_target_name','recovery_target_timeline','recovery_target_action','recovery_target_inclusive','promote_trigger_file','recovery_end_command','recovery_min_apply_delay','data_sync_retry','cluster_name','fsync','full_page_writes','synchronous_standby_names','wal_log_hints','allow_alter_system','event_source','logging_collector','log_destination','restart_after_crash']))",messageExpression="'spec.parameters.' + self.filter(k, k in ['listen_addresses','port','unix_socket_directories','unix_socket_group','unix_socket_permissions','data_directory','config_file','hba_file','ident_file','external_pid_file','ssl','ssl_cert_file','ssl_key_file','ssl_ca_file','ssl_crl_file','ssl_crl_dir','primary_conninfo','primary_slot_name','hot_standby','wal_level','archive_mode','archive_command','archive_library','restore_command','recovery_target','recovery_target_time','recovery_target_lsn','recovery_target_xid','recovery_target_name','recovery_target_timeline','recovery_target_action','recovery_target_inclusive','promote_trigger_file','recovery_end_command','recovery_min_apply_delay','data_sync_retry','cluster_name','fsync','full_page_writes','synchronous_standby_names','wal_log_hints','allow_alter_system','event_source','logging_collector','log_destination','restart_after_crash'])[0] + ' is set by Holdfast and cannot be declared: remove it (docs/reference/postgrescluster.md lists what Holdfast owns)'"
	Parameters Parameters `json:"parameters,omitempty"`

	// Failover says which members may take over as the primary, and what that may
	// lose. Changing it restarts nothing. Default: every member, with no limit.
	// +optional
	Failover *PostgresFailover `json:"failover,omitempty"`

	// Synchronous says whether commits wait until standbys have flushed them. Changing
	// it restarts nothing. Default: they do not wait.
	// +optional
	Synchronous *PostgresSynchronous `json:"synchronous,omitempty"`

	// Bootstrap is the first database. It is read only while no data exists:
	// afterwards the names that the data was made with stay in use, as in a
	// cluster that was restored. A name that is declared and is another one is
	// reported as Stalled. Default: the database app of the owner app.
	// +optional
	// +kubebuilder:default:={}
	Bootstrap PostgresBootstrap `json:"bootstrap,omitempty"`
}

// PostgresBootstrap is the first database of a new cluster.
type PostgresBootstrap struct {
	// Database to create. Default: app; where data exists already, the database
	// that it was made with.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z_][a-z0-9_]*$')",message="must be a PostgreSQL name of lower-case letters, digits and underscores that does not start with a digit, such as app"
	// +kubebuilder:validation:XValidation:rule="!(self in ['postgres','template0','template1'])",message="spec.bootstrap.database must not be postgres, template0 or template1, which exist already: choose another name"
	Database string `json:"database,omitempty"`

	// Owner is the role that owns the database and that applications log in
	// as. Default: app; where data exists already, the owner that it was made
	// with.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z_][a-z0-9_]*$')",message="must be a PostgreSQL name of lower-case letters, digits and underscores that does not start with a digit, such as app"
	// +kubebuilder:validation:XValidation:rule="self != 'postgres' && self != 'public' && self != 'none' && !self.startsWith('pg_') && !self.startsWith('holdfast')",message="spec.bootstrap.owner must not be postgres, public, none or start with pg_ or holdfast: choose another name"
	Owner string `json:"owner,omitempty"`

	// Import fills the database of a new cluster from another PostgreSQL server, once,
	// before applications are let in. It cannot be added later. Once
	// status.import.completionTime is set it has no effect and may be removed.
	// Default: the database begins empty.
	// +optional
	Import *ImportSource `json:"import,omitempty"`
}

// PostgresClusterStatus is the observed state of a PostgreSQL cluster.
type PostgresClusterStatus struct {
	CommonStatus `json:",inline"`
}

// PostgresCluster is a PostgreSQL primary with streaming replicas.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=pg,categories={all,holdfast}
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Primary",type=string,JSONPath=`.status.primary`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Synced",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Synced")].status`
// +kubebuilder:printcolumn:name="BackedUp",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="BackedUp")].status`
// +kubebuilder:printcolumn:name="Last Backup",type=date,priority=1,JSONPath=`.status.lastBackup.time`
// +kubebuilder:printcolumn:name="Drill",type=string,priority=1,JSONPath=`.status.drill.result`
// +kubebuilder:printcolumn:name="New Agent",type=string,priority=1,JSONPath=`.status.agent.available`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must start with a letter, hold only lower-case letters, digits and dashes, and have at most 40 characters: pods and Services are named after it"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.bootstrap) || !has(self.spec.bootstrap.__import__) || (has(oldSelf.status) && has(oldSelf.status.__import__) && has(oldSelf.status.__import__.completionTime)) || (has(oldSelf.spec.bootstrap) && has(oldSelf.spec.bootstrap.__import__) && (self.spec.bootstrap.__import__ == oldSelf.spec.bootstrap.__import__ || has(oldSelf.status) && has(oldSelf.status.__import__) && has(oldSelf.status.__import__.error)))",message="spec.bootstrap.import cannot be added to a cluster that began without it, nor change while it is under way: declare another cluster, or wait until it is done or has failed",fieldPath=".spec.bootstrap"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.restore) || (has(oldSelf.status) && has(oldSelf.status.restore) ? has(oldSelf.spec.restore) && self.spec.restore == oldSelf.spec.restore || has(oldSelf.status.restore.completionTime) || has(oldSelf.status.restore.error) : has(oldSelf.spec.restore))",message="spec.restore cannot be added to a cluster that began without it, nor change while it is under way: declare another cluster, or wait until it is done or has failed",fieldPath=".spec.restore"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.tls) || ['-ca','-tls','-internal','-app'].all(s, (!has(self.spec.tls.certificateSecretRef) || self.spec.tls.certificateSecretRef.name != self.metadata.name + s) && (!has(self.spec.tls.caSecretRef) || self.spec.tls.caSecretRef.name != self.metadata.name + s))",message="spec.tls must name Secrets of your own: those named after the cluster with -ca, -tls, -internal and -app are Holdfast's"
type PostgresCluster struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the cluster should be.
	// +required
	Spec PostgresClusterSpec `json:"spec"`

	// Status is what the cluster is.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status PostgresClusterStatus `json:"status,omitempty"`
}

// PostgresClusterList is a list of PostgresCluster.
//
// +kubebuilder:object:root=true
type PostgresClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PostgresCluster `json:"items"`
}
