// Package sampling measures again and again, and saves seldom.
package sampling

import (
	"context"
	"time"
)

const (
	// Interval is between two measurements.
	Interval = time.Minute
	// saveInterval is between two writes.
	saveInterval = time.Hour
)

// Follow measures every Interval until ctx ends, and saves once an hour. It does not save at
// the end: the volume may be another process's already, and nothing is to wait for its disk.
func Follow(ctx context.Context, measure func(now time.Time), save func()) {
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	follow(ctx, ticker.C, time.Now(), measure, save)
}

func follow(ctx context.Context, ticks <-chan time.Time, saved time.Time, measure func(now time.Time), save func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks:
			measure(now.UTC())
			if now.Sub(saved) >= saveInterval {
				save()
				saved = now
			}
		}
	}
}
