package postgres

import (
	"fmt"
	"net"
	"strings"
)

// slotPrefix marks the slots that are Holdfast's.
const slotPrefix = "holdfast_"

// slotName is the replication slot of a member: one to one, for pod names
// hold no underscore.
func slotName(pod string) string {
	return slotPrefix + strings.ReplaceAll(pod, "-", "_")
}

// upstream is the connection of a replica to its primary: by the pod's own
// name (at the address that the Lease gave, if it did), and by the read-write
// Service where that name is not known yet.
func upstream(o Options, primary, address, member string) string {
	var hosts, ports []string
	addresses := []string{address, ""}
	for _, address := range []string{o.DatabaseAddress(primary), o.ReadWriteAddress} {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			continue
		}
		hosts, ports = append(hosts, host), append(ports, port)
	}
	pairs := [][2]string{
		{"host", strings.Join(hosts, ",")},
		{"hostaddr", strings.Join(addresses[:len(hosts)], ",")},
		{"port", strings.Join(ports, ",")},
		{"user", replicationRole},
		{"application_name", member},
		{"sslmode", "verify-full"},
		{"sslcert", o.RunDir + "/tls/tls.crt"},
		{"sslkey", o.RunDir + "/tls/tls.key"},
		{"sslrootcert", o.RunDir + "/tls/roots.crt"},
		{"target_session_attrs", "read-write"},
		{"connect_timeout", "3"},
		{"keepalives_idle", "5"},
		{"keepalives_interval", "2"},
		{"keepalives_count", "2"},
		{"tcp_user_timeout", "9000"},
	}
	var b strings.Builder
	for i, pair := range pairs {
		if pair[0] == "hostaddr" && address == "" {
			continue
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s='%s'", pair[0], strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(pair[1]))
	}
	return b.String()
}

// trouble is what a replica's log says about why it cannot follow.
type trouble int

const (
	troubleNone trouble = iota
	// troubleCopy: only a new copy helps.
	troubleCopy
	// troubleAhead: the data holds what the primary does not.
	troubleAhead
	// troubleForeign: the primary is of another database system.
	troubleForeign
	// troubleRestart: the settings are below the primary's; a restart takes up
	// the new ones.
	troubleRestart
)

// troubles are the words of PostgreSQL 14 to 18.
var troubles = []struct {
	words   string
	trouble trouble
}{
	{"has already been removed", troubleCopy},
	{"can no longer get changes from replication slot", troubleCopy},
	{"can no longer access replication slot", troubleCopy},
	{"cannot read from physical replication slot", troubleCopy},
	{"is not in this server's history", troubleAhead},
	{"is behind recovery timeline", troubleAhead},
	{"before current recovery point", troubleAhead},
	{"requested timeline", troubleAhead},
	{"is ahead of the WAL flush position", troubleAhead},
	{"database system identifier differs between the primary and standby", troubleForeign},
	{"recovery has paused", troubleRestart},
}

// troubleIn reads one line of the server's log.
func troubleIn(line string) trouble {
	for _, t := range troubles {
		if strings.Contains(line, t.words) {
			return t.trouble
		}
	}
	return troubleNone
}
