// Package clock is the time that Leases are judged by, and pauses that end with
// a context.
package clock

import (
	"context"
	"errors"
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

// SleepUntil waits for a moment of Boottime, and may end a little early. After a
// suspension of the machine, a moment that passed in it is not waited for.
func SleepUntil(moment time.Duration) {
	at := unix.NsecToTimespec(int64(moment))
	err := unix.ClockNanosleep(unix.CLOCK_BOOTTIME, unix.TIMER_ABSTIME, &at, nil)
	if err != nil && !errors.Is(err, unix.EINTR) {
		// A kernel that cannot sleep by this clock: one that stops in a suspension has
		// to do for the rest of the wait.
		time.Sleep(moment - Boottime())
	}
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
