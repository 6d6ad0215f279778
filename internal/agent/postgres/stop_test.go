package postgres

import (
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/elector"
)

// A primary that stops waits for each member that streams: in synchronous mode also until it
// acknowledges commits, since those of the next primary would wait for this one.
func TestHaveJoined(t *testing.T) {
	volumes := map[string]string{"orders-1": "v1", "orders-2": "v2"}
	for _, c := range []struct {
		name            string
		mayLead, quorum string
		streaming       []string
		want            bool
	}{
		{"none streams", "v0", "", nil, true},
		{"one of two streams, and may lead", "v0,v1", "", []string{"orders-1"}, true},
		{"one streams, and may not lead yet", "v0,v1", "", []string{"orders-1", "orders-2"}, false},
		{"its volume is not known", "v0,v1", "", []string{"orders-3"}, false},
		{"all are in the quorum", "v0,v1,v2", "v0,v1,v2", []string{"orders-1", "orders-2"}, true},
		{"one may lead, and is not in the quorum yet", "v0,v1,v2", "v0,v1", []string{"orders-1", "orders-2"}, false},
		{"one that is not in the quorum does not stream", "v0,v1,v2", "v0,v1", []string{"orders-1"}, true},
		{"the quorum is the primary alone", "v0,v1", "v0", []string{"orders-1"}, false},
	} {
		if got := haveJoined(elector.View{MayLead: c.mayLead, Quorum: c.quorum}, volumes, c.streaming); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
