package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DatabaseEngine is a database system.
// +kubebuilder:validation:Enum=postgres;mysql
type DatabaseEngine string

// The engines.
const (
	// EnginePostgres is PostgreSQL, which a PostgresCluster runs.
	EnginePostgres DatabaseEngine = "postgres"
	// EngineMySQL is MySQL, which a MySQLCluster runs.
	EngineMySQL DatabaseEngine = "mysql"
)

// DatabaseSpec declares a database without the words of one engine.
//
// +kubebuilder:validation:XValidation:rule="self.engine != 'postgres' || string(self.version).matches('^1[4-8]([.](0|[1-9][0-9]{0,2}))?$')",message="spec.version must be a version of PostgreSQL from 14 to 18: a major version such as \"17\", or a minor one such as \"17.4\"",fieldPath=".version"
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || self.replicas <= 5",message="spec.replicas must be at most 5: for more members, declare the cluster itself, such as a PostgresCluster",fieldPath=".replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.autoGrow) || !isQuantity(string(self.autoGrow.maxSize)) || !isQuantity(string(self.storage)) || quantity(string(self.autoGrow.maxSize)).compareTo(quantity(string(self.storage))) >= 0",message="spec.autoGrow.maxSize must be at least spec.storage: volumes are made with that size, and never shrink",fieldPath=".autoGrow.maxSize"
// +kubebuilder:validation:XValidation:rule="!has(self.backup) || !has(self.backup.walBudget) || !isQuantity(string(self.backup.walBudget)) || !isQuantity(string(self.storage)) || quantity(string(self.backup.walBudget)).add(quantity(string(self.backup.walBudget))).compareTo(quantity(string(self.storage))) <= 0",message="spec.backup.walBudget must be at most half of spec.storage: the data needs disk space, too",fieldPath=".backup.walBudget"
// +kubebuilder:validation:XValidation:rule="self.engine != 'postgres' || !has(self.parameters) || self.parameters.all(k, size(k) <= 128 && k.matches('^[a-z_][a-z0-9_]*([.][a-z_][a-z0-9_]*)?$'))",messageExpression="'\"' + self.parameters.filter(k, size(k) > 128 || !k.matches('^[a-z_][a-z0-9_]*([.][a-z_][a-z0-9_]*)?$'))[0] + '\" is no name of a PostgreSQL setting: write it in lower case, as pg_settings lists it, such as work_mem'",fieldPath=".parameters"
// +kubebuilder:validation:XValidation:rule="self.engine != 'postgres' || !has(self.parameters) || self.parameters.all(k, type(self.parameters[k]) != string || size(self.parameters[k]) <= 4096)",messageExpression="'spec.parameters.' + self.parameters.filter(k, type(self.parameters[k]) == string && size(self.parameters[k]) > 4096)[0] + ' is longer than 4096 characters: shorten it'",fieldPath=".parameters"
// +kubebuilder:validation:XValidation:rule="self.engine != 'postgres' || !has(self.parameters) || self.parameters.all(k, !(k in ['listen_addresses','port','unix_socket_directories','unix_socket_group','unix_socket_permissions','data_directory','config_file','hba_file','ident_file','external_pid_file','ssl','ssl_cert_file','ssl_key_file','ssl_ca_file','ssl_crl_file','ssl_crl_dir','primary_conninfo','primary_slot_name','hot_standby','wal_level','archive_mode','archive_command','archive_library','restore_command','recovery_target','recovery_target_time','recovery_target_lsn','recovery_target_xid','recovery_target_name','recovery_target_timeline','recovery_target_action','recovery_target_inclusive','promote_trigger_file','recovery_end_command','recovery_min_apply_delay','data_sync_retry','cluster_name','fsync','full_page_writes','synchronous_standby_names','wal_log_hints','allow_alter_system','event_source','logging_collector','log_destination','restart_after_crash']))",messageExpression="'spec.parameters.' + self.parameters.filter(k, k in ['listen_addresses','port','unix_socket_directories','unix_socket_group','unix_socket_permissions','data_directory','config_file','hba_file','ident_file','external_pid_file','ssl','ssl_cert_file','ssl_key_file','ssl_ca_file','ssl_crl_file','ssl_crl_dir','primary_conninfo','primary_slot_name','hot_standby','wal_level','archive_mode','archive_command','archive_library','restore_command','recovery_target','recovery_target_time','recovery_target_lsn','recovery_target_xid','recovery_target_name','recovery_target_timeline','recovery_target_action','recovery_target_inclusive','promote_trigger_file','recovery_end_command','recovery_min_apply_delay','data_sync_retry','cluster_name','fsync','full_page_writes','synchronous_standby_names','wal_log_hints','allow_alter_system','event_source','logging_collector','log_destination','restart_after_crash'])[0] + ' is set by Holdfast and cannot be declared: remove it (docs/reference/postgrescluster.md lists what Holdfast owns)'",fieldPath=".parameters"
// +kubebuilder:validation:XValidation:rule="self.engine != 'mysql' || !has(self.parameters) || self.parameters.all(k, size(k) <= 128 && k.matches('^[a-z][a-z0-9_]*$'))",messageExpression="'\"' + self.parameters.filter(k, size(k) > 128 || !k.matches('^[a-z][a-z0-9_]*$'))[0] + '\" is no name of a MySQL system variable: write it in lower case with underscores, such as max_connections'",fieldPath=".parameters"
// +kubebuilder:validation:XValidation:rule="self.engine != 'mysql' || !has(self.parameters) || self.parameters.all(k, type(self.parameters[k]) != string || size(self.parameters[k]) <= 1024)",messageExpression="'spec.parameters.' + self.parameters.filter(k, type(self.parameters[k]) == string && size(self.parameters[k]) > 1024)[0] + ' is longer than 1024 characters: shorten it'",fieldPath=".parameters"
// +kubebuilder:validation:XValidation:rule="self.engine != 'mysql' || !has(self.parameters) || self.parameters.all(k, !(k in ['activate_mandatory_roles','authentication_policy','auto_generate_certs','auto_increment_increment','auto_increment_offset','basedir','bind_address','binlog_checksum','binlog_do_db','binlog_encryption','binlog_error_action','binlog_format','binlog_gtid_simple_recovery','binlog_ignore_db','binlog_order_commits','binlog_rotate_encryption_master_key_at_startup','binlog_row_event_max_size','character_sets_dir','chroot','console','core_file','create_admin_listener_thread','daemonize','datadir','default_storage_engine','early_plugin_load','enforce_gtid_consistency','external_locking','gdb','gtid_mode','gtid_next','gtid_purged','help','init_file','init_replica','init_slave','initialize','initialize_insecure','innodb_autoinc_lock_mode','innodb_buffer_pool_filename','innodb_checksum_algorithm','innodb_data_file_path','innodb_data_home_dir','innodb_dedicated_server','innodb_directories','innodb_doublewrite','innodb_doublewrite_dir','innodb_doublewrite_files','innodb_fast_shutdown','innodb_flush_log_at_timeout','innodb_flush_log_at_trx_commit','innodb_flush_method','innodb_force_load_corrupted','innodb_force_recovery','innodb_log_checksums','innodb_log_group_home_dir','innodb_page_size','innodb_read_only','innodb_redo_log_archive_dirs','innodb_redo_log_encrypt','innodb_temp_data_file_path','innodb_temp_tablespaces_dir','innodb_tmpdir','innodb_undo_directory','innodb_undo_log_encrypt','innodb_use_fdatasync','large_pages','lc_messages','lc_messages_dir','local_infile','log_bin','log_bin_index','log_error','log_error_services','log_replica_updates','log_slave_updates','log_tc','log_tc_size','log_timestamps','lower_case_table_names','max_relay_log_size','memlock','mysqlx','offline_mode','open_files_limit','partial_revokes','performance_schema','persisted_globals_load','pid_file','plugin_dir','plugin_load','plugin_load_add','port','port_open_timeout','read_only','relay_log','relay_log_index','relay_log_purge','relay_log_recovery','relay_log_space_limit','replica_exec_mode','replica_preserve_commit_order','report_host','report_password','report_port','report_user','secure_file_priv','server_id','server_id_bits','server_uuid','socket','super_large_pages','super_read_only','symbolic_links','sync_binlog','sync_master_info','sync_relay_log','sync_relay_log_info','sync_source_info','tc_heuristic_recover','tmpdir','upgrade','user','validate_config','verbose','version'] || k.matches('^(admin_|caching_sha2_password_|clone_|debug|group_replication_|keyring_|mysqlx_|ndb|persist_|replica_skip_|replicate_|slave_|sha256_password_|ssl_|tls_|performance_schema_consumer_)') && !(k in ['group_replication_transaction_size_limit','group_replication_flow_control_mode','group_replication_flow_control_applier_threshold','group_replication_flow_control_certifier_threshold','group_replication_compression_threshold','group_replication_recovery_compression_algorithms','ssl_session_cache_mode','ssl_session_cache_timeout','tls_ciphersuites','ssl_cipher']) || k.matches('^(loose|skip|disable|enable|maximum)_') && !(k in ['skip_show_database','enable_cascade_triggers','enable_secondary_engine_statistics','disabled_storage_engines'])))",messageExpression="'spec.parameters.' + self.parameters.filter(k, (k in ['activate_mandatory_roles','authentication_policy','auto_generate_certs','auto_increment_increment','auto_increment_offset','basedir','bind_address','binlog_checksum','binlog_do_db','binlog_encryption','binlog_error_action','binlog_format','binlog_gtid_simple_recovery','binlog_ignore_db','binlog_order_commits','binlog_rotate_encryption_master_key_at_startup','binlog_row_event_max_size','character_sets_dir','chroot','console','core_file','create_admin_listener_thread','daemonize','datadir','default_storage_engine','early_plugin_load','enforce_gtid_consistency','external_locking','gdb','gtid_mode','gtid_next','gtid_purged','help','init_file','init_replica','init_slave','initialize','initialize_insecure','innodb_autoinc_lock_mode','innodb_buffer_pool_filename','innodb_checksum_algorithm','innodb_data_file_path','innodb_data_home_dir','innodb_dedicated_server','innodb_directories','innodb_doublewrite','innodb_doublewrite_dir','innodb_doublewrite_files','innodb_fast_shutdown','innodb_flush_log_at_timeout','innodb_flush_log_at_trx_commit','innodb_flush_method','innodb_force_load_corrupted','innodb_force_recovery','innodb_log_checksums','innodb_log_group_home_dir','innodb_page_size','innodb_read_only','innodb_redo_log_archive_dirs','innodb_redo_log_encrypt','innodb_temp_data_file_path','innodb_temp_tablespaces_dir','innodb_tmpdir','innodb_undo_directory','innodb_undo_log_encrypt','innodb_use_fdatasync','large_pages','lc_messages','lc_messages_dir','local_infile','log_bin','log_bin_index','log_error','log_error_services','log_replica_updates','log_slave_updates','log_tc','log_tc_size','log_timestamps','lower_case_table_names','max_relay_log_size','memlock','mysqlx','offline_mode','open_files_limit','partial_revokes','performance_schema','persisted_globals_load','pid_file','plugin_dir','plugin_load','plugin_load_add','port','port_open_timeout','read_only','relay_log','relay_log_index','relay_log_purge','relay_log_recovery','relay_log_space_limit','replica_exec_mode','replica_preserve_commit_order','report_host','report_password','report_port','report_user','secure_file_priv','server_id','server_id_bits','server_uuid','socket','super_large_pages','super_read_only','symbolic_links','sync_binlog','sync_master_info','sync_relay_log','sync_relay_log_info','sync_source_info','tc_heuristic_recover','tmpdir','upgrade','user','validate_config','verbose','version'] || k.matches('^(admin_|caching_sha2_password_|clone_|debug|group_replication_|keyring_|mysqlx_|ndb|persist_|replica_skip_|replicate_|slave_|sha256_password_|ssl_|tls_|performance_schema_consumer_)') && !(k in ['group_replication_transaction_size_limit','group_replication_flow_control_mode','group_replication_flow_control_applier_threshold','group_replication_flow_control_certifier_threshold','group_replication_compression_threshold','group_replication_recovery_compression_algorithms','ssl_session_cache_mode','ssl_session_cache_timeout','tls_ciphersuites','ssl_cipher']) || k.matches('^(loose|skip|disable|enable|maximum)_') && !(k in ['skip_show_database','enable_cascade_triggers','enable_secondary_engine_statistics','disabled_storage_engines'])))[0] + ' is set by Holdfast and cannot be declared: remove it (docs/reference/mysqlcluster.md lists what Holdfast owns)'",fieldPath=".parameters"
// +kubebuilder:validation:XValidation:rule="self.engine != 'mysql' || type(self.version) == string && self.version.matches('^(8[.]4|9[.]7)([.](0|[1-9][0-9]?))?$')",message="spec.version must be a version of MySQL with long-term support, in quotes: a series, \"8.4\" or \"9.7\", or a patch such as \"9.7.4\"",fieldPath=".version"
// +kubebuilder:validation:XValidation:rule="self.engine != 'mysql' || !has(self.replicas) || self.replicas % 2 == 1",message="spec.replicas must be odd with spec.engine mysql: an even number of members bears no more failures than one less",fieldPath=".replicas"
// +kubebuilder:validation:XValidation:rule="self.engine != 'mysql' || !has(self.restore) || !has(self.restore.target) || !has(self.restore.target.lsn) && !has(self.restore.target.name)",message="spec.restore.target.lsn and spec.restore.target.name are for PostgreSQL: with spec.engine mysql use time, gtid or latest",fieldPath=".restore"
// +kubebuilder:validation:XValidation:rule="self.engine != 'postgres' || !has(self.restore) || !has(self.restore.target) || !has(self.restore.target.gtid)",message="spec.restore.target.gtid is for MySQL: with spec.engine postgres use time, lsn, name or latest",fieldPath=".restore"
// +kubebuilder:validation:XValidation:rule="self.engine != 'mysql' || !isQuantity(string(self.storage)) || quantity(string(self.storage)).compareTo(quantity('512Mi')) >= 0",message="spec.storage must be at least 512Mi with spec.engine mysql: MySQL's own files and logs take half of that",fieldPath=".storage"
// +kubebuilder:validation:XValidation:rule="self.engine != 'mysql' || !has(self.resources) || !has(self.resources.limits) || !('memory' in self.resources.limits) || !isQuantity(string(self.resources.limits['memory'])) || quantity(string(self.resources.limits['memory'])).compareTo(quantity('1Gi')) >= 0",message="spec.resources.limits.memory must be at least 1Gi with spec.engine mysql: with less, the kernel may kill MySQL under load",fieldPath=".resources"
// +kubebuilder:validation:XValidation:rule="self.engine != 'mysql' || !has(self.bootstrap.database) || !(self.bootstrap.database in ['mysql','sys','information_schema','performance_schema'])",message="spec.bootstrap.database must not be mysql, sys, information_schema or performance_schema, which exist already: choose another name",fieldPath=".bootstrap"
// +kubebuilder:validation:XValidation:rule="self.engine != 'mysql' || !has(self.bootstrap.owner) || size(self.bootstrap.owner) <= 32 && self.bootstrap.owner != 'root' && !self.bootstrap.owner.startsWith('mysql')",message="spec.bootstrap.owner must have at most 32 characters with spec.engine mysql, and must not be root or start with mysql: choose another name",fieldPath=".bootstrap"
// +kubebuilder:validation:XValidation:rule="self.engine != 'mysql' || !has(self.tls) || !has(self.tls.certificateSecretRef)",message="MySQL shows clients the certificate that Holdfast makes, and no other yet: remove spec.tls.certificateSecretRef, and have clients trust ca.crt of the connection Secret",fieldPath=".tls"
// +kubebuilder:validation:XValidation:rule="!has(self.restore) || !has(self.bootstrap) || !has(self.bootstrap.__import__)",message="spec.restore and spec.bootstrap.import exclude each other: a cluster begins with a backup or with an import",fieldPath=".bootstrap"
// +kubebuilder:validation:XValidation:rule="self.engine != 'mysql' || !has(self.bootstrap) || !has(self.bootstrap.__import__)",message="spec.bootstrap.import is for PostgreSQL: remove it with spec.engine mysql",fieldPath=".bootstrap"
// +kubebuilder:validation:XValidation:rule="self.engine == 'postgres' || !has(self.tuning) || !has(self.tuning.mode) || self.tuning.mode != 'Apply'",message="spec.tuning.mode Apply is for PostgreSQL: use Recommend with spec.engine mysql, and commit what status.recommendations has",fieldPath=".tuning"
type DatabaseSpec struct {
	CommonSpec `json:",inline"`

	// Engine is the database system: postgres or mysql. A change is not followed: the
	// data of one engine is nothing to another.
	// +required
	Engine DatabaseEngine `json:"engine"`

	// Version of the database system, such as "17" of PostgreSQL or "9.7" of MySQL,
	// in quotes.
	// +required
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	Version DatabaseVersion `json:"version"`

	// Storage is the size of each member's volume, in bytes, such as 50Gi. It can
	// grow where the storage class allows it, and never shrinks. With autoGrow it
	// is the size that volumes begin with. Default: 10Gi.
	// +optional
	// +kubebuilder:default="10Gi"
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="must be a size in bytes, such as 50Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('64Mi')) >= 0",message="spec.storage must be at least 64Mi"
	Storage resource.Quantity `json:"storage,omitzero"`

	// StorageClass of members' volumes. Default: the cluster's default class. It
	// cannot change once volumes exist.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClass string `json:"storageClass,omitempty"`

	// AutoGrow lets volumes grow as they fill, where the storage class allows
	// it. All members' volumes grow together. Default: they stay as they are.
	// +optional
	AutoGrow *AutoGrowSpec `json:"autoGrow,omitempty"`

	// Parameters are settings of the database system by name, such as
	// max_connections: "200". Whole numbers may stand without quotes; fractions,
	// on and off must be in quotes. Settings that Holdfast owns are refused.
	// Default: none, the defaults of the engine's cluster.
	// +optional
	// +kubebuilder:validation:MaxProperties=128
	Parameters Parameters `json:"parameters,omitempty"`

	// Bootstrap is the first database. It is read only while no data exists:
	// afterwards the names that the data was made with stay in use. Default: the
	// database app of the owner app.
	// +optional
	// +kubebuilder:default:={}
	Bootstrap PostgresBootstrap `json:"bootstrap,omitempty"`
}

// DatabaseCluster names the cluster that runs a database.
type DatabaseCluster struct {
	// Kind of the cluster, such as PostgresCluster.
	Kind string `json:"kind"`
	// Name of the cluster: that of the Database.
	Name string `json:"name"`
}

// DatabaseStatus is the observed state of a database: that of the cluster that runs
// it. Its fields are what tools of other kinds read, too, and stay flat.
type DatabaseStatus struct {
	// ObservedGeneration is the newest generation of the spec that this status
	// speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Phase is a summary for people. No decision reads it.
	// +optional
	Phase string `json:"phase,omitempty"`

	// Conditions, kstatus-compatible: Ready, Reconciling, Stalled, Available,
	// Synced, Degraded, BackedUp.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Cluster that runs the database.
	// +optional
	Cluster *DatabaseCluster `json:"cluster,omitempty"`

	// Version of the database that members run.
	// +optional
	Version string `json:"version,omitempty"`

	// Replicas is the number of members.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// Ready is the number of members that serve, of those declared, such as 2/3.
	// +optional
	Ready string `json:"ready,omitempty"`

	// ReadyReplicas is the number of members that serve.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// Selector of members' pods, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`

	// Primary is the pod that takes writes.
	// +optional
	Primary string `json:"primary,omitempty"`

	// Endpoints that clients connect to.
	// +optional
	Endpoints *EndpointsStatus `json:"endpoints,omitempty"`

	// CredentialsSecret is the Secret that applications connect with.
	// +optional
	CredentialsSecret string `json:"credentialsSecret,omitempty"`

	// LastBackup is when the newest good backup was begun.
	// +optional
	LastBackup *metav1.Time `json:"lastBackup,omitempty"`

	// NextBackup is when the schedule makes the next one.
	// +optional
	NextBackup *metav1.Time `json:"nextBackup,omitempty"`

	// Restore is the restore that the database began with.
	// +optional
	Restore *RestoreStatus `json:"restore,omitempty"`

	// Import is the import that the database began with.
	// +optional
	Import *ImportStatus `json:"import,omitempty"`

	// DeletionPolicy is what deleting the Database does to its data now. It is
	// Delete from before the cluster is declared with it, until the cluster's own
	// status.deletionPolicy is Retain.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// Drift of the cluster that runs the database: what other clients changed of
	// its declaration.
	// +optional
	Drift *DriftStatus `json:"drift,omitempty"`

	// LastHandledReconcileAt is the value of the annotation
	// reconcile.fluxcd.io/requestedAt that was handled last.
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`
}

// Database is a database that a cluster of its engine runs. The cluster has its name
// and belongs to it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=db,categories={all,holdfast}
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Engine",type=string,JSONPath=`.spec.engine`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Synced",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Synced")].status`
// +kubebuilder:printcolumn:name="BackedUp",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="BackedUp")].status`
// +kubebuilder:printcolumn:name="Last Backup",type=date,priority=1,JSONPath=`.status.lastBackup`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must start with a letter, hold only lower-case letters, digits and dashes, and have at most 40 characters: pods and Services are named after it"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.bootstrap) || !has(self.spec.bootstrap.__import__) || (has(oldSelf.status) && has(oldSelf.status.__import__) && has(oldSelf.status.__import__.completionTime)) || (has(oldSelf.spec.bootstrap) && has(oldSelf.spec.bootstrap.__import__) && (self.spec.bootstrap.__import__ == oldSelf.spec.bootstrap.__import__ || has(oldSelf.status) && has(oldSelf.status.__import__) && has(oldSelf.status.__import__.error)))",message="spec.bootstrap.import cannot be added to a Database that began without it, nor change while it is under way: declare another Database, or wait until it is done or has failed",fieldPath=".spec.bootstrap"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.restore) || (has(oldSelf.status) && has(oldSelf.status.restore) ? has(oldSelf.spec.restore) && self.spec.restore == oldSelf.spec.restore || has(oldSelf.status.restore.completionTime) || has(oldSelf.status.restore.error) : has(oldSelf.spec.restore))",message="spec.restore cannot be added to a database that began without it, nor change while it is under way: declare another Database, or wait until it is done or has failed",fieldPath=".spec.restore"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.tls) || ['-ca','-tls','-internal','-app'].all(s, (!has(self.spec.tls.certificateSecretRef) || self.spec.tls.certificateSecretRef.name != self.metadata.name + s) && (!has(self.spec.tls.caSecretRef) || self.spec.tls.caSecretRef.name != self.metadata.name + s))",message="spec.tls must name Secrets of your own: those named after the Database with -ca, -tls, -internal and -app are Holdfast's"
type Database struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the database should be.
	// +required
	Spec DatabaseSpec `json:"spec"`

	// Status is what the database is.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status DatabaseStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions.
func (d *Database) GetConditions() []metav1.Condition { return d.Status.Conditions }

// SetConditions replaces the conditions.
func (d *Database) SetConditions(l []metav1.Condition) { d.Status.Conditions = l }

// DatabaseList is a list of Database.
//
// +kubebuilder:object:root=true
type DatabaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Database `json:"items"`
}
