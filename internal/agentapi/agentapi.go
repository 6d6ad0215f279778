// Package agentapi holds the wire types between a member's agent, its peers
// and the operator. What only one engine has is typed in postgresapi and
// etcdapi: a Status carries it as its Engine, a ClusterConfig embeds it. On the
// wire an object stays flat, so that agents and operators of different versions
// understand each other.
//
// Over mutual TLS, the agent answers a Status at StatusPath. With the query
// parameters after=<Status.Revision> and wait=<Go duration> it answers when the
// status has another revision, or when the wait is over. With FlushQuery=true a
// primary first flushes a record of its own, and says whether that succeeded.
// At InsightsPath it answers Insights, and at TuningPath Tuning.
// The common name of its certificate identifies a client: OperatorName for the
// operator, MemberName for the cluster's members; others are refused.
package agentapi

import "time"

// Ports of every member's pod.
const (
	// StatusPort serves StatusPath over mutual TLS.
	StatusPort = 8443
	// ProbePort serves /healthz, /readyz and /metrics in plain HTTP.
	ProbePort = 8080
)

// StatusPath answers a Status.
const StatusPath = "/status"

// FlushQuery is the query parameter at StatusPath that asks for Status.Flushed.
const FlushQuery = "flush"

// Common names of client certificates, all signed by the cluster's own CA.
const (
	OperatorName = "holdfast-operator"
	MemberName   = "holdfast-member"
	// CopierName is that of Jobs that copy a member, where their certificate is none
	// of those. Agents refuse it.
	CopierName = "holdfast-copier"
)

// Where the operator mounts what a member needs; read-only, kept fresh by the
// kubelet.
const (
	// ConfigFile holds a ClusterConfig as JSON.
	ConfigFile = "/etc/holdfast/config/cluster.json"
	// ConfigKey is its key in the ConfigMap <cluster>-config.
	ConfigKey = "cluster.json"
	// TLSDir holds tls.crt and tls.key (the member, both as server and as
	// client, common name MemberName) and ca.crt (a bundle of every CA that is
	// trusted). Where clients of the database are to see another certificate
	// it holds server.crt and server.key, and in server-ca.crt every CA that
	// verifies what they see: such a CA vouches for no member.
	TLSDir = "/etc/holdfast/tls"
	// CredentialsDir holds passwords, one file each, from <cluster>-internal.
	CredentialsDir = "/etc/holdfast/credentials"
	// DataDir is the mount point of the member's volume.
	DataDir = "/var/lib/holdfast"
	// BinDir is the emptyDir that holds the injected binary.
	BinDir = "/opt/holdfast"
	// RunDir is a writable emptyDir for sockets and temporary files.
	RunDir = "/run/holdfast"
)

// Environment variables that the operator sets on a member's container.
const (
	EnvPodName   = "POD_NAME"
	EnvPodUID    = "POD_UID"
	EnvPodIP     = "POD_IP"
	EnvNamespace = "POD_NAMESPACE"
	EnvNode      = "NODE_NAME"
	EnvCluster   = "HOLDFAST_CLUSTER"
	// EnvMemoryLimit is the container's memory limit in bytes, from the
	// downward API; the node's allocatable memory where there is no limit.
	EnvMemoryLimit = "HOLDFAST_MEMORY_LIMIT"
	// EnvMemoryRequest is the container's memory request in bytes; 0 for none.
	EnvMemoryRequest = "HOLDFAST_MEMORY_REQUEST"
	// EnvCPULimit is the container's CPU limit in millicores, rounded up.
	EnvCPULimit = "HOLDFAST_CPU_LIMIT"
)

// GrowthLead is how long before it would be full, at the rate at which it fills, a
// volume is to grow: that is what growing may take.
const GrowthLead = 2 * time.Minute
