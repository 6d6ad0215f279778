package group

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
)

// recordFormat is the highest format of records that this agent reads and writes. A change
// that an earlier agent must not lose by writing a record again needs the next number. The
// first format knows no lineage; a record without one has it.
const recordFormat = 2

// ErrRecordFormat says that a record was written by a newer agent. It is left as it is.
var ErrRecordFormat = errors.New("the record of the group was written by a newer agent")

// recordForm is the form of a Record: on the Lease, and on each member's volume.
type recordForm struct {
	Format  int         `json:"format"`
	Group   string      `json:"group"`
	Entries []entryForm `json:"members"`
	Term    int64       `json:"bootTerm,omitempty"`
	Booted  string      `json:"bootMember,omitempty"`
	// Lineage is its number, and Name that of the lineage.
	Lineage  int64  `json:"lineage,omitempty"`
	Name     string `json:"replicationName,omitempty"`
	Revision int64  `json:"revision,omitempty"`
}

type entryForm struct {
	UUID    string `json:"serverUUID"`
	Pod     string `json:"pod,omitempty"`
	Joining bool   `json:"joining,omitempty"`
}

// FormatRecord writes a record as text.
func FormatRecord(r Record) (string, error) {
	text, err := json.Marshal(newRecordForm(r))
	return string(text), err
}

func newRecordForm(r Record) recordForm {
	f := recordForm{
		Format: 1, Group: r.Group, Term: r.Boot.Term, Booted: r.Boot.UUID,
		Lineage: r.Lineage.Number, Name: r.Lineage.Name, Revision: r.Revision,
	}
	if r.Lineage != (Lineage{}) {
		f.Format = recordFormat
	}
	for _, e := range r.Entries {
		f.Entries = append(f.Entries, entryForm(e))
	}
	return f
}

// ParseRecord reads a record; of no text the zero value. One that contradicts itself is an
// error: no member starts or joins by it.
func ParseRecord(text string) (Record, error) {
	if text == "" {
		return Record{}, nil
	}
	var f recordForm
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return Record{}, fmt.Errorf("the record of the group: %w", err)
	}
	return f.read()
}

func (f recordForm) read() (Record, error) {
	switch {
	case f.Format > recordFormat:
		return Record{}, fmt.Errorf("%w: format %d", ErrRecordFormat, f.Format)
	case f.Format < 1:
		return Record{}, errors.New("the record of the group names no format")
	case f.Group == "":
		return Record{}, errors.New("the record of the group names no group")
	case f.Term < 0 || (f.Term == 0) != (f.Booted == ""):
		return Record{}, fmt.Errorf("the record of the group: term %d of %q", f.Term, f.Booted)
	case f.Lineage < 0 || (f.Lineage == 0) != (f.Name == ""):
		return Record{}, fmt.Errorf("the record of the group: lineage %d of the name %q", f.Lineage, f.Name)
	case f.Revision < 0:
		return Record{}, fmt.Errorf("the record of the group: revision %d", f.Revision)
	}
	r := Record{Group: f.Group, Boot: Boot{f.Term, f.Booted}, Lineage: Lineage{f.Lineage, f.Name}, Revision: f.Revision}
	for _, e := range f.Entries {
		if _, twice := r.Find(e.UUID); twice || e.UUID == "" || e.UUID != strings.ToLower(e.UUID) {
			return Record{}, fmt.Errorf("the record of the group: member %q", e.UUID)
		}
		r = r.withEntry(Entry(e))
	}
	return r, nil
}

// LoadRecord reads the record on a volume; the zero value where there is none.
func LoadRecord(path string) (Record, error) {
	var f recordForm
	found, err := atomicfile.ReadJSON(path, &f)
	if err != nil || !found {
		return Record{}, err
	}
	return f.read()
}

// SaveRecord replaces the record on a volume, durably; not one of a newer agent.
func SaveRecord(path string, r Record) error {
	if _, err := LoadRecord(path); errors.Is(err, ErrRecordFormat) {
		return err
	}
	return atomicfile.WriteJSON(path, newRecordForm(r))
}
