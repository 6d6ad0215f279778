package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MySQLClusterSpec declares a MySQL cluster.
//
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || self.replicas % 2 == 1",message="spec.replicas must be odd: an even number of members bears no more failures than one less",fieldPath=".replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.backup) || !has(self.backup.walBudget) || !isQuantity(string(self.backup.walBudget)) || !isQuantity(string(self.storage.size)) || quantity(string(self.backup.walBudget)).add(quantity(string(self.backup.walBudget))).compareTo(quantity(string(self.storage.size))) <= 0",message="spec.backup.walBudget must be at most half of spec.storage.size: the data needs disk space, too",fieldPath=".backup.walBudget"
// +kubebuilder:validation:XValidation:rule="!has(self.restore) || !has(self.restore.target) || !has(self.restore.target.lsn) && !has(self.restore.target.name)",message="spec.restore.target.lsn and spec.restore.target.name are for PostgreSQL: use time, gtid or latest",fieldPath=".restore"
// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self.storage.size)) || quantity(string(self.storage.size)).compareTo(quantity('512Mi')) >= 0",message="spec.storage.size must be at least 512Mi: MySQL's own files and logs take half of that",fieldPath=".storage.size"
// +kubebuilder:validation:XValidation:rule="!has(self.resources) || !has(self.resources.limits) || !('memory' in self.resources.limits) || !isQuantity(string(self.resources.limits['memory'])) || quantity(string(self.resources.limits['memory'])).compareTo(quantity('1Gi')) >= 0",message="spec.resources.limits.memory must be at least 1Gi: with less, the kernel may kill MySQL under load",fieldPath=".resources"
// +kubebuilder:validation:XValidation:rule="!has(self.tls) || !has(self.tls.certificateSecretRef)",message="MySQL shows clients the certificate that Holdfast makes, and no other yet: remove spec.tls.certificateSecretRef, and have clients trust ca.crt of the connection Secret",fieldPath=".tls"
// +kubebuilder:validation:XValidation:rule="!has(self.tuning) || !has(self.tuning.mode) || self.tuning.mode != 'Apply'",message="spec.tuning.mode Apply is for PostgreSQL: use Recommend, and commit what status.recommendations has",fieldPath=".tuning"
type MySQLClusterSpec struct {
	CommonSpec `json:",inline"`

	// Version of MySQL: a series with long-term support, "8.4" or "9.7", or a patch
	// such as "9.7.4", in quotes. The image that the tag names when the first member
	// runs is kept until this is changed: see status.image. Within a series members
	// go to newer and to older patches. From 8.4 to 9.7 there is no way back.
	// +required
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == string",message="write the version in quotes, such as \"9.7\" or \"9.7.4\": without them YAML reads a number"
	// +kubebuilder:validation:XValidation:rule="type(self) != string || self.matches('^(8[.]4|9[.]7)([.](0|[1-9][0-9]?))?$')",message="must be a version of MySQL with long-term support: a series, \"8.4\" or \"9.7\", or a patch such as \"9.7.4\""
	Version string `json:"version"`

	// Storage is the volume of each member, of 512Mi at least.
	// +required
	Storage StorageSpec `json:"storage"`

	// Parameters are MySQL's system variables by name, such as
	// max_connections: "200". Whole numbers may stand without quotes; fractions,
	// ON and OFF must be in quotes. They go over defaults that are computed from
	// resources. Settings that Holdfast owns are refused. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 128 && k.matches('^[a-z][a-z0-9_]*$'))",messageExpression="'\"' + self.filter(k, size(k) > 128 || !k.matches('^[a-z][a-z0-9_]*$'))[0] + '\" is no name of a MySQL system variable: write it in lower case with underscores, such as max_connections'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, type(self[k]) != string || size(self[k]) <= 1024)",messageExpression="'spec.parameters.' + self.filter(k, type(self[k]) == string && size(self[k]) > 1024)[0] + ' is longer than 1024 characters: shorten it'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !(k in ['activate_mandatory_roles','authentication_policy','auto_generate_certs','auto_increment_increment','auto_increment_offset','basedir','bind_address','binlog_checksum','binlog_do_db','binlog_encryption','binlog_error_action','binlog_format','binlog_gtid_simple_recovery','binlog_ignore_db','binlog_order_commits','binlog_rotate_encryption_master_key_at_startup','binlog_row_event_max_size','character_sets_dir','chroot','console','core_file','create_admin_listener_thread','daemonize','datadir','default_storage_engine','early_plugin_load','enforce_gtid_consistency','external_locking','gdb','gtid_mode','gtid_next','gtid_purged','help','init_file','init_replica','init_slave','initialize','initialize_insecure','innodb_autoinc_lock_mode','innodb_buffer_pool_filename','innodb_checksum_algorithm','innodb_data_file_path','innodb_data_home_dir','innodb_dedicated_server','innodb_directories','innodb_doublewrite','innodb_doublewrite_dir','innodb_doublewrite_files','innodb_fast_shutdown','innodb_flush_log_at_timeout','innodb_flush_log_at_trx_commit','innodb_flush_method','innodb_force_load_corrupted','innodb_force_recovery','innodb_log_checksums','innodb_log_group_home_dir','innodb_page_size','innodb_read_only','innodb_redo_log_archive_dirs','innodb_redo_log_encrypt','innodb_temp_data_file_path','innodb_temp_tablespaces_dir','innodb_tmpdir','innodb_undo_directory','innodb_undo_log_encrypt','innodb_use_fdatasync','large_pages','lc_messages','lc_messages_dir','local_infile','log_bin','log_bin_index','log_error','log_error_services','log_replica_updates','log_slave_updates','log_tc','log_tc_size','log_timestamps','lower_case_table_names','max_relay_log_size','memlock','mysqlx','offline_mode','open_files_limit','partial_revokes','performance_schema','persisted_globals_load','pid_file','plugin_dir','plugin_load','plugin_load_add','port','port_open_timeout','read_only','relay_log','relay_log_index','relay_log_purge','relay_log_recovery','relay_log_space_limit','replica_exec_mode','replica_preserve_commit_order','report_host','report_password','report_port','report_user','secure_file_priv','server_id','server_id_bits','server_uuid','socket','super_large_pages','super_read_only','symbolic_links','sync_binlog','sync_master_info','sync_relay_log','sync_relay_log_info','sync_source_info','tc_heuristic_recover','tmpdir','upgrade','user','validate_config','verbose','version'] || k.matches('^(admin_|caching_sha2_password_|clone_|debug|group_replication_|keyring_|mysqlx_|ndb|persist_|replica_skip_|replicate_|slave_|sha256_password_|ssl_|tls_|performance_schema_consumer_)') && !(k in ['group_replication_transaction_size_limit','group_replication_flow_control_mode','group_replication_flow_control_applier_threshold','group_replication_flow_control_certifier_threshold','group_replication_compression_threshold','group_replication_recovery_compression_algorithms','ssl_session_cache_mode','ssl_session_cache_timeout','tls_ciphersuites','ssl_cipher']) || k.matches('^(loose|skip|disable|enable|maximum)_') && !(k in ['skip_show_database','enable_cascade_triggers','enable_secondary_engine_statistics','disabled_storage_engines'])))",messageExpression="'spec.parameters.' + self.filter(k, (k in ['activate_mandatory_roles','authentication_policy','auto_generate_certs','auto_increment_increment','auto_increment_offset','basedir','bind_address','binlog_checksum','binlog_do_db','binlog_encryption','binlog_error_action','binlog_format','binlog_gtid_simple_recovery','binlog_ignore_db','binlog_order_commits','binlog_rotate_encryption_master_key_at_startup','binlog_row_event_max_size','character_sets_dir','chroot','console','core_file','create_admin_listener_thread','daemonize','datadir','default_storage_engine','early_plugin_load','enforce_gtid_consistency','external_locking','gdb','gtid_mode','gtid_next','gtid_purged','help','init_file','init_replica','init_slave','initialize','initialize_insecure','innodb_autoinc_lock_mode','innodb_buffer_pool_filename','innodb_checksum_algorithm','innodb_data_file_path','innodb_data_home_dir','innodb_dedicated_server','innodb_directories','innodb_doublewrite','innodb_doublewrite_dir','innodb_doublewrite_files','innodb_fast_shutdown','innodb_flush_log_at_timeout','innodb_flush_log_at_trx_commit','innodb_flush_method','innodb_force_load_corrupted','innodb_force_recovery','innodb_log_checksums','innodb_log_group_home_dir','innodb_page_size','innodb_read_only','innodb_redo_log_archive_dirs','innodb_redo_log_encrypt','innodb_temp_data_file_path','innodb_temp_tablespaces_dir','innodb_tmpdir','innodb_undo_directory','innodb_undo_log_encrypt','innodb_use_fdatasync','large_pages','lc_messages','lc_messages_dir','local_infile','log_bin','log_bin_index','log_error','log_error_services','log_replica_updates','log_slave_updates','log_tc','log_tc_size','log_timestamps','lower_case_table_names','max_relay_log_size','memlock','mysqlx','offline_mode','open_files_limit','partial_revokes','performance_schema','persisted_globals_load','pid_file','plugin_dir','plugin_load','plugin_load_add','port','port_open_timeout','read_only','relay_log','relay_log_index','relay_log_purge','relay_log_recovery','relay_log_space_limit','replica_exec_mode','replica_preserve_commit_order','report_host','report_password','report_port','report_user','secure_file_priv','server_id','server_id_bits','server_uuid','socket','super_large_pages','super_read_only','symbolic_links','sync_binlog','sync_master_info','sync_relay_log','sync_relay_log_info','sync_source_info','tc_heuristic_recover','tmpdir','upgrade','user','validate_config','verbose','version'] || k.matches('^(admin_|caching_sha2_password_|clone_|debug|group_replication_|keyring_|mysqlx_|ndb|persist_|replica_skip_|replicate_|slave_|sha256_password_|ssl_|tls_|performance_schema_consumer_)') && !(k in ['group_replication_transaction_size_limit','group_replication_flow_control_mode','group_replication_flow_control_applier_threshold','group_replication_flow_control_certifier_threshold','group_replication_compression_threshold','group_replication_recovery_compression_algorithms','ssl_session_cache_mode','ssl_session_cache_timeout','tls_ciphersuites','ssl_cipher']) || k.matches('^(loose|skip|disable|enable|maximum)_') && !(k in ['skip_show_database','enable_cascade_triggers','enable_secondary_engine_statistics','disabled_storage_engines'])))[0] + ' is set by Holdfast and cannot be declared: remove it (docs/reference/mysqlcluster.md lists what Holdfast owns)'"
	Parameters Parameters `json:"parameters,omitempty"`

	// Bootstrap is the first database. It is read only while no data exists:
	// afterwards the names that the data was made with stay in use. A name that is
	// declared and is another one is reported as Stalled. Default: the database app
	// of the owner app.
	// +optional
	// +kubebuilder:default:={}
	Bootstrap MySQLBootstrap `json:"bootstrap,omitempty"`
}

// MySQLBootstrap is the first database of a new cluster.
type MySQLBootstrap struct {
	// Database to create. Default: app; where data exists already, the database
	// that it was made with.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z_][a-z0-9_]*$')",message="must be a MySQL name of lower-case letters, digits and underscores that does not start with a digit, such as app"
	// +kubebuilder:validation:XValidation:rule="!(self in ['mysql','sys','information_schema','performance_schema'])",message="spec.bootstrap.database must not be mysql, sys, information_schema or performance_schema, which exist already: choose another name"
	Database string `json:"database,omitempty"`

	// Owner is the account that may do everything in the database, and that
	// applications log in as. Default: app; where data exists already, the owner
	// that it was made with.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z_][a-z0-9_]*$')",message="must be a MySQL name of lower-case letters, digits and underscores that does not start with a digit, such as app"
	// +kubebuilder:validation:XValidation:rule="self != 'root' && !self.startsWith('mysql') && !self.startsWith('holdfast')",message="spec.bootstrap.owner must not be root, or start with mysql or holdfast: choose another name"
	Owner string `json:"owner,omitempty"`
}

// MySQLClusterStatus is the observed state of a MySQL cluster.
type MySQLClusterStatus struct {
	CommonStatus `json:",inline"`
}

// MySQLCluster is a group of MySQL servers (Group Replication) of which one, the
// primary, takes writes.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=my,categories={all,holdfast}
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
// +kubebuilder:validation:XValidation:rule="!has(self.spec.restore) || (has(oldSelf.status) && has(oldSelf.status.restore) ? has(oldSelf.spec.restore) && self.spec.restore == oldSelf.spec.restore || has(oldSelf.status.restore.completionTime) || has(oldSelf.status.restore.error) : has(oldSelf.spec.restore))",message="spec.restore cannot be added to a cluster that began without it, nor change while it is under way: declare another cluster, or wait until it is done or has failed",fieldPath=".spec.restore"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.tls) || ['-ca','-tls','-internal','-app'].all(s, (!has(self.spec.tls.certificateSecretRef) || self.spec.tls.certificateSecretRef.name != self.metadata.name + s) && (!has(self.spec.tls.caSecretRef) || self.spec.tls.caSecretRef.name != self.metadata.name + s))",message="spec.tls must name Secrets of your own: those named after the cluster with -ca, -tls, -internal and -app are Holdfast's"
type MySQLCluster struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the cluster should be.
	// +required
	Spec MySQLClusterSpec `json:"spec"`

	// Status is what the cluster is.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status MySQLClusterStatus `json:"status,omitempty"`
}

// MySQLClusterList is a list of MySQLCluster.
//
// +kubebuilder:object:root=true
type MySQLClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MySQLCluster `json:"items"`
}
