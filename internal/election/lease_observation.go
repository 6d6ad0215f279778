package election

import (
	"slices"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// leaseObservation is the Lease as the member last read or wrote it.
type leaseObservation struct {
	expiry   lease.Expiry
	version  lease.Version
	record   lease.Record
	readable bool // the record is there, valid, and not older than what is known
	missing  bool
}

// hasExpired reports whether the Lease was observed for its duration without a renewal.
func (l leaseObservation) hasExpired(t lease.Timing) bool { return l.expiry.HasExpired(l.version, t) }

// isFree reports whether the member itself observed that the Lease may be claimed.
func (l leaseObservation) isFree(t lease.Timing) bool {
	return l.readable && (l.record.IsReleased() || l.hasExpired(t))
}

// isFreeForForce is isFree for a member that a person named. The Lease may then be
// lost, edited or older than it was.
func (l leaseObservation) isFreeForForce(t lease.Timing) bool {
	return l.isFree(t) || l.expiry.IsLost(t) || l.hasExpired(t)
}

// isInQuorum reports whether the volume's vote is one of the mandatory ones.
func (l leaseObservation) isInQuorum(volume string) bool {
	return l.record.Quorum != nil && slices.Contains(l.record.Quorum.Volumes, volume)
}

// countReading counts a reading towards the expiry.
func (l *leaseObservation) countReading(r lease.Reading, t lease.Timing) {
	l.expiry = l.expiry.RecordReading(r, t)
}

// recordAbsence records an answer without a Lease. An outage says nothing of the
// record that was read before.
func (l *leaseObservation) recordAbsence(a lease.Answer) {
	l.missing = a == lease.Missing
	l.readable = l.readable && a == lease.Unanswered
}

// recordReading records what the Lease says, and returns why that cannot be so if
// another record was known before; empty if the record is readable.
func (l *leaseObservation) recordReading(r lease.Reading, known lease.Record) (reason string) {
	l.version, l.record, l.readable, l.missing = r.Version, r.Record, false, false
	if err := r.Record.Validate(); err != nil {
		return err.Error()
	}
	if contradiction := r.Record.Contradicts(known); contradiction != "" {
		return contradiction + ": it was edited, or the API server was restored to an earlier state"
	}
	l.readable = true
	return ""
}

// recordWrite records what the member itself wrote.
func (l *leaseObservation) recordWrite(version lease.Version, record lease.Record) {
	l.version, l.record, l.readable, l.missing = version, record, true, false
}

// discardRecord takes the record for outdated until the Lease is read again.
func (l *leaseObservation) discardRecord() { l.readable = false }

// assumeKnown replaces a Lease that is missing or cannot be read by the record that
// the member knows.
func (l *leaseObservation) assumeKnown(known lease.Record) {
	if l.missing {
		l.version = lease.Version{}
	}
	if !l.readable {
		l.record = known
	}
}

// adoptRevision learns whether the holder's change of the members, whose outcome was
// unknown, is on the Lease. Members that have read it take no earlier revision for
// this Lease. Nor do those that have read what was edited: it is replaced by a later one.
func (l *leaseObservation) adoptRevision(r lease.Reading, pending lease.Record) {
	l.version = r.Version
	if r.Answer == lease.Missing {
		l.version = lease.Version{}
	}
	newest := r.Record.Revision
	if r.Record.Term == 0 { // deleted or emptied, perhaps after a change that was done
		newest = pending.Revision
	}
	switch {
	case newest <= l.record.Revision:
	case r.Record.Revision == pending.Revision && !pending.IsReleased():
		l.record = pending
	default:
		l.record.Revision = newest + 1
	}
	if r.Record.Age() == l.record.Age() && r.Record.Contradicts(l.record) != "" {
		l.record.Revision++
	}
}
