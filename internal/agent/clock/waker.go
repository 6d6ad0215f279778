package clock

import (
	"context"
	"time"
)

// Waker ends pauses early. Make it with NewWaker. Any goroutine may use it.
type Waker struct{ calls chan struct{} }

// NewWaker makes a Waker that was not called yet.
func NewWaker() Waker { return Waker{make(chan struct{}, 1)} }

// Wake ends a pause under way, and otherwise the next one. It does not wait.
func (w Waker) Wake() {
	select {
	case w.calls <- struct{}{}:
	default:
	}
}

// Sleep waits until it is woken, for d at most, and says whether ctx is still alive.
func (w Waker) Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-w.calls:
	case <-timer.C:
	}
	return ctx.Err() == nil
}
