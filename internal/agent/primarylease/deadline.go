package primarylease

import (
	"sync/atomic"
	"time"
)

// Deadline is the moment at which no process of the holder may be left that can
// commit, in CLOCK_BOOTTIME (see the clock package). It is read and moved without a
// lock, so that neither a hung request nor a hung loop hides it. Its zero value has
// passed.
type Deadline struct{ until atomic.Int64 }

// Extend moves the deadline, never back.
func (d *Deadline) Extend(until time.Duration) {
	for {
		before := d.until.Load()
		if int64(until) <= before || d.until.CompareAndSwap(before, int64(until)) {
			return
		}
	}
}

// End makes the deadline pass: the holder has fenced itself or released the Lease.
// A later Extend is that of another term.
func (d *Deadline) End() { d.until.Store(0) }

// Until is the deadline.
func (d *Deadline) Until() time.Duration { return time.Duration(d.until.Load()) }

// HasPassed reports whether the deadline is reached.
func (d *Deadline) HasPassed(now time.Duration) bool { return now >= d.Until() }
