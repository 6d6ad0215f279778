package agentapi

import (
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// ClusterConfig is the configuration that the operator gives to the members. It travels in the
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
	// Parameters are the engine's settings by name, as the user declared them, or as they are
	// tuned.
	Parameters map[string]string `json:"parameters,omitempty"`
	// Tuned are the names of those that are tuned, and not declared, sorted: a member that
	// refuses a declared one does not keep what was tuned before.
	Tuned []string `json:"tuned,omitempty"`
	// SystemIdentifier is the one that status and volumes record: while it is
	// set, an empty data directory is never initialized as a new database.
	SystemIdentifier string `json:"systemIdentifier,omitempty"`
	// Fresh says that the cluster has nothing from before its object: no
	// recorded system identifier, and no volume that is older. A Lease that an earlier cluster of the name
	// left behind then says nothing.
	Fresh bool `json:"fresh,omitempty"`
	// FirstDatabase is what new data of PostgreSQL and of MySQL is made with.
	postgresapi.FirstDatabase
	// VolumeSize of a member, in bytes; settings are derived from it.
	VolumeSize int64 `json:"volumeSize,omitempty"`
	etcdapi.GroupConfig
	postgresapi.RequestConfig
	postgresapi.FailoverConfig
	mysqlapi.ReplicationConfig
	// Archive is where the WAL goes, all the time; nil for nowhere.
	Archive *ArchiveConfig `json:"archive,omitempty"`
}
