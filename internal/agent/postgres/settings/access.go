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

// RenderHBA says who may connect: the agent and those who have a shell in the
// container by the socket, the members by their certificate, all others by
// password, all of them over TLS.
func RenderHBA() string {
	rules := [][]string{
		{"local", "all", "postgres", "", "peer map=" + localMap},
		{"local", "all", "all", "", "scram-sha-256"},
		{"hostssl", "replication", ReplicationRole, "all", "cert map=" + memberMap},
		{"host", "all", ReplicationRole, "all", "reject"},
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
// name to the replication role.
func RenderIdent(systemUser, memberName string) string {
	return fmt.Sprintf("%s %q postgres\n%s %q %s\n", localMap, systemUser, memberMap, memberName, ReplicationRole)
}
