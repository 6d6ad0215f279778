package sizing

import "time"

const (
	mebibyte = 1 << 20
	// pressedMinutes in a row in which pages were read back count as a hot set that does not
	// fit. A backup that reads everything once is over before.
	pressedMinutes = 10
	// leastReadBack is how much must be read back in a minute.
	leastReadBack = 16 * mebibyte
	// leastStall is for which share of the time something waited for memory then. Where the
	// kernel does not say, leastShare of the active pages must be read back each minute.
	leastStall = 0.01
	leastShare = 0.1
)

// Counters are what the kernel says of a container at one time.
type Counters struct {
	// CPU that was used, and the time in which something waited for a processor or for
	// memory. Those two are negative where the kernel does not say.
	CPU, StalledCPU, StalledMemory time.Duration
	// Periods of the quota, and Throttled those in which the container had to stop.
	Periods, Throttled int64
	// Anonymous and Shared memory, and what Kernel holds for it that it cannot free; in bytes.
	Anonymous, Shared, Kernel int64
	// ActiveFile are the file pages that were used again, and ReadBack those that were read
	// again after they had been dropped, since the container began; in bytes.
	ActiveFile, ReadBack int64
	// Limit of memory in bytes; 0 for none.
	Limit int64
	// Kills for lack of memory since the container began.
	Kills int64
}

// Meter makes use of counters. The zero value has seen none.
type Meter struct {
	before  *Counters
	at      time.Time
	pressed int
}

// Measure is what was used since the counters before; false for what does not count: the
// first, those of another container, and those that came too late.
func (m *Meter) Measure(now time.Time, c Counters) (Usage, bool) {
	before, since := m.before, now.Sub(m.at)
	m.before, m.at = &c, now
	if before == nil || since <= 0 || since > longestMinute || c.CPU < before.CPU || c.ReadBack < before.ReadBack {
		m.pressed = 0
		return Usage{}, false
	}
	u := Usage{
		CPU:       1000 * float64(c.CPU-before.CPU) / float64(since),
		Periods:   float64(max(c.Periods-before.Periods, 0)),
		Throttled: float64(max(c.Throttled-before.Throttled, 0)),
	}
	if c.StalledCPU >= before.StalledCPU && before.StalledCPU >= 0 {
		u.Stalled = min(float64(c.StalledCPU-before.StalledCPU)/float64(since), 1)
	}
	u.Memory, u.Held = m.measureMemory(*before, c, since)
	return u, true
}

// measureMemory is what the container needs: anonymous and shared memory, and the hot set of
// files. The page cache fills what there is, so it says nothing about that. Nor do the pages
// that the kernel holds active, as long as it need not drop any: they are no more than could be
// hot, which is held. Where dropped pages are read back again and again, and the database waits
// for it, the active pages are hot, and so is what was read back.
func (m *Meter) measureMemory(before, c Counters, since time.Duration) (needed, held int64) {
	own := c.Anonymous + c.Shared + c.Kernel
	held = own + c.ActiveFile
	readBack := c.ReadBack - before.ReadBack
	waits := float64(readBack) >= leastShare*float64(c.ActiveFile)
	if before.StalledMemory >= 0 && c.StalledMemory >= before.StalledMemory {
		waits = float64(c.StalledMemory-before.StalledMemory) >= leastStall*float64(since)
	}
	if readBack < leastReadBack || !waits {
		m.pressed = 0
		return own, held
	}
	if m.pressed++; m.pressed < pressedMinutes {
		return own, held
	}
	return held + min(readBack, c.ActiveFile), held
}
