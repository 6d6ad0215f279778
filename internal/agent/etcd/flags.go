package etcd

import (
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// flags are etcd's settings by name, without dashes. They go on the command
// line rather than into a file: there etcd would skip a name that it does not
// know, and read a duration as a number.
type flags map[string]string

// start is what a first start or a recovery adds.
type start struct {
	// Data is the data directory.
	Data string
	// Alone has etcd listen on the loopback interface only.
	Alone bool
	// State, Cluster and Token are for an empty data directory.
	State, Token string
	Cluster      map[string]string
	// ForceNew drops all other members.
	ForceNew bool
	// Snapshot has etcd take a snapshot as soon as it can.
	Snapshot bool
}

// commandLine of etcd: computed settings, over them the user's, over them those
// that Holdfast needs.
func (o Options) commandLine(version release, s start, parameters map[string]string, limit int64) []string {
	all := defaultFlags(version, parameters)
	maps.Copy(all, parameters)
	maps.Copy(all, o.ownFlags(version, s, limit))
	var args []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "--"+name+"="+all[name])
	}
	return args
}

// release is a version of etcd, such as 3.6.
type release struct{ Major, Minor int }

// hasStableNames says whether the release has the names without "experimental-", and
// feature gates.
func (r release) hasStableNames() bool { return r.Major > 3 || r.Minor >= 6 }

// defaultFlags are what etcd's maintainers recommend and is not its default:
// members compare their data with the others' when they start and after each
// compaction.
func defaultFlags(version release, parameters map[string]string) flags {
	if !version.hasStableNames() {
		return flags{"experimental-initial-corrupt-check": "true", "experimental-compact-hash-check-enabled": "true"}
	}
	for name := range parameters {
		if strings.HasPrefix(name, experimental) {
			return flags{} // etcd takes gates or experimental flags, not both
		}
	}
	return flags{"feature-gates": "InitialCorruptCheck=true,CompactHashCheck=true"}
}

// ownFlags are those that Holdfast relies on.
func (o Options) ownFlags(version release, s start, limit int64) flags {
	host := o.ListenHost
	if s.Alone {
		host = "127.0.0.1"
	}
	at := func(scheme, host string, port int) string {
		return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port))
	}
	pod := o.Identity.Pod
	all := flags{
		"name":                        pod,
		"data-dir":                    s.Data,
		"listen-client-urls":          at("https", host, o.ClientPort),
		"listen-peer-urls":            at("https", host, o.PeerPort),
		"listen-metrics-urls":         at("http", "127.0.0.1", o.MetricsPort),
		"advertise-client-urls":       o.ClientURL(pod),
		"initial-advertise-peer-urls": o.PeerURL(pod),
		"initial-cluster":             pod + "=" + o.PeerURL(pod),
		"client-cert-auth":            "true",
		"trusted-ca-file":             o.trustFile(),
		"cert-file":                   filepath.Join(o.etcdTLSDir(), "server.crt"),
		"key-file":                    filepath.Join(o.etcdTLSDir(), "server.key"),
		"client-cert-file":            filepath.Join(o.etcdTLSDir(), "tls.crt"),
		"client-key-file":             filepath.Join(o.etcdTLSDir(), "tls.key"),
		"peer-client-cert-auth":       "true",
		"peer-trusted-ca-file":        o.trustFile(),
		"peer-cert-file":              filepath.Join(o.etcdTLSDir(), "tls.crt"),
		"peer-key-file":               filepath.Join(o.etcdTLSDir(), "tls.key"),
		// Applications have certificates of the same authority.
		"peer-cert-allowed-cn":  agentapi.MemberName,
		"strict-reconfig-check": "true",
		"logger":                "zap",
		"log-outputs":           "stderr",
	}
	// etcd would look a peer's address up backwards, and want the name that
	// comes back in the certificate. The common name says more.
	all[trimExperimental("experimental-peer-skip-client-san-verification", version)] = "true"
	if limit > 0 {
		all["quota-backend-bytes"] = strconv.FormatInt(limit, 10)
	}
	if s.ForceNew {
		all["force-new-cluster"] = "true"
	}
	if s.Snapshot {
		all["snapshot-count"] = "1"
	}
	if s.State != "" {
		all["initial-cluster-state"] = s.State
		all["initial-cluster"] = joinCluster(s.Cluster)
	}
	if s.Token != "" {
		all["initial-cluster-token"] = s.Token
	}
	return all
}

func joinCluster(peers map[string]string) string {
	var list []string
	for _, pod := range slices.Sorted(maps.Keys(peers)) {
		list = append(list, pod+"="+peers[pod])
	}
	return strings.Join(list, ",")
}

const experimental = "experimental-"

// trimExperimental returns the name that a flag which was once experimental has in a
// release.
func trimExperimental(name string, version release) string {
	if version.hasStableNames() {
		return strings.TrimPrefix(name, experimental)
	}
	return name
}

// Flags that Holdfast sets, or that would lead around what it sets.
var (
	ownNames = []string{
		"name", "data-dir", "wal-dir", "config-file", "version", "help", "h", "force-new-cluster", "unsafe-no-fsync",
		"strict-reconfig-check", "quota-backend-bytes", "cert-file", "key-file", "trusted-ca-file", "auto-tls",
		"client-cert-auth", "client-cert-file", "client-key-file", "self-signed-cert-validity",
		"advertise-client-urls", "initial-advertise-peer-urls", "initial-cluster", "initial-cluster-state", "initial-cluster-token",
		"logger", "log-outputs", "log-format", "enable-log-rotation", "log-rotation-config-json",
		"experimental-peer-skip-client-san-verification", "socket-reuse-port", "max-learners", "experimental-max-learners",
	}
	ownPrefixes = []string{"listen-", "peer-", "discovery", "proxy-"}
)

// findOwnParameters finds the declared parameters, by name, that are Holdfast's own.
func findOwnParameters(parameters map[string]string) map[string]string {
	found := map[string]string{}
	for name := range parameters {
		own := slices.Contains(ownNames, name) || slices.ContainsFunc(ownPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		switch {
		case own:
			found[name] = fmt.Sprintf("%s: is set by Holdfast", name)
		case strings.HasPrefix(name, "-") || strings.ContainsAny(name, "= \t\n"):
			found[name] = fmt.Sprintf("%q: a parameter is named without dashes", name)
		}
	}
	return found
}
