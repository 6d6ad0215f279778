package archiver

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/binlogarchive"
	"github.com/holdfast-db/holdfast/internal/logarchive"
	"github.com/holdfast-db/holdfast/internal/store"
)

// Place is where the binlogs of whom go.
type Place struct {
	agentapi.ArchiveConfig
	Owner logarchive.Owner
}

// errUnknownPlace keeps what would otherwise pass for unwanted.
var errUnknownPlace = errors.New("it is not known yet where binlogs are archived")

// FindPlace returns where the binlogs of a group are archived by a configuration; nil where
// they are not.
func FindPlace(config *agent.Config, systemIdentifier string) (*Place, error) {
	switch {
	case config == nil || systemIdentifier == "":
		return nil, errUnknownPlace
	case config.Archive == nil:
		return nil, nil //nolint:nilnil // nowhere is no error
	}
	return &Place{*config.Archive, logarchive.Owner{
		Kind: config.Kind, Namespace: config.Namespace, Cluster: config.Name, ClusterUID: config.UID, SystemIdentifier: systemIdentifier,
	}}, nil
}

// destination is the archive that is open, with the place and the credentials that it was
// opened with.
type destination struct {
	credentialsDir string

	place   Place
	secret  store.Secret
	archive *binlogarchive.Archive
}

// prepare reads the credentials as they are now, and closes an archive that was opened with others,
// or at another place. It says whether none is open.
func (d *destination) prepare(place Place) (secret store.Secret, closed bool, err error) {
	secret, err = store.ReadSecret(d.credentialsDir)
	if err != nil {
		return nil, false, fmt.Errorf("read the credentials of the store: %w", err)
	}
	if place.Secret != "" && len(secret) == 0 {
		return nil, false, logarchive.Refuse("the Secret %s that backup.destination.credentialsSecretRef names is not there, or holds nothing: make it", place.Secret)
	}
	if d.archive != nil && d.place == place && maps.EqualFunc(d.secret, secret, func(a, b []byte) bool { return string(a) == string(b) }) {
		return secret, false, nil
	}
	d.close()
	return secret, true, nil
}

// openArchive opens an archive, only if it is this group's. It asks the store, which may hang.
func openArchive(ctx context.Context, place Place, secret store.Secret) (*binlogarchive.Archive, error) {
	archive, err := binlogarchive.Open(ctx, place.Store, place.Prefix, secret)
	if err != nil {
		return nil, err
	}
	archive.Store.Patience = store.Patience{} // the archiver has its own
	if err := archive.ClaimArchive(ctx, place.Owner); err != nil {
		return nil, errors.Join(err, archive.Close())
	}
	return archive, nil
}

func (d *destination) close() {
	if d.archive != nil {
		_ = d.archive.Close()
		d.archive = nil
	}
}

// trouble is why nothing is stored. The zero value is none.
type trouble struct {
	err       error
	class     string
	permanent bool
}

// record takes in another failure. What is said stays as it was first while the reason is the
// same: a store gives each of its errors a number.
func (t trouble) record(err error) trouble {
	class, permanent := logarchive.ClassifyError(err)
	if t.err != nil && t.class == class {
		return t
	}
	return trouble{err, class, permanent}
}
