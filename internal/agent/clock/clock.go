// Package clock is the time that Leases are judged by, and pauses that end with
// a context.
package clock

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// Boottime is the time since the machine's boot, with suspension counted: Go's
// own monotonic clock stands still while the machine sleeps, and a Lease does
// not.
func Boottime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic("no CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(now.Nano())
}

// Sleep waits, and says whether ctx is still alive.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
