package group

import (
	"slices"
	"strings"
)

// WithNewer is a record that was read from the Lease, with what a newer one has that is
// known: then the Lease was set back. All members of either may have acknowledged writes.
// The claim stays that of the Lease: one that is not on it counts for nothing.
func (r Record) WithNewer(known Record) Record {
	if known.Group != r.Group {
		return r
	}
	if known.Lineage.Number > r.Lineage.Number {
		r.Lineage = known.Lineage
	}
	if known.Revision > r.Revision {
		r = r.withEntries(known.Entries)
		r.Revision = known.Revision
	}
	return r
}

// withEntries adds the entries of servers that have none.
func (r Record) withEntries(entries []Entry) Record {
	for _, e := range entries {
		if _, found := r.Find(e.UUID); !found {
			r = r.withEntry(e)
		}
	}
	return r
}

// withReported is WithNewer by what the members have on their volumes that answer. Who was
// admitted to the group is on the volume of the primary of that time, which is a member of
// each earlier record: one that answers names all that must answer, or another one that
// knows more.
func (r Record) withReported(reports []Report) Record {
	merged, newest := r, r.Revision
	for _, p := range reports {
		known := p.readKnown()
		if known.Group != r.Group {
			continue
		}
		if known.Lineage.Number > merged.Lineage.Number {
			merged.Lineage = known.Lineage
		}
		if known.Revision > newest {
			newest = known.Revision
		}
	}
	for _, p := range reports {
		if known := p.readKnown(); known.Revision == newest && newest > r.Revision {
			merged = merged.WithNewer(known)
		}
	}
	return merged
}

// readKnown is the record on the volume of a member, as far as it reports that.
func (r Report) readKnown() Record {
	known := Record{Group: r.Group, Lineage: r.Lineage, Revision: r.Revision}
	for _, uuid := range r.Persisted {
		known.Entries = append(known.Entries, Entry{UUID: strings.ToLower(uuid)})
	}
	return known
}

// RestoreRecord is what the volumes of the members that answer have of a record that is
// lost: each of them names all that were in the group when it was read, or more. It is the
// zero value where the own volume has none.
func RestoreRecord(persisted Record, reports []Report) Record {
	if persisted.Group == "" {
		return Record{}
	}
	restored := persisted
	for _, r := range reports {
		if r.Group != persisted.Group {
			continue
		}
		known := r.readKnown()
		restored = restored.withEntries(known.Entries).WithNewer(known)
	}
	return restored
}

// listKnown are the UUIDs in a record, as a member reports them.
func listKnown(r Record) []string {
	var uuids []string
	for _, e := range r.Entries {
		uuids = append(uuids, e.UUID)
	}
	return slices.Clip(uuids)
}

// WithKnown is a member's report with the record on its volume.
func (r Report) WithKnown(persisted Record) Report {
	r.Persisted, r.Revision, r.Lineage = listKnown(persisted), persisted.Revision, persisted.Lineage
	return r
}
