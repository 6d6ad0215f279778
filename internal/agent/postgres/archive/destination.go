package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/holdfast-db/holdfast/internal/store"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// destination is the archive that is open, with the place and the credentials that it
// was opened with.
type destination struct {
	log *slog.Logger
	// credentialsDir holds the credentials of the store.
	credentialsDir string
	// ledger learns which archive is open.
	ledger *ledger

	mu      sync.Mutex
	opened  Place
	secret  store.Secret
	archive *wal.Archive
}

// openArchive makes the archive ready: with the credentials as they are now, and only
// if it is this database system's.
func (d *destination) openArchive(ctx context.Context, place Place) (*wal.Archive, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	secret, err := store.ReadSecret(d.credentialsDir)
	if err != nil {
		return nil, fmt.Errorf("read the credentials of the store: %w", err)
	}
	if place.Secret != "" && len(secret) == 0 {
		return nil, &wal.Refusal{Message: "the Secret " + place.Secret + " that backup.destination.credentialsSecretRef names is not there, or holds nothing: make it"}
	}
	if d.archive != nil && d.opened == place && maps.EqualFunc(d.secret, secret, func(a, b []byte) bool { return string(a) == string(b) }) {
		return d.archive, nil
	}
	if d.archive != nil {
		_ = d.archive.Close()
		d.archive = nil
		d.ledger.forgetArchive()
	}
	archive, err := wal.Open(ctx, place.Store, place.Prefix, secret)
	if err != nil {
		return nil, err
	}
	archive.Store.Patience, archive.Log = store.Patience{}, d.log // the archiver has its own patience
	if err := archive.ClaimArchive(ctx, place.owner); err != nil {
		return nil, errors.Join(err, archive.Close())
	}
	gaps, err := archive.ListGaps(ctx)
	if err != nil {
		return nil, errors.Join(err, archive.Close())
	}
	d.archive, d.opened, d.secret = archive, place, secret
	d.ledger.recordOpened(archive, place, gaps)
	return archive, nil
}
