package rewind

import (
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/wal"
)

func TestRule18ExplainedDivergence(t *testing.T) {
	held := func(timeline int64, position uint64, history ...wal.Turn) rolechange.HeldWAL {
		h := rolechange.HeldWAL{SystemIdentifier: "7", End: lsn.Point{Timeline: timeline, Position: position}, History: history}
		for _, held := range h.History.ListHeld(uint32(timeline)) {
			h.Timelines = append(h.Timelines, int64(held))
		}
		return h
	}
	primary := func(timeline int64, position uint64, history ...wal.Turn) rolechange.Upstream {
		return rolechange.Upstream{SystemIdentifier: "7", End: lsn.Point{Timeline: timeline, Position: position}, History: history}
	}
	at := func(timeline uint32, position uint64) wal.Turn {
		return wal.Turn{Timeline: timeline, Position: position}
	}
	other, standby := primary(2, 90, at(1, 50)), primary(2, 90, at(1, 50))
	other.SystemIdentifier, standby.Standby = "8", true
	cases := []struct {
		name string
		held rolechange.HeldWAL
		up   rolechange.Upstream
		led  []Term
		want bool
	}{
		{"the volume led the timeline that the primary left before its end", held(1, 60), primary(2, 90, at(1, 50)), []Term{{1, 1}}, true},
		{"also where the primary has not come so far", held(1, 60), primary(2, 55, at(1, 50)), []Term{{1, 1}}, true},
		{"and where several terms have passed", held(1, 60), primary(5, 90, at(1, 50), at(3, 70)), []Term{{1, 1}}, true},
		{"it led another timeline only", held(1, 60), primary(3, 90, at(1, 50)), []Term{{2, 2}}, false},
		{"it never led", held(1, 60), primary(2, 90, at(1, 50)), nil, false},
		{"a term without a number is none", held(1, 60), primary(2, 90, at(1, 50)), []Term{{0, 1}}, false},
		{"a follower that ends where the primary left", held(1, 50), primary(2, 90, at(1, 50)), []Term{{1, 1}}, false},
		{"a follower that is behind", held(1, 40), primary(2, 90, at(1, 50)), []Term{{1, 1}}, false},
		{"the primary is on the volume's own timeline, and behind", held(1, 60), primary(1, 50), []Term{{1, 1}}, false},
		{"the primary is on an older timeline", held(3, 60, at(1, 40)), primary(2, 90, at(1, 50)), []Term{{1, 1}, {3, 3}}, false},
		{"a promotion of its own, of which the primary knows nothing", held(2, 60, at(1, 50)), primary(3, 90, at(1, 50)), []Term{{2, 2}}, true},
		{"the same, and another member led the timeline before it", held(2, 60, at(1, 50)), primary(3, 90, at(1, 45)), []Term{{2, 2}}, false},
		{"the same, and it led that one too", held(2, 60, at(1, 50)), primary(3, 90, at(1, 45)), []Term{{1, 1}, {2, 2}}, true},
		{"a follower's promotion before the primary left", held(2, 60, at(1, 40)), primary(3, 90, at(1, 50)), []Term{{2, 2}}, true},
		{"one number and two timelines", held(2, 60, at(1, 40)), primary(3, 90, at(1, 50), at(2, 80)), []Term{{1, 1}, {2, 2}}, false},
		{"no timeline in common", held(1, 60), primary(3, 90, at(2, 50)), []Term{{1, 1}}, false},
		{"another database system", held(1, 60), other, []Term{{1, 1}}, false},
		{"a standby is no primary", held(1, 60), standby, []Term{{1, 1}}, false},
		{"nothing is known of the volume", rolechange.HeldWAL{}, rolechange.Upstream{}, nil, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := Explain(c.held, c.up, c.led); got != c.want {
				t.Errorf("explained: %t, want %t", got, c.want)
			}
		})
	}
}
