package backup

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"
)

// FollowProgress reports how far a step is, at once and then every so often (five
// seconds, where every is zero) when that is another text, until stop is called.
// After stop returned, nothing is reported.
func FollowProgress(ctx context.Context, every time.Duration, progress func() string, report func(ctx context.Context, progress string)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(cmp.Or(every, 5*time.Second))
		defer tick.Stop()
		for first, last := true, ""; ; first = false {
			if now := progress(); first || now != last {
				report(ctx, now)
				last = now
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// Counter counts the bytes that are written to it. Load may be called meanwhile.
type Counter struct{ atomic.Int64 }

func (c *Counter) Write(p []byte) (int, error) {
	c.Add(int64(len(p)))
	return len(p), nil
}
