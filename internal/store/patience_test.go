package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var errAway = errors.New("no server is there")

// outage is a store that is away for so long, by the clock of a synctest bubble.
func outage(lasts time.Duration, tries *int) func(context.Context) error {
	back := time.Now().Add(lasts)
	return func(context.Context) error {
		*tries++
		if time.Now().Before(back) {
			return errAway
		}
		return nil
	}
}

// Ten minutes are what a store may be away, in the middle of anything; but not
// for ever, and it is not asked all the time.
func TestPatienceLasts(t *testing.T) {
	for _, tc := range []struct {
		away time.Duration
		good bool
	}{{0, true}, {time.Second, true}, {5 * time.Minute, true}, {10 * time.Minute, true}, {15 * time.Minute, false}, {24 * time.Hour, false}} {
		synctest.Test(t, func(t *testing.T) {
			tries, begun := 0, time.Now()
			err := (&Store{Patience: patience}).tryRequest(t.Context(), "write a", 0, outage(tc.away, &tries))
			if (err == nil) != tc.good {
				t.Errorf("away for %s: %v", tc.away, err)
			}
			if took := time.Since(begun); took > 15*time.Minute || took > tc.away+40*time.Second || tries > 40 {
				t.Errorf("away for %s: %d tries in %s", tc.away, tries, took)
			}
		})
	}
}

// A request that is never answered is canceled, and made again.
func TestRequestsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		err := (&Store{Patience: patience}).tryRequest(t.Context(), "write a", 16<<20, func(ctx context.Context) error {
			if tries++; tries == 3 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if err != nil || tries != 3 {
			t.Errorf("%d tries, %v", tries, err)
		}
		begun := time.Now()
		err = (&Store{Patience: patience}).tryRequest(t.Context(), "write a", 0, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if e := (*Error)(nil); !errors.As(err, &e) || e.Permanent || time.Since(begun) > 15*time.Minute {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
	})
}

// No store is asked any more once the context is done: neither again, nor at all.
func TestPatienceEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		tries := 0
		time.AfterFunc(time.Minute, func() { cancel(errors.New("asked to stop")) })
		err := (&Store{Patience: patience}).tryRequest(ctx, "write a", 0, outage(time.Hour, &tries))
		if err == nil || !errors.Is(err, errAway) || context.Cause(ctx).Error() != "asked to stop" {
			t.Error(err)
		}
		tries = 0
		if err := (&Store{Patience: patience}).tryRequest(ctx, "delete a", 0, outage(0, &tries)); err == nil || tries != 0 {
			t.Errorf("%d tries, %v", tries, err)
		}
	})
}
