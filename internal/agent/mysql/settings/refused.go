package settings

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// neverSet are settings that Holdfast relies on to have their defaults, beside those
// that it sets itself.
var neverSet = []string{
	// Paths and what starts the server.
	"basedir", "character_sets_dir", "chroot", "console", "core_file", "daemonize", "gdb", "init_file", "initialize", "initialize_insecure",
	"large_pages", "lc_messages", "lc_messages_dir", "log_error", "log_error_services", "memlock", "open_files_limit", "plugin_dir", "plugin_load",
	"early_plugin_load", "super_large_pages", "symbolic_links", "upgrade", "user", "validate_config", "verbose", "help", "version",
	// Fixed when the data is made, or where it lies.
	"innodb_data_file_path", "innodb_data_home_dir", "innodb_directories", "innodb_doublewrite_dir", "innodb_doublewrite_files",
	"innodb_log_group_home_dir", "innodb_page_size", "innodb_redo_log_archive_dirs", "innodb_temp_data_file_path",
	"innodb_temp_tablespaces_dir", "innodb_tmpdir", "innodb_undo_directory", "innodb_buffer_pool_filename", "innodb_dedicated_server",
	// What would lose or hide acknowledged writes.
	"innodb_checksum_algorithm", "innodb_log_checksums", "innodb_fast_shutdown", "innodb_force_load_corrupted", "innodb_force_recovery", "innodb_read_only",
	"innodb_flush_log_at_timeout", "innodb_flush_method", "innodb_use_fdatasync", "binlog_error_action", "binlog_gtid_simple_recovery",
	"tc_heuristic_recover", "log_tc", "log_tc_size", "log_bin_index", "binlog_order_commits",
	// With it a restart drops what was received and not applied, which other members may
	// have lost.
	"relay_log_recovery",
	// What would read or change other data on one member than on another.
	"auto_increment_increment", "auto_increment_offset", "binlog_format", "binlog_do_db", "binlog_ignore_db", "binlog_row_event_max_size", "binlog_encryption", "binlog_rotate_encryption_master_key_at_startup",
	"innodb_redo_log_encrypt", "innodb_undo_log_encrypt", "gtid_next", "gtid_purged", "init_replica", "init_slave", "log_slave_updates", "max_relay_log_size",
	"offline_mode", "read_only", "partial_revokes", "server_id_bits", "server_uuid", "skip_grant_tables", "skip_networking", "skip_slave_start",
	"relay_log_index", "relay_log_purge", "relay_log_space_limit", "report_user", "report_password", "sync_relay_log", "sync_relay_log_info",
	"sync_source_info", "sync_master_info", "authentication_policy", "activate_mandatory_roles",
	// What would hide from the agent how the group is, or that a member's data differs.
	"performance_schema", "replica_exec_mode",
	// What listens or is found elsewhere.
	"external_locking", "port_open_timeout", "create_admin_listener_thread",
}

// neverPrefixes begin the names of settings that are not declared.
var neverPrefixes = []string{
	"admin_", "caching_sha2_password_", "clone_", "debug", "group_replication_", "keyring_", "mysqlx_", "ndb", "persist_",
	"replica_skip_", "replicate_", "slave_", "sha256_password_", "ssl_", "tls_", "performance_schema_consumer_",
}

// tunable are settings of such a prefix that may be declared.
var tunable = []string{
	"group_replication_transaction_size_limit", "group_replication_flow_control_mode",
	"group_replication_flow_control_applier_threshold", "group_replication_flow_control_certifier_threshold",
	"group_replication_compression_threshold", "group_replication_recovery_compression_algorithms",
	"ssl_session_cache_mode", "ssl_session_cache_timeout", "tls_ciphersuites", "ssl_cipher",
}

// modifiers begin what the server reads as an option of another name.
var modifiers = []string{"loose_", "skip_", "disable_", "enable_", "maximum_"}

// ownNames begin with such a modifier and are names of their own.
var ownNames = []string{"skip_show_database", "enable_cascade_triggers", "enable_secondary_engine_statistics", "disabled_storage_engines"}

var (
	validName  = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	controlled = regexp.MustCompile(`[\x00-\x08\x0b\x0c\x0e-\x1f]`)
)

// maxValue is the longest value in bytes: MySQL reads lines of at most 4 KiB.
const maxValue = 1024

// FindRefusal says why a parameter cannot be declared, with the remedy; empty when it
// can. Whether MySQL takes the value, only MySQL knows.
func FindRefusal(name, value string) string {
	field := "spec.parameters." + name
	switch {
	case strings.Contains(name, "-") && validName.MatchString(strings.ReplaceAll(name, "-", "_")):
		return fmt.Sprintf("%s: write %s", field, strings.ReplaceAll(name, "-", "_"))
	case !validName.MatchString(name):
		return fmt.Sprintf("spec.parameters: %q is no name of a system variable: use lower-case letters, digits and underscores", name)
	case isOwned(name):
		return field + " is set by Holdfast and cannot be declared: remove it"
	case hasModifier(name):
		return field + " begins with a modifier: write the system variable's own name and its value"
	case len(value) > maxValue:
		return fmt.Sprintf("%s is longer than %d bytes: shorten it", field, maxValue)
	case controlled.MatchString(value):
		return field + " contains a control character: remove it"
	}
	return ""
}

func isOwned(name string) bool {
	if slices.Contains(tunable, name) {
		return false
	}
	if _, own := ownSettings(Input{GroupName: "x"})[name]; own || slices.Contains(neverSet, name) {
		return true
	}
	return slices.ContainsFunc(neverPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

func hasModifier(name string) bool {
	return !slices.Contains(ownNames, name) && slices.ContainsFunc(modifiers, func(m string) bool { return strings.HasPrefix(name, m) })
}
