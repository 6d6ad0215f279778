package archive

import (
	"errors"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// Place is where the WAL of whom goes.
type Place struct {
	agentapi.ArchiveConfig
	owner wal.Owner
}

// isSamePlace says whether the WAL lies at the same place, whatever the keys.
func (p Place) isSamePlace(as Place) bool {
	return p.Prefix == as.Prefix && p.Store == as.Store
}

// errUnknownPlace keeps what would otherwise pass for unwanted.
var errUnknownPlace = errors.New("it is not known yet where the WAL is archived")

// FindPlace returns where the WAL of a database system is archived by a
// configuration; nil where it is not.
func FindPlace(config *agent.Config, systemIdentifier string) (*Place, error) {
	switch {
	case config == nil:
		return nil, errUnknownPlace
	case config.Archive == nil:
		return nil, nil //nolint:nilnil // nowhere is no error
	case systemIdentifier == "":
		return nil, errUnknownPlace
	}
	return &Place{*config.Archive, wal.Owner{
		Kind: config.Kind, Namespace: config.Namespace, Cluster: config.Name, ClusterUID: config.UID, SystemIdentifier: systemIdentifier,
	}}, nil
}
