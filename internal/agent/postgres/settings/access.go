package settings

import (
	"fmt"
	"strings"
)

// Names in the maps between system names and roles.
const (
	localMap  = "holdfast_local"
	memberMap = "holdfast_member"
)

// ReplicationRole streams, with the members' certificate.
const ReplicationRole = "holdfast_replication"

// RewindRole reads files of a primary's data directory, with the members' certificate:
// a former primary is rewound to it.
const RewindRole = "holdfast_rewind"

// AgentDatabase is the database of the agent's sessions, and that in which RewindRole
// may read files.
const AgentDatabase = "postgres"

// RenderHBA says who may connect: the agent and those who have a shell in the
// container by the socket, the members by their certificate, all others by
// password, all of them over TLS.
func RenderHBA() string {
	rules := [][]string{
		{"local", "all", "postgres", "", "peer map=" + localMap},
		{"local", "all", "all", "", "scram-sha-256"},
		{"hostssl", "replication", ReplicationRole, "all", "cert map=" + memberMap},
		{"hostssl", AgentDatabase, RewindRole, "all", "cert map=" + memberMap},
		{"host", "all", ReplicationRole, "all", "reject"},
		{"host", "all", RewindRole, "all", "reject"},
		{"host", "all", "postgres", "all", "reject"},
		{"hostssl", "all", "all", "all", "scram-sha-256"},
		{"host", "all", "all", "all", "reject"},
		{"host", "replication", "all", "all", "reject"},
	}
	var b strings.Builder
	for _, rule := range rules {
		fmt.Fprintln(&b, strings.Join(rule, " "))
	}
	return b.String()
}

// RenderIdent maps the container's user to postgres and the members' common
// name to the roles that members connect as.
func RenderIdent(systemUser, memberName string) string {
	text := fmt.Sprintf("%s %q postgres\n", localMap, systemUser)
	for _, role := range []string{ReplicationRole, RewindRole} {
		text += fmt.Sprintf("%s %q %s\n", memberMap, memberName, role)
	}
	return text
}
