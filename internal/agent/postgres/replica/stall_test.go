package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
)

// A replica is stalled that stands before half a record: a stream that ends at
// once changes nothing about it, and one that lasts does.
func TestStall(t *testing.T) {
	type look struct {
		after     time.Duration
		receiving bool
		position  int64
		half      bool
	}
	still, streams := look{10 * time.Second, false, 5, true}, look{time.Second, true, 5, false}
	minute := []look{still, still, still, still, still, still, still}
	join := func(parts ...[]look) []look { return slices.Concat(parts...) }
	cases := []struct {
		name  string
		looks []look
		want  bool
	}{
		{"a minute before half a record", minute, true},
		{"less than a minute", minute[:6], false},
		{"a stream was observed now and then", join(minute[:3], []look{streams, streams}, minute[:3], []look{streams}, minute[:2]), true},
		{"a stream lasted in between", join(minute[:3], []look{streams, streams, streams}, minute[:6]), false},
		{"it replays", join(minute[:6], []look{{10 * time.Second, false, 6, true}}), false},
		{"it has all that it needs, or the primary has no more", join(minute[:6], []look{{10 * time.Second, false, 5, false}}), false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var s stall
			now := time.Duration(0) // the zero of the clock is a time like any other
			for i, l := range c.looks {
				if i > 0 {
					now += l.after
				}
				s = s.recordObservation(now, server.Observation{Receiving: l.receiving, Position: l.position}, l.half)
			}
			if got := s.isProven(now); got != c.want {
				t.Errorf("%v after %s: %+v", got, now, s)
			}
		})
	}
}
