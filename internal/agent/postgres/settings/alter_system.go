package settings

import (
	"regexp"
	"slices"
	"strings"
)

// changeableWhileRunning are Holdfast's own settings that may change while the
// server runs, or wait for its next start. All others are arguments of the
// server, which neither ALTER SYSTEM nor a file in the data directory overrules.
var changeableWhileRunning = []string{
	"archive_command", "archive_mode", "max_replication_slots", "max_wal_senders", "primary_conninfo", "primary_slot_name", "superuser_reserved_connections",
	"allow_alter_system", // unknown before 17, and of no use as an argument
}

// neverSet are settings that Holdfast relies on to have their defaults, or that
// it gives the server otherwise.
var neverSet = []string{
	"archive_library", "config_file", "data_directory", "event_source", "external_pid_file", "promote_trigger_file",
	"recovery_target", "recovery_target_action", "recovery_target_inclusive", "recovery_target_lsn", "recovery_target_name",
	"recovery_target_time", "recovery_target_xid", "restore_command", "ssl_crl_dir", "ssl_crl_file", "unix_socket_group",
	"archive_cleanup_command",
	// A promotion waits for the first, and for what the second holds back.
	"recovery_end_command", "recovery_min_apply_delay",
	// After a failed fsync the kernel may report success for what it has dropped.
	"data_sync_retry",
}

// ServerArguments are the server's arguments.
func ServerArguments(in Input) map[string]string {
	s := ownSettings(in)
	for _, name := range changeableWhileRunning {
		delete(s, name)
	}
	if in.InPlace {
		delete(s, "synchronous_standby_names")
	}
	return s
}

// IsOwned says whether a setting is Holdfast's.
func IsOwned(name string) bool {
	name = strings.ToLower(name)
	_, own := ownSettings(Input{Major: 17})[name]
	return own || slices.Contains(neverSet, name)
}

var settingName = regexp.MustCompile(`^\s*"?([A-Za-z_][A-Za-z0-9_.$]*)"?\s*(?:=|\s)`)

// RemoveOwned is the text of a configuration file without the lines that set
// what Holdfast owns, and the names that these set.
func RemoveOwned(text string) (kept string, dropped []string) {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if match := settingName.FindStringSubmatch(line); match != nil && IsOwned(match[1]) {
			dropped = append(dropped, strings.ToLower(match[1]))
			continue
		}
		b.WriteString(line)
	}
	slices.Sort(dropped)
	return b.String(), slices.Compact(dropped)
}

// ReadValues reads the last value of settings in a configuration file that ALTER
// SYSTEM writes.
func ReadValues(text string, names []string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		match := settingName.FindStringSubmatch(line)
		if match == nil || !slices.Contains(names, strings.ToLower(match[1])) {
			continue
		}
		value := strings.TrimSpace(strings.TrimLeft(strings.TrimPrefix(line, match[0]), " \t="))
		if len(value) > 1 && value[0] == '\'' && value[len(value)-1] == '\'' {
			value = strings.ReplaceAll(value[1:len(value)-1], "''", "'")
		}
		values[strings.ToLower(match[1])] = value
	}
	return values
}

// RedactValue is the value of a setting for people: a connection or a command may
// hold a password.
func RedactValue(name, value string) string {
	if strings.HasSuffix(name, "conninfo") || strings.HasSuffix(name, "_command") {
		return "(not shown)"
	}
	return value
}

// AlterSystemFile holds settings that were made by ALTER SYSTEM on the source: ends of
// another recovery may be among them.
const AlterSystemFile = "postgresql.auto.conf"
