package agentapi

import (
	"encoding/json"
	"time"
)

// State is what a member is doing.
type State string

// The states of a member, in the order of a normal life.
const (
	// StateStarting: the agent is up, the database is not yet asked to run.
	StateStarting State = "Starting"
	// StateInitializing: the first member creates the database system.
	StateInitializing State = "Initializing"
	// StateWaiting: waits for a primary, for the Lease, or for a join grant.
	StateWaiting State = "Waiting"
	// StateCloning: copies the data directory from another member.
	StateCloning State = "Cloning"
	// StateRewinding: a former primary rewinds its data to that of its successor.
	StateRewinding State = "Rewinding"
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
	// HoldDataMissing: an empty volume in a cluster that was bootstrapped already,
	// with no member to clone from, or whose join grant was used for another volume.
	HoldDataMissing Hold = "DataMissing"
	// HoldSystemIdentifier: the data directory belongs to another database
	// system than the cluster's.
	HoldSystemIdentifier Hold = "SystemIdentifier"
	// HoldVolumeInUse: another process holds the lock on the volume.
	HoldVolumeInUse Hold = "VolumeInUse"
	// HoldDataUnknown: the volume holds files that are no data directory.
	HoldDataUnknown Hold = "DataUnknown"
	// HoldDataStale: the data of a member that would lead is older than what
	// the cluster's primary has recorded.
	HoldDataStale Hold = "DataStale"
	// HoldDataDiverged: a replica's data holds what its primary does not.
	HoldDataDiverged Hold = "DataDiverged"
	// HoldWALMissing: the WAL on the volume lacks the record that a start begins
	// with.
	HoldWALMissing Hold = "WALMissing"
	// HoldRemoved: the group has removed this member; its data is of no more
	// use, and is set aside as soon as a join grant admits the pod anew.
	HoldRemoved Hold = "Removed"
	// HoldVolumeFull: the volume is full, or has no space for the copy that is
	// to be made; nothing is started or copied until it grows.
	HoldVolumeFull Hold = "VolumeFull"
)

// Status is what a member reports of itself. On the wire it is one flat object, which
// operators and agents of different versions read: it has as many fields as there are
// things to report. The fields of Engine stand beside the others.
type Status struct {
	// Revision changes whenever anything else here does, Time, Position, DataSize
	// and Lag apart, and what moves all the time of Engine; VolumeUsed when it
	// passes a whole percent of VolumeSize, from half of it on, and VolumeSize when
	// its first digits change. Of Archive it follows what is wrong: Late, Error and
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
	// PendingRestart names the parameters that wait for a restart, sorted, and
	// what else of its engine does.
	PendingRestart []string `json:"pendingRestart,omitempty"`
	// WaitsForPrimary names the parameters, sorted, whose declared value a
	// replica may take up only when its primary runs with it: it would not
	// replay otherwise.
	WaitsForPrimary []string `json:"waitsForPrimary,omitempty"`
	// Position in the engine's log, comparable within one timeline: what a
	// primary has flushed, what a replica has replayed.
	Position uint64 `json:"position,omitempty"`
	// Flushed says that a primary has written a record and flushed it to its disk
	// since this question came, which asked for that with FlushQuery.
	Flushed bool `json:"flushed,omitempty"`
	// DataSize is what a copy of the data takes, in bytes and without its log;
	// at most a minute old, 0 while unknown. Of a cluster with a primary, only
	// the primary says it.
	DataSize int64 `json:"dataSize,omitempty"`
	// Recovered is the ID of the last request to the member that was carried out
	// here.
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
	// DiskSpaceNeeded is what must be free on the volume before a member goes on
	// that HoldVolumeFull holds, in bytes and rounded up.
	DiskSpaceNeeded int64 `json:"roomNeeded,omitempty"`
	// Lag of a replica, in seconds; 0 on a primary, -1 while unknown.
	Lag float64 `json:"lag"`
	// Archive says how the archiving of the WAL gets on; nil without one.
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
	// InsightsRevision changes when InsightsPath answers something that a status reports,
	// at most once in ten minutes; empty before the first.
	InsightsRevision string `json:"insightsRevision,omitempty"`
	// TuningRevision changes when TuningPath answers something new, at most once in ten
	// minutes; empty before the first.
	TuningRevision string `json:"tuningRevision,omitempty"`
	// Details that only one engine has.
	Details map[string]string `json:"details,omitempty"`

	// Engine is what only members of one engine report, in a type of that engine;
	// nil for nothing. Read it with ReadEngineStatus.
	Engine any `json:"-"`
}

// ReadEngineStatus is what the member of the engine with the type E alone reports;
// the zero value where nothing of that type is there.
func ReadEngineStatus[E any](s *Status) E {
	own, _ := s.Engine.(E)
	return own
}

// ChangeEngineStatus changes what the member of the engine with the type E alone
// reports. A copy of the status that was made before keeps what it had.
func ChangeEngineStatus[E any](s *Status, change func(*E)) {
	own := ReadEngineStatus[E](s)
	change(&own)
	s.Engine = own
}

// MarshalJSON writes the fields of Engine behind the others, in the same object.
func (s Status) MarshalJSON() ([]byte, error) {
	type general Status
	text, err := json.Marshal(general(s))
	if err != nil || s.Engine == nil {
		return text, err
	}
	own, err := json.Marshal(s.Engine)
	if err != nil || string(own) == "{}" {
		return text, err
	}
	return append(append(text[:len(text)-1], ','), own[1:]...), nil
}

// DecodeStatus reads the status of a member whose engine reports an E.
func DecodeStatus[E any](text []byte) (Status, error) {
	var s Status
	var own E
	if err := json.Unmarshal(text, &s); err != nil {
		return Status{}, err
	}
	if err := json.Unmarshal(text, &own); err != nil {
		return Status{}, err
	}
	s.Engine = own
	return s, nil
}
