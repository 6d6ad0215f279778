package election

import (
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// leaseRequests are a member's requests to the API server. At most one reading and
// one write are under way.
type leaseRequests struct {
	reading   bool
	readSent  time.Duration
	writing   bool
	writeSent time.Duration
	pending   lease.Record // the last that was sent, whatever became of it
	// undecided are the volumes of earlier writes that may still be done, and isUndecided
	// says so of the last one.
	undecided   []string
	isUndecided bool
	ignore      time.Duration // readings that were sent before are outdated
	outage      bool          // the last request had no answer
}

// isReadingDue reports whether the last reading was sent that long ago.
func (q leaseRequests) isReadingDue(now, interval time.Duration) bool {
	return now-q.readSent >= interval || q.readSent == 0
}

// requireReading makes a reading due at once.
func (q *leaseRequests) requireReading() { q.readSent = 0 }

// startReading reads the Lease, unless a reading is under way.
func (q *leaseRequests) startReading(now time.Duration) []Effect {
	if q.reading || now == q.readSent {
		return nil
	}
	q.reading, q.readSent = true, now
	return []Effect{ReadLease{now}}
}

// endReading takes the answer to a reading, and reports whether it says anything:
// one that was sent before the member's own last write does not.
func (q *leaseRequests) endReading(r lease.Reading) bool {
	if !q.reading || r.Sent != q.readSent {
		return false
	}
	q.reading = false
	q.outage = !r.Answer.IsReached()
	return r.Sent >= q.ignore
}

// endLateReading reports whether a reading was waited for in vain.
func (q *leaseRequests) endLateReading(now, timeout time.Duration) bool {
	if !q.reading || now-q.readSent < timeout {
		return false
	}
	q.reading, q.outage = false, true
	return true
}

// listAdmitted are the volumes of the last write and of each one before it that may still
// be done. A reading that does not show a write proves nothing: it may be done after
// that. A later write that is done does: no earlier one replaces it.
func (q leaseRequests) listAdmitted() []string {
	return slices.Concat(q.undecided, q.pending.Volumes)
}

// startWriting replaces the state of the Lease named by base.
func (q *leaseRequests) startWriting(now time.Duration, base lease.Version, record lease.Record) []Effect {
	if q.isUndecided {
		q.undecided = slices.Compact(slices.Sorted(slices.Values(q.listAdmitted())))
	}
	q.writing, q.writeSent, q.pending, q.isUndecided = true, now, record, true
	return []Effect{WriteLease{Base: base, Record: record, Sent: now}}
}

// endWriting takes the answer to a write, and reports whether it was waited for.
func (q *leaseRequests) endWriting(now time.Duration, w LeaseWritten) bool {
	if !q.writing || w.Sent != q.writeSent {
		return false
	}
	q.writing, q.isUndecided = false, !w.Answer.IsReached()
	if w.Answer == lease.Done {
		q.undecided = nil
	}
	q.outage = !w.Answer.IsReached()
	q.ignore = now
	return true
}

// endLateWriting reports whether a write was waited for in vain.
func (q *leaseRequests) endLateWriting(now, timeout time.Duration) bool {
	if !q.writing || now-q.writeSent < timeout {
		return false
	}
	q.writing, q.outage = false, true
	return true
}

// abandonWriting ignores the answer to a write that is under way.
func (q *leaseRequests) abandonWriting() { q.writing = false }

// isSilent reports whether the API server does not answer: a request timed out, or
// one has waited so long that it probably will. Asking too early costs nothing.
func (q leaseRequests) isSilent(now, timeout time.Duration) bool {
	patience := timeout / 3
	return q.outage || q.writing && now-q.writeSent >= patience || q.reading && now-q.readSent >= patience
}
