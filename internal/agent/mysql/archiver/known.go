package archiver

import (
	"fmt"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// knownName is the file on the volume that says what the archive is known to reach. Without
// it, a member would take all of its binlogs for ones that wait, while the store does not
// answer.
const knownName = ".holdfast-archive.json"

// known is what the archive at a place is known to reach: what it holds, and what it is not to
// hold, from before it began. It only grows, but for files that the archive has lost.
type known struct {
	path  string
	place string
	reach mysqlgtid.Set
	// held says that the archive is known to have held files.
	held bool
	// stored is what is on the volume.
	stored knownFile
}

// knownFile is its form on the volume.
type knownFile struct {
	Place string `json:"place"`
	Reach string `json:"reach"`
	Held  bool   `json:"held,omitempty"`
}

func placeKey(p Place) string { return p.Store.URL + " " + p.Store.Endpoint + " " + p.Prefix }

// load reads what is known of a place; found is false where nothing is. Where it cannot be read,
// no place is known: an archive that seems to hold nothing would have files discarded.
func (k *known) load(volume string, p Place) (found bool, err error) {
	next := known{path: filepath.Join(volume, knownName), place: placeKey(p)}
	found, err = atomicfile.ReadJSON(next.path, &next.stored)
	if err != nil {
		return false, fmt.Errorf("read what the archive is known to hold: %w", err)
	}
	if found = found && next.stored.Place == next.place; found {
		if next.reach, err = mysqlgtid.Parse(next.stored.Reach); err != nil {
			return false, fmt.Errorf("read what the archive is known to hold: %s: %w", next.path, err)
		}
		next.held = next.stored.Held
	}
	*k = next
	return found, nil
}

// add takes in that the archive reaches more.
func (k *known) add(more mysqlgtid.Set) error { return k.set(k.reach.Union(more)) }

// set takes in how far the archive reaches, by what it holds.
func (k *known) set(reach mysqlgtid.Set) error {
	if next := (knownFile{k.place, reach.String(), k.held}); k.path != "" && next != k.stored {
		k.reach, k.stored = reach, next
		return atomicfile.WriteJSON(k.path, next)
	}
	return nil
}
