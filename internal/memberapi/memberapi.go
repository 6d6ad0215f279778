// Package memberapi holds the wire types between a member's agent, its peers
// and the operator. It knows no engine: what only one engine has stands in
// Details.
//
// Over mutual TLS, the agent answers a Status at StatusPath, and engines with
// timelines a WALComparison at ComparisonPath. With the query parameters after=<Status.Revision> and wait=<Go
// duration> it answers when the status has another revision, or when the wait
// is over. Clients are told apart by the common name of their certificate:
// OperatorName for the operator, MemberName for the cluster's members; others
// are refused.
package memberapi

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

// ComparisonPath answers a WALComparison, for the query parameters timeline,
// from and to, in decimal, on a member that leads. Timeline 0 asks for the part
// as the member has it, whatever timeline that is of.
const ComparisonPath = "/wal-comparison"

// ComparisonMost is the most WAL, in bytes, that is compared at once.
const ComparisonMost = 4 << 30

// Common names of client certificates, all signed by the cluster's own CA.
const (
	OperatorName = "holdfast-operator"
	MemberName   = "holdfast-member"
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

// ClusterConfig is what the operator tells the members. It travels in the
// ConfigMap <cluster>-config, which agents watch and also find mounted.
type ClusterConfig struct {
	// APIVersion, Kind, Namespace, Name and UID of the cluster's object.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	// Members are the pods of the current members, by ordinal.
	Members []string `json:"members"`
	// DeletionPolicy of the cluster: under Delete what agents made, such as the
	// Lease, goes with it.
	DeletionPolicy string `json:"deletionPolicy,omitempty"`
	// Parameters are the engine's settings by name, as the user declared them.
	Parameters map[string]string `json:"parameters,omitempty"`
	// SystemIdentifier is the birth latch as the operator knows it from status
	// and volumes: while it is set, an empty data directory is never
	// initialised as a new database.
	SystemIdentifier string `json:"systemIdentifier,omitempty"`
	// Fresh says that the cluster has nothing from before its object: no latch,
	// and no volume that is older. A Lease that an earlier cluster of the name
	// left behind then says nothing.
	Fresh bool `json:"fresh,omitempty"`
	// FirstDatabase is what new data is made with, by engines that have such.
	FirstDatabase
	// VolumeSize of a member, in bytes; settings are derived from it.
	VolumeSize int64 `json:"volumeSize,omitempty"`
	// DataLimit is the size in bytes that an engine with a quota of its own lets
	// its data grow to; 0 for the engine's default.
	DataLimit int64 `json:"dataLimit,omitempty"`
	// Tickets admit members whose volume is empty, by pod; see Ticket.
	Tickets map[string]Ticket `json:"tickets,omitempty"`
	// Recovery is the order to go on without a lost majority; see Recovery.
	Recovery *Recovery `json:"recovery,omitempty"`
	// OlderData is the request to go on with older data; see OlderDataRequest.
	OlderData *OlderDataRequest `json:"olderData,omitempty"`
	// Archive is where the log goes, all the time; nil for nowhere.
	Archive *ArchiveConfig `json:"archive,omitempty"`
}

// OlderDataRequest asks one member that is held for HoldDataBehind to go on with
// the data that it has, on a new timeline. Of a member that is not held so it
// asks nothing.
type OlderDataRequest struct {
	// ID of the request; one is carried out once, and is then the member's
	// Status.Recovered.
	ID string `json:"id"`
	// Pod of the member.
	Pod string `json:"pod"`
}

// FirstDatabase is the database that applications use, and its owner.
type FirstDatabase struct {
	Database string `json:"database,omitempty"`
	Owner    string `json:"owner,omitempty"`
}

// Details of a primary whose engine has a FirstDatabase.
const (
	// DetailDatabase and DetailOwner are the first database and its owner as
	// the data itself records them.
	DetailDatabase = "database"
	DetailOwner    = "owner"
	// DetailAbsent names what of the first database and its owner does not
	// exist.
	DetailAbsent = "absent"
)

// GrowthLead is how long before it would be full, at the rate at which it fills, a
// volume is to grow: that is what growing may take.
const GrowthLead = 2 * time.Minute

// State is what a member is doing.
type State string

// The states of a member, in the order of a normal life.
const (
	// StateStarting: the agent is up, the database is not yet asked to run.
	StateStarting State = "Starting"
	// StateInitializing: the first member creates the database system.
	StateInitializing State = "Initializing"
	// StateWaiting: waits for a primary, for the Lease, or for a ticket.
	StateWaiting State = "Waiting"
	// StateCloning: copies the data directory from another member.
	StateCloning State = "Cloning"
	// StateRecovering: the database replays what it has before it serves.
	StateRecovering State = "Recovering"
	// StateCatchingUp: follows, and is behind its limit of lag; or has no vote
	// in its group yet.
	StateCatchingUp State = "CatchingUp"
	// StateStreaming: a replica that follows within its limit of lag.
	StateStreaming State = "Streaming"
	// StateRunning: a primary that takes writes; a member of a group that
	// serves.
	StateRunning State = "Running"
	// StateDisconnected: a replica that runs and receives nothing; a member
	// whose group has no leader.
	StateDisconnected State = "Disconnected"
	// StateHung: the database runs and accepts no new connection. Its agent
	// starts it again when that lasts, unless it waits for its disk.
	StateHung State = "Hung"
	// StateStopping: the member is shutting down.
	StateStopping State = "Stopping"
	// StateHeld: the agent refuses to start the database until a person or
	// the operator changes something; Hold and Message say why.
	StateHeld State = "Held"
	// StateFailed: the database does not start, or crashed; it is tried again.
	StateFailed State = "Failed"
)

// Hold is why an agent refuses to start its database.
type Hold string

// The holds.
const (
	// HoldDataVersion: the data is of a version that this one does not take
	// over.
	HoldDataVersion Hold = "DataVersion"
	// HoldDataMissing: an empty volume in a cluster that was born already,
	// with nobody to clone from, or whose ticket was used for another volume.
	HoldDataMissing Hold = "DataMissing"
	// HoldSystemIdentifier: the data directory belongs to another database
	// system than the cluster's.
	HoldSystemIdentifier Hold = "SystemIdentifier"
	// HoldVolumeInUse: another process holds the lock on the volume.
	HoldVolumeInUse Hold = "VolumeInUse"
	// HoldDataUnknown: the volume holds files that are no data directory.
	HoldDataUnknown Hold = "DataUnknown"
	// HoldDataBehind: the data of a member that would lead is older than what
	// the cluster's primary has recorded.
	HoldDataBehind Hold = "DataBehind"
	// HoldDataAhead: a replica's data holds what its primary does not.
	HoldDataAhead Hold = "DataAhead"
	// HoldRemoved: the group has removed this member; its data is of no more
	// use, and is set aside as soon as a ticket admits the pod anew.
	HoldRemoved Hold = "Removed"
	// HoldVolumeFull: the volume is full, or has no room for the copy that is
	// to be made; nothing is started or copied until it grows.
	HoldVolumeFull Hold = "VolumeFull"
)

// WALComparison says what a member's WAL has to do with a part of another's.
type WALComparison struct {
	// Timeline and Position of the member itself.
	WALPoint
	// Descends says that the timeline asked for is the member's, or one before
	// it, which it left at Left; 0 where it has not.
	Descends bool   `json:"descends,omitempty"`
	Left     uint64 `json:"left,omitempty"`
	// Sum is the SHA-256, in hex, of the part; empty where the member does not
	// hold all of it any more, or not yet.
	Sum string `json:"sum,omitempty"`
}

// WALPoint is a position in the WAL of a timeline.
type WALPoint struct {
	Timeline int64  `json:"timeline"`
	Position uint64 `json:"position"`
}

// Status is what a member says of itself.
type Status struct {
	// Revision changes whenever anything else here does, Time, Position, WALEnd,
	// PositionOld, DataSize, DataInUse and Lag apart, VolumeUsed when it passes
	// a whole percent of VolumeSize, from half of it on, and VolumeSize when its
	// first digits change. Of Archive it follows what is wrong: Late, Error and
	// Gap, and Oldest while it is late. Opaque.
	Revision string `json:"revision"`
	// Time when the status was taken, by the member's clock.
	Time time.Time `json:"time"`
	// Pod and PodUID of the member, so that an answer of a pod's predecessor
	// is never mistaken for it.
	Pod    string `json:"pod"`
	PodUID string `json:"podUID"`
	// AgentVersion is the version of the holdfast binary.
	AgentVersion string `json:"agentVersion"`
	// Role as in the label holdfast.dev/role: primary, replica or member.
	Role string `json:"role"`
	// State of the member.
	State State `json:"state"`
	// Hold is set when State is StateHeld.
	Hold Hold `json:"hold,omitempty"`
	// Message explains State to a person; no secrets, no numbers that move.
	Message string `json:"message,omitempty"`
	// Version of the database, such as 17.4; of the binaries while it is down.
	Version string `json:"version,omitempty"`
	// DataVersion is the version that served the data on the volume last, of
	// engines that keep it beside the data: known before the database runs.
	// Empty without data, and while no version has served it.
	DataVersion string `json:"dataVersion,omitempty"`
	// SystemIdentifier of the data on the volume; empty without data.
	SystemIdentifier string `json:"systemIdentifier,omitempty"`
	// Serving says whether the database answers queries.
	Serving bool `json:"serving"`
	// DownSince is when Serving was true last, or when the agent started where it
	// never was; zero while it is true, and of agents that do not say it.
	DownSince time.Time `json:"downSince,omitzero"`
	// Failures counts the failures in a row since Serving was true last: starts of
	// the database that came to nothing, and the crash before them.
	Failures int `json:"failures,omitempty"`
	// ConfigHash is HashConfig of the ClusterConfig that the member has taken
	// up in full.
	ConfigHash string `json:"configHash,omitempty"`
	// ConfigError says which parameter the database refuses, and why; the
	// last good settings stay in force.
	ConfigError string `json:"configError,omitempty"`
	// PendingRestart names the parameters that wait for a restart, sorted;
	// PendingTrust, PendingLimit and PendingLog among them.
	PendingRestart []string `json:"pendingRestart,omitempty"`
	// WaitsForPrimary names the parameters, sorted, whose declared value a
	// replica may take up only when its primary runs with it: it would not
	// replay otherwise.
	WaitsForPrimary []string `json:"waitsForPrimary,omitempty"`
	// Source is the pod that a replica follows.
	Source string `json:"source,omitempty"`
	// Timeline of the data; 0 while unknown.
	Timeline int64 `json:"timeline,omitempty"`
	// Position in the engine's log, comparable within one timeline: what a
	// primary has flushed, what a replica has replayed.
	Position uint64 `json:"position,omitempty"`
	// PositionOld says that a primary could not look at its position for this
	// answer: the log may go further by now.
	PositionOld bool `json:"positionOld,omitempty"`
	// DataSize is what a copy of the data takes, in bytes and without its log;
	// at most a minute old, 0 while unknown. Of a cluster with a primary, only
	// the primary says it.
	DataSize int64 `json:"dataSize,omitempty"`
	// DataInUse is what of DataSize holds data: an engine that says it gives
	// the rest back only when it is told to.
	DataInUse int64 `json:"dataInUse,omitempty"`
	// DataLimit is the quota in bytes that is in force; 0 for none.
	DataLimit int64 `json:"dataLimit,omitempty"`
	// DataFill is DataSize as a share of DataLimit, and DataUnused what of
	// DataSize is not in use, in percent and rounded down to steps of five, so
	// that the steps alone make a new revision. DataUnused stays 0 while that
	// is less than 16 MiB.
	DataFill   int `json:"dataFill,omitempty"`
	DataUnused int `json:"dataUnused,omitempty"`
	// Alarms that the engine has raised anywhere in the cluster, by its own
	// names, each followed by a colon and the ID of the member; sorted.
	Alarms []string `json:"alarms,omitempty"`
	// Group is the membership as this member sees it; nil without one.
	Group *Group `json:"group,omitempty"`
	// LostMember is the ID of the member that this pod was, and can never be
	// again because its data has gone: the group must remove it before it
	// admits the pod anew. Together with HoldDataMissing.
	LostMember string `json:"lostMember,omitempty"`
	// WALEnd is how far the WAL on the member's volume goes, of an engine with
	// timelines: of a replica, what it has received. It is nil while that is
	// not known, and zero of a volume without data.
	WALEnd *WALPoint `json:"walEnd,omitempty"`
	// Recovered is the token of the last Recovery, or the ID of the last
	// OlderDataRequest, that was carried out here.
	Recovered string `json:"recovered,omitempty"`
	// VolumeSize and VolumeUsed are of the file system on the member's volume,
	// in bytes; 0 while unknown. What only root may fill counts as used.
	VolumeSize int64 `json:"volumeSize,omitempty"`
	VolumeUsed int64 `json:"volumeUsed,omitempty"`
	// VolumeRate is how fast VolumeUsed has grown of late, in bytes per second; 0
	// while it does not, or is not known. It changes Revision only where the
	// volume would be full within GrowthLead.
	VolumeRate int64 `json:"volumeRate,omitempty"`
	// DiskFull says that files on the member's volume cannot grow for want of
	// disk space: writes of a database that runs there fail.
	DiskFull bool `json:"diskFull,omitempty"`
	// RoomNeeded is what must be free on the volume before a member goes on
	// that HoldVolumeFull holds, in bytes and rounded up.
	RoomNeeded int64 `json:"roomNeeded,omitempty"`
	// Lag of a replica, in seconds; 0 on a primary, -1 while unknown.
	Lag float64 `json:"lag"`
	// Archive says how the archiving of the log gets on; nil without one.
	Archive *ArchiveStatus `json:"archive,omitempty"`
	// CertificateExpiry is when the first of the certificates expires that the
	// member serves now.
	CertificateExpiry time.Time `json:"certificateExpiry,omitzero"`
	// CertificateSerial of the member's certificate as it is served now, in hex.
	CertificateSerial string `json:"certificateSerial,omitempty"`
	// TrustHash is HashConfig of the bundle of trusted authorities that the
	// database runs with, where it takes up another one only at its start.
	TrustHash string `json:"trustHash,omitempty"`
	// TLSHash names the files of TLSDir that are in use: see HashTLS. An agent
	// that does not say it knows nothing of server.crt.
	TLSHash string `json:"tlsHash,omitempty"`
	// Details that only one engine has.
	Details map[string]string `json:"details,omitempty"`
}
