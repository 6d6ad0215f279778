package settings

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Port of the server: clients, the group and clones use the same one.
const Port = 3306

// Input is what the settings are computed from.
type Input struct {
	// Host by which the other members reach this one; it stands in its certificate.
	Host string
	// Port, or 0 for the usual one.
	Port int
	// ServerID of the member: see ServerID.
	ServerID uint32
	// GroupName is the UUID of the group; empty while none is bootstrapped.
	GroupName string
	// Seeds are the addresses of all members, each with its port.
	Seeds []string
	// RunDir holds the socket and temporary files, DataDir the data, and CertificateDir
	// ca.crt, server.crt and server.key.
	RunDir, DataDir, CertificateDir string
	// VolumeSize in bytes; 0 when it is not known.
	VolumeSize int64
	Memory     Memory
	// Parameters as the user declared them.
	Parameters map[string]string
	// Archives says that binlogs are archived: the agent purges them then.
	Archives bool
	// Isolated says that no client and no member may reach the server.
	Isolated bool
}

// ServerID is the number of a member in the binlogs. Members of different clusters
// have different ones, so that one may replicate from the other.
func ServerID(clusterUID string, ordinal int) uint32 {
	const members = 16 // more than a group may have
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(clusterUID))
	return max(1, sum.Sum32()>>4)*members + uint32(ordinal%members)
}

const (
	mebibyte = int64(1) << 20
	gibibyte = int64(1) << 30
)

// ComputeSettings are all of MySQL's settings that are not its own defaults: computed
// ones, over them the user's, over them those that Holdfast needs. Names have
// underscores.
func ComputeSettings(in Input) map[string]string {
	s := defaultSettings(in)
	for name, value := range in.Parameters {
		if FindRefusal(name, value) == "" { // declared before the spec refused it
			s[name] = value
		}
	}
	maps.Copy(s, ownSettings(in))
	if in.Archives {
		s["binlog_expire_logs_auto_purge"] = "OFF"
	}
	if in.Isolated {
		s["skip_networking"] = "ON"
	}
	return s
}

// defaultSettings follow the member's memory and volume.
func defaultSettings(in Input) map[string]string {
	volume := in.VolumeSize
	if volume <= 0 {
		volume = 10 * gibibyte
	}
	s := memorySettings(in.Memory)
	maps.Copy(s, map[string]string{
		"innodb_redo_log_capacity":   formatBytes(clampValue(volume/20, 96*mebibyte, 4*gibibyte)),
		"max_binlog_size":            formatBytes(clampValue(volume/100, 16*mebibyte, 256*mebibyte)),
		"binlog_expire_logs_seconds": "86400",
		"default_time_zone":          "+00:00",
		"disabled_storage_engines":   "MyISAM,BLACKHOLE,FEDERATED,ARCHIVE,MEMORY",
		"log_error_verbosity":        "2",
		"sql_require_primary_key":    "ON",
	})
	return s
}

// ownSettings are those that Holdfast relies on.
func ownSettings(in Input) map[string]string {
	port := in.Port
	if port == 0 {
		port = Port
	}
	s := map[string]string{
		"datadir":           in.DataDir,
		"socket":            SocketPath(in.RunDir),
		"pid_file":          in.RunDir + "/mysqld.pid",
		"tmpdir":            in.RunDir,
		"port":              strconv.Itoa(port),
		"bind_address":      "*",
		"mysqlx":            "OFF",
		"secure_file_priv":  "NULL",
		"local_infile":      "OFF",
		"skip_name_resolve": "ON",
		"log_timestamps":    "UTC",
		// Nothing but the file holds settings, so that the file says what runs.
		"persisted_globals_load": "OFF",
		"plugin_load_add":        strings.Join([]string{"auth_socket.so", "group_replication.so", "mysql_clone.so"}, ";"),

		"ssl_ca":              in.CertificateDir + "/ca.crt",
		"ssl_cert":            in.CertificateDir + "/server.crt",
		"ssl_key":             in.CertificateDir + "/server.key",
		"tls_version":         "TLSv1.2,TLSv1.3",
		"auto_generate_certs": "OFF",
		// Keys for passwords without TLS would lie beside the data.
		"caching_sha2_password_auto_generate_rsa_keys": "OFF",
		"sha256_password_auto_generate_rsa_keys":       "OFF",

		// What was acknowledged is on the disk, and comes back in the order of commits.
		"innodb_flush_log_at_trx_commit": "1",
		"sync_binlog":                    "1",
		"innodb_doublewrite":             "ON",
		"replica_preserve_commit_order":  "ON",

		"server_id":                strconv.FormatUint(uint64(in.ServerID), 10),
		"report_host":              in.Host,
		"report_port":              strconv.Itoa(port),
		"gtid_mode":                "ON",
		"enforce_gtid_consistency": "ON",
		"log_bin":                  "binlog",
		"log_replica_updates":      "ON",
		"binlog_checksum":          "CRC32",
		"relay_log":                "relay",
		"skip_replica_start":       "ON",
		"super_read_only":          "ON",
		"default_storage_engine":   "InnoDB",
		"innodb_autoinc_lock_mode": "2",
		"lower_case_table_names":   "0",
	}
	maps.Copy(s, cloneSettings(in))
	maps.Copy(s, groupSettings(in, port))
	return s
}

func cloneSettings(in Input) map[string]string {
	return map[string]string{
		"clone_ssl_ca":             in.CertificateDir + "/ca.crt",
		"clone_ssl_cert":           in.CertificateDir + "/server.crt",
		"clone_ssl_key":            in.CertificateDir + "/server.key",
		"clone_enable_compression": "OFF",
	}
}

// groupSettings are those of the group's plugin. It never starts by itself: the
// agent decides about that.
func groupSettings(in Input, port int) map[string]string {
	const prefix = "group_replication_"
	s := map[string]string{
		prefix + "start_on_boot":                    "OFF",
		prefix + "bootstrap_group":                  "OFF",
		prefix + "communication_stack":              "MYSQL",
		prefix + "local_address":                    fmt.Sprintf("%s:%d", in.Host, port),
		prefix + "group_seeds":                      strings.Join(in.Seeds, ","),
		prefix + "ssl_mode":                         "VERIFY_IDENTITY",
		prefix + "recovery_use_ssl":                 "ON",
		prefix + "recovery_ssl_verify_server_cert":  "ON",
		prefix + "recovery_ssl_ca":                  in.CertificateDir + "/ca.crt",
		prefix + "recovery_ssl_cert":                in.CertificateDir + "/server.crt",
		prefix + "recovery_ssl_key":                 in.CertificateDir + "/server.key",
		prefix + "single_primary_mode":              "ON",
		prefix + "enforce_update_everywhere_checks": "OFF",
		prefix + "consistency":                      "BEFORE_ON_PRIMARY_FAILOVER",
		prefix + "exit_state_action":                "OFFLINE_MODE",
		// A member that is lost for this long is expelled, and one without a majority
		// leaves: the agent brings it back.
		prefix + "member_expel_timeout":         "0",
		prefix + "unreachable_majority_timeout": "5",
		prefix + "autorejoin_tries":             "0",
		prefix + "message_cache_size":           strconv.FormatInt(messageCache, 10),
		// Sets of GTIDs stay contiguous.
		prefix + "gtid_assignment_block_size": "1",
		// Never by itself over data: see the accounts of the server package.
		prefix + "clone_threshold": strconv.FormatInt(maxThreshold, 10),
	}
	if in.GroupName != "" {
		s[prefix+"group_name"] = in.GroupName
	}
	return s
}

// maxThreshold is the largest that MySQL takes, more than the transactions of any
// group.
const maxThreshold = int64(^uint64(0) >> 1)

// SocketPath is where a server with that run directory listens.
func SocketPath(runDir string) string { return runDir + "/mysqld.sock" }

// clampValue returns n, or the limit that it is beyond.
func clampValue(n, least, most int64) int64 { return min(max(n, least), most) }

// formatBytes writes a number of bytes, rounded down to a mebibyte. A plain number is
// right in the file and in SET GLOBAL.
func formatBytes(n int64) string { return strconv.FormatInt(n/mebibyte*mebibyte, 10) }

// sortedNames of settings.
func sortedNames(s map[string]string) []string { return slices.Sorted(maps.Keys(s)) }
