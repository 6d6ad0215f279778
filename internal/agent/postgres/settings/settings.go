package settings

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/internal/loginsight"
)

// Resources of the container.
type Resources struct {
	MemoryLimit, MemoryRequest int64 // bytes
	CPU                        int64 // millicores
}

// Input is what the settings are computed from.
type Input struct {
	Major      int
	Member     string // pod
	Cluster    string
	Port       int
	RunDir     string
	VolumeSize int64
	Resources  Resources
	// Parameters as the user declared them.
	Parameters map[string]string
	// Floors that a standby must not go below; nil for a primary.
	Floors map[string]int64
	// Upstream is a standby's primary_conninfo; empty for a primary.
	Upstream string
	// Archive is the command that archives a file of the WAL; empty for none.
	Archive string
	// InPlace says that the role and the quorum change while the server runs, so
	// that synchronous_standby_names is no argument of it.
	InPlace bool
	// SynchronousNames is synchronous_standby_names; empty for none.
	SynchronousNames string
	// Promoting says that the server is about to be promoted: replay does not wait
	// for readers.
	Promoting bool
}

const (
	mebibyte = int64(1) << 20
	gibibyte = int64(1) << 30
)

// ComputeSettings are all of PostgreSQL's settings that are not its own defaults:
// computed ones, over them the user's, over them those that Holdfast needs.
func ComputeSettings(in Input) map[string]string {
	s := defaultSettings(in)
	if in.Archive != "" {
		s["archive_timeout"] = "5min"
	}
	if preloads(in.Parameters, "pg_stat_statements") {
		// Utility statements carry passwords, and would be kept with their text.
		s["pg_stat_statements.track_utility"] = "off"
	}
	maps.Copy(s, in.Parameters)
	for _, name := range neverSet {
		delete(s, name) // declared before the spec refused it
	}
	for name, floor := range in.Floors {
		if wanted, err := strconv.ParseInt(s[name], 10, 64); err != nil || wanted < floor {
			s[name] = strconv.FormatInt(floor, 10)
		}
	}
	maps.Copy(s, ownSettings(in))
	return s
}

// preloads says whether the server loads a library when it starts. The list may have quotes
// and paths.
func preloads(parameters map[string]string, library string) bool {
	for _, name := range strings.Split(parameters["shared_preload_libraries"], ",") {
		name = strings.Trim(strings.TrimSpace(name), `"`)
		if strings.TrimSuffix(name[strings.LastIndex(name, "/")+1:], ".so") == library {
			return true
		}
	}
	return false
}

// HeldBack are the settings, sorted, that a standby keeps above what is
// declared because its primary has not come down yet.
func HeldBack(in Input) []string {
	wanted := in
	wanted.Floors = nil
	now, then := ComputeSettings(in), ComputeSettings(wanted)
	var names []string
	for name := range in.Floors {
		if now[name] != then[name] && then[name] != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// defaultSettings follow the member's memory, processors and volume. Memory
// settings that are taken at the start follow the request where there is one,
// for that is what the member surely has.
func defaultSettings(in Input) map[string]string {
	memory := usableMemory(in.Resources)
	volume := in.VolumeSize
	if volume <= 0 {
		volume = 10 * gibibyte
	}
	cpus := max(1, (in.Resources.CPU+999)/1000)
	const connections = 100
	buffers := ClampValue(memory/4, 32*mebibyte, 16*gibibyte)
	return map[string]string{
		"max_connections":              strconv.Itoa(connections),
		"max_worker_processes":         strconv.FormatInt(max(8, cpus), 10),
		"max_wal_senders":              "20",
		"max_replication_slots":        "20",
		"max_prepared_transactions":    "0",
		"max_locks_per_transaction":    "64",
		"max_parallel_workers":         strconv.FormatInt(max(8, cpus), 10),
		"shared_buffers":               FormatMegabytes(buffers),
		"effective_cache_size":         FormatMegabytes(ClampValue(memory*3/4, 64*mebibyte, 1024*gibibyte)),
		"work_mem":                     FormatMegabytes(ClampValue((memory-buffers)/(connections*4), 1*mebibyte, 64*mebibyte)),
		"maintenance_work_mem":         FormatMegabytes(ClampValue(memory/16, 16*mebibyte, 2*gibibyte)),
		"max_wal_size":                 FormatMegabytes(ClampValue(volume/10, 64*mebibyte, 16*gibibyte)),
		"min_wal_size":                 FormatMegabytes(ClampValue(volume/50, 32*mebibyte, 1*gibibyte)),
		"max_slot_wal_keep_size":       FormatMegabytes(ClampValue(volume/5, 64*mebibyte, 1024*gibibyte)),
		"wal_keep_size":                FormatMegabytes(ClampValue(volume/50, 16*mebibyte, 512*mebibyte)),
		"wal_compression":              "on",
		"checkpoint_timeout":           "15min",
		"random_page_cost":             "1.1",
		"hot_standby_feedback":         "on",
		"wal_receiver_timeout":         "10s",
		"wal_sender_timeout":           "10s",
		"wal_receiver_status_interval": "1s",
		"wal_retrieve_retry_interval":  "500ms",
		"tcp_keepalives_idle":          "30",
		"tcp_keepalives_interval":      "5",
		"tcp_keepalives_count":         "3",
		"timezone":                     "UTC",
		"log_timezone":                 "UTC",
		"log_line_prefix":              loginsight.PostgresPrefix,
		"log_checkpoints":              "off",
		"datestyle":                    "iso, mdy",
		"default_text_search_config":   "pg_catalog.english",
	}
}

// ExplainUnreadLog says why the server's text log cannot be read with the user's
// parameters; empty where it can. Another prefix may have parts that a client chooses.
func ExplainUnreadLog(parameters map[string]string) string {
	for name, value := range parameters {
		if strings.EqualFold(name, "log_line_prefix") && value != loginsight.PostgresPrefix {
			return "spec.parameters.log_line_prefix is declared: remove it, so that lines begin with what is read"
		}
	}
	return ""
}

// reservedConnections are for superusers alone, of whom the agent is one with a
// handful of sessions.
const reservedConnections = 5

// ownSettings are those that Holdfast relies on.
func ownSettings(in Input) map[string]string {
	s := map[string]string{
		"listen_addresses":          "*",
		"port":                      strconv.Itoa(in.Port),
		"unix_socket_directories":   in.RunDir,
		"unix_socket_permissions":   "0770",
		"hba_file":                  in.RunDir + "/pg_hba.conf",
		"ident_file":                in.RunDir + "/pg_ident.conf",
		"ssl":                       "on",
		"ssl_cert_file":             in.RunDir + "/tls/server.crt",
		"ssl_key_file":              in.RunDir + "/tls/server.key",
		"ssl_ca_file":               in.RunDir + "/tls/ca.crt",
		"ssl_min_protocol_version":  "TLSv1.2",
		"password_encryption":       "scram-sha-256",
		"wal_level":                 "replica",
		"hot_standby":               "on",
		"wal_log_hints":             "on",
		"full_page_writes":          "on",
		"fsync":                     "on",
		"synchronous_standby_names": in.SynchronousNames,
		"archive_mode":              "off",
		"archive_command":           "true", // what still archives until it is restarted
		"restart_after_crash":       "on",
		"cluster_name":              in.Member,
		"logging_collector":         "off",
		"log_destination":           "stderr",
		"lc_messages":               "C", // the agent reads messages
		"recovery_target_timeline":  "latest",
		"primary_conninfo":          in.Upstream,
		"primary_slot_name":         "",
	}
	// Slots for the agent's own sessions: a server without a free one for others
	// is alive.
	if most, err := strconv.ParseInt(in.Parameters["max_connections"], 10, 64); err != nil || most > 4*reservedConnections {
		s["superuser_reserved_connections"] = strconv.FormatInt(max(reservedConnections, wantedInt(in, "superuser_reserved_connections")), 10)
	}
	for name, least := range map[string]int64{"max_wal_senders": 20, "max_replication_slots": 20} {
		s[name] = strconv.FormatInt(max(least, wantedInt(in, name)), 10)
	}
	if in.Archive != "" {
		// A replica keeps what is not archived, too: it may have to take over.
		s["archive_mode"], s["archive_command"] = "always", in.Archive
	}
	if in.Upstream != "" {
		s["primary_slot_name"] = SlotName(in.Member)
	}
	if in.Promoting {
		s["max_standby_streaming_delay"], s["max_standby_archive_delay"] = "0", "0"
	}
	if in.Major >= 17 {
		s["allow_alter_system"] = "off"
	}
	return s
}

func wantedInt(in Input, name string) int64 {
	wanted, _ := strconv.ParseInt(in.Parameters[name], 10, 64)
	return max(wanted, in.Floors[name])
}

// usableMemory is the request where there is one, at most the limit. A limit
// without a request may be the whole node's: a part of it is taken.
func usableMemory(r Resources) int64 {
	switch {
	case r.MemoryRequest > 0 && r.MemoryLimit > 0:
		return min(r.MemoryRequest, r.MemoryLimit)
	case r.MemoryRequest > 0:
		return r.MemoryRequest
	case r.MemoryLimit > 0:
		return min(r.MemoryLimit, 512*mebibyte)
	default:
		return 512 * mebibyte
	}
}

// ClampValue returns n, or the limit that it is beyond.
func ClampValue(n, least, most int64) int64 { return min(max(n, least), most) }

// FormatMegabytes writes a number of bytes as PostgreSQL reads it, rounded down.
func FormatMegabytes(n int64) string { return strconv.FormatInt(n/mebibyte, 10) + "MB" }
