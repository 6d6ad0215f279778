package group

import (
	"cmp"
	"slices"
	"strings"
)

// Record is what the members have recorded together, each change bound to the record
// that was read before it. It names every member that may have acknowledged a write, or
// more: a member records itself before it joins, and leaves the record only after it
// was out of the group.
type Record struct {
	// Group is the name of the group: the system identifier.
	Group string
	// Entries are sorted by UUID.
	Entries []Entry
	Boot    Boot
	Lineage Lineage
	// Revision is higher with each write: see Next. A Lease with a lower one than a volume
	// was set back.
	Revision int64
}

// Lineage is of the data since a person had the group go on without members that did not
// answer; the zero value where that never happened. The group numbers transactions under the
// lineage's name from then on: no later transaction has the number of one that is lost, so
// that data with lost transactions is known for ever.
type Lineage struct {
	// Number is higher with each lineage.
	Number int64
	// Name is a random UUID.
	Name string
}

// ReplicationName is the name by which servers are in one group, and which numbers their
// transactions.
func (r Record) ReplicationName() string { return cmp.Or(r.Lineage.Name, r.Group) }

// Next is the record to write: it is newer than each one that was read.
func (r Record) Next() Record {
	r.Revision++
	return r
}

// Entry is one member that may be in the group.
type Entry struct {
	// UUID of the server.
	UUID string
	Pod  string
	// Joining says that the member has recorded itself, and not been online since: it
	// may be in no view yet, and stays recorded.
	Joining bool
}

// Boot is the last claim to start the group anew after all its members were out of it.
type Boot struct {
	// Term is higher with each claim.
	Term int64
	UUID string
}

// Find the entry of a server.
func (r Record) Find(uuid string) (Entry, bool) {
	i := slices.IndexFunc(r.Entries, func(e Entry) bool { return strings.EqualFold(e.UUID, uuid) })
	if i < 0 {
		return Entry{}, false
	}
	return r.Entries[i], true
}

// IsOnly says whether the server is the only one recorded.
func (r Record) IsOnly(uuid string) bool {
	_, found := r.Find(uuid)
	return found && len(r.Entries) == 1
}

// withEntry replaces or adds the entry of a server.
func (r Record) withEntry(e Entry) Record {
	r.Entries = append(slices.DeleteFunc(slices.Clone(r.Entries), func(other Entry) bool { return strings.EqualFold(other.UUID, e.UUID) }), e)
	slices.SortFunc(r.Entries, func(a, b Entry) int { return cmp.Compare(a.UUID, b.UUID) })
	return r
}

// WithJoining is the record of a member that is about to join.
func (r Record) WithJoining(uuid, pod string) Record { return r.withEntry(Entry{uuid, pod, true}) }

// WithClaim is the record of a member that is about to start the group anew.
func (r Record) WithClaim(uuid string) Record {
	r.Boot = Boot{r.Boot.Term + 1, uuid}
	return r
}

// WithForcedClaim is WithClaim by a person's request: servers that did not answer are
// left behind. What only they acknowledged is lost. The group goes on under another name.
func (r Record) WithForcedClaim(self Report, answered []string, name string) Record {
	r.Group = self.Group
	r.Entries = slices.DeleteFunc(slices.Clone(r.Entries), func(e Entry) bool { return !slices.Contains(answered, e.UUID) })
	if _, found := r.Find(self.UUID); !found {
		r = r.WithJoining(self.UUID, self.Pod)
	}
	r.Lineage = Lineage{r.Lineage.Number + 1, name}
	return r.WithClaim(self.UUID)
}

// Settle is what a primary makes of the record: members that are online have joined,
// and those that joined and are out of the view are out of the record. A member that is
// joining stays.
//
// The view must be newer than the record: the primary reads the record, then has the
// group agree on something, then observes its view. See Client.Barrier. Otherwise a
// member that has joined since would be left out.
func (r Record) Settle(v View) Record {
	if !v.HasMajority() {
		return r
	}
	settled := r
	settled.Entries = nil
	for _, e := range r.Entries {
		m, present := v.Find(e.UUID)
		switch {
		case present && m.State == Online:
			e.Joining = false
		case !present && !e.Joining:
			continue
		}
		settled.Entries = append(settled.Entries, e)
	}
	for _, m := range v.Members {
		// One that joined without a record, by a person's hand.
		if _, found := settled.Find(m.UUID); !found {
			settled = settled.withEntry(Entry{UUID: m.UUID})
		}
	}
	return settled
}

// IsEqual says whether both records say the same.
func (r Record) IsEqual(other Record) bool {
	return r.Group == other.Group && r.Boot == other.Boot && r.Lineage == other.Lineage && r.Revision == other.Revision &&
		slices.Equal(r.Entries, other.Entries)
}

// WithoutGone is a settled record without members that are out of the view and never come
// back: those that gone names. One that recorded itself and never came to join stays
// otherwise, for its server may still come.
func (r Record) WithoutGone(v View, gone func(Entry) bool) Record {
	if !v.HasMajority() {
		return r
	}
	r.Entries = slices.DeleteFunc(slices.Clone(r.Entries), func(e Entry) bool {
		_, present := v.Find(e.UUID)
		return !present && gone(e)
	})
	return r
}
