package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Patience is how long something is tried again that may repair itself.
type Patience struct {
	// First is the pause after the first try. Each is twice the one before,
	// but never longer than Longest.
	First, Longest time.Duration
	// Total is the time after which what still fails is not tried again.
	Total time.Duration
}

// TryUntilDone does something until it is done, is final, or patience ends. A context
// that is done ends it, too, and at once.
func (p Patience) TryUntilDone(ctx context.Context, do func(context.Context) (final bool, err error)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	begun := time.Now()
	pauses := wait.Backoff{Duration: p.First, Factor: 2, Jitter: 0.2, Cap: p.Longest, Steps: math.MaxInt}
	for {
		final, err := do(ctx)
		if err == nil || final || time.Since(begun) >= p.Total {
			return err
		}
		waits := time.NewTimer(pauses.Step())
		select {
		case <-ctx.Done():
			waits.Stop()
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-waits.C:
		}
	}
}
