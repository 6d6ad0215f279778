package clock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
)

func TestAWakerEndsAPauseUnderWayAndTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clock.NewWaker()
		pause := func() time.Duration {
			began := time.Now()
			if !w.Sleep(t.Context(), time.Minute) {
				t.Error("the context is alive")
			}
			return time.Since(began)
		}
		w.Wake()
		w.Wake() // two before a pause are one
		if got := pause(); got != 0 {
			t.Errorf("called before: %s", got)
		}
		if got := pause(); got != time.Minute {
			t.Errorf("not called: %s", got)
		}
		go func() {
			time.Sleep(time.Second)
			w.Wake()
		}()
		if got := pause(); got != time.Second {
			t.Errorf("called on the way: %s", got)
		}
	})
}

func TestAWakersPauseEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := clock.NewWaker()
	w.Wake()
	if w.Sleep(ctx, time.Minute) {
		t.Error("a context that has ended is said to be alive")
	}
}
