package settings

import (
	"fmt"
	"net"
	"strings"
)

// SlotPrefix marks the slots that are Holdfast's.
const SlotPrefix = "holdfast_"

// SlotName is the replication slot of a member: one to one, for pod names
// hold no underscore.
func SlotName(pod string) string {
	return SlotPrefix + strings.ReplaceAll(pod, "-", "_")
}

// streamID is how much of a volume's ID is in the name of its stream, in characters: with
// the longest name of a pod, PostgreSQL takes it whole.
const streamID = 16

// StreamName is the application_name of the stream that a pod receives on a volume. A pod
// of the same name on another volume never has the same. Without a volume it is the pod's,
// as that of agents which know of no other name.
func StreamName(pod, volume string) string {
	if volume == "" {
		return pod
	}
	return pod + "_" + volume[:min(len(volume), streamID)]
}

// PrimaryConnection is the connection of a replica to its primary: by the pod's
// own name (at the address that the Lease gave, if it did), and by the read-write
// Service where that name is not known yet.
type PrimaryConnection struct {
	// Pod's own address and ReadWrite, that of the Service, are host:port; the
	// latter may be empty.
	Pod, ReadWrite string
	// IP that the Lease gave; may be empty.
	IP string
	// Member that connects, and RunDir, which holds its certificate.
	Member, RunDir string
	// Application that connects; the member's pod if it is empty.
	Application string
	// Role that it connects as; ReplicationRole if it is empty.
	Role string
	// Database that it connects to; empty for replication.
	Database string
}

// RewindApplication is a former primary that is being rewound.
const RewindApplication = "holdfast_rewind"

// ForRewind is the connection by which the member reads the primary's files.
func (c PrimaryConnection) ForRewind() PrimaryConnection {
	c.Application, c.Role, c.Database = RewindApplication, RewindRole, AgentDatabase
	c.ReadWrite = "" // it may lead to another member
	return c
}

// RewoundApplication is the stream of data that was rewound, and is not consistent yet. Its
// name is in no synchronous_standby_names: its member has no vote that a commit could count
// on.
const RewoundApplication = "holdfast_rewound"

// ForRewound is the connection by which data that was rewound receives what makes it
// consistent.
func (c PrimaryConnection) ForRewound() PrimaryConnection {
	c.Application = RewoundApplication
	return c
}

// nameRole is the role of the connection.
func (c PrimaryConnection) nameRole() string {
	if c.Role != "" {
		return c.Role
	}
	return ReplicationRole
}

// CopyApplication is a copy of the data that is being made. Its name is in no
// synchronous_standby_names: a copy flushes what it receives, and is no standby.
const CopyApplication = "holdfast_copy"

// nameApplication is the application_name of the connection.
func (c PrimaryConnection) nameApplication() string {
	if c.Application != "" {
		return c.Application
	}
	return c.Member
}

func (c PrimaryConnection) String() string {
	var hosts, ports []string
	addresses := []string{c.IP, ""}
	for _, address := range []string{c.Pod, c.ReadWrite} {
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
		{"user", c.nameRole()},
		{"dbname", c.Database},
		{"application_name", c.nameApplication()},
		{"sslmode", "verify-full"},
		{"sslcert", c.RunDir + "/tls/tls.crt"},
		{"sslkey", c.RunDir + "/tls/tls.key"},
		{"sslrootcert", c.RunDir + "/tls/roots.crt"},
		{"target_session_attrs", "read-write"},
		{"connect_timeout", "3"},
		{"keepalives_idle", "5"},
		{"keepalives_interval", "2"},
		{"keepalives_count", "2"},
		{"tcp_user_timeout", "9000"},
	}
	var b strings.Builder
	for i, pair := range pairs {
		if pair[0] == "hostaddr" && c.IP == "" || pair[0] == "dbname" && c.Database == "" {
			continue
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s='%s'", pair[0], strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(pair[1]))
	}
	return b.String()
}
