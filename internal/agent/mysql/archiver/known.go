package archiver

import (
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

// load reads what is known of a place; found is false where nothing is.
func (k *known) load(volume string, p Place) (found bool, err error) {
	k.path, k.place, k.reach, k.held = filepath.Join(volume, knownName), placeKey(p), mysqlgtid.Set{}, false
	k.stored = knownFile{}
	var stored knownFile
	found, err = atomicfile.ReadJSON(k.path, &stored)
	if err != nil || !found || stored.Place != k.place {
		return false, err
	}
	k.held, k.stored = stored.Held, stored
	k.reach, err = mysqlgtid.Parse(stored.Reach)
	return err == nil, err
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
