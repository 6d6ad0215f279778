package sampling

import (
	"context"
	"testing"
	"time"
)

// Each tick is measured, and each hour is saved once; nothing is once the context has ended.
func TestFollow(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	begin := time.Date(2026, 3, 2, 12, 0, 0, 0, time.FixedZone("", 3600))
	ticks := make(chan time.Time)
	go func() {
		for minute := 1; minute <= 150; minute++ {
			ticks <- begin.Add(time.Duration(minute) * time.Minute)
		}
		cancel()
	}()
	var measured, saved []time.Time
	follow(ctx, ticks, begin, func(now time.Time) { measured = append(measured, now) }, func() { saved = append(saved, measured[len(measured)-1]) })
	if len(measured) != 150 || measured[0].Location() != time.UTC {
		t.Errorf("%d measurements, the first at %v", len(measured), measured[0])
	}
	if len(saved) != 2 || !saved[0].Equal(begin.Add(time.Hour)) || !saved[1].Equal(begin.Add(2*time.Hour)) {
		t.Errorf("saved at %v", saved)
	}
}
