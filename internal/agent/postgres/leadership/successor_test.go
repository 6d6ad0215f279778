package leadership

import (
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
)

func TestRule17SuccessorIsTheNewestThatMayLead(t *testing.T) {
	d := NewDirectory("orders-0", func() []string { return nil }, nil)
	d.volumes = map[string]string{"orders-1": "v1", "orders-2": "v2", "orders-3": "v3"}
	d.ends = map[string]lsn.Point{"orders-1": lsn.Parse(2, "0/300"), "orders-2": lsn.Parse(2, "0/500"), "orders-3": lsn.Parse(2, "0/900")}
	all, mayLead := []string{"orders-1", "orders-2"}, []string{"v0", "v1", "v2", "v3"}
	excluded := &agent.Config{}
	excluded.NoFailover = []string{"orders-2"}
	for _, c := range []struct {
		name             string
		reached, mayLead []string
		config           *agent.Config
		want             string
	}{
		{"the newest that streams", all, mayLead, &agent.Config{}, "v2"},
		{"one that never leads is left out", all, mayLead, excluded, "v1"},
		{"one that is not on the Lease is left out", all, []string{"v0", "v1"}, nil, "v1"},
		{"none streams", nil, mayLead, nil, ""},
		{"one whose volume is not known is left out", []string{"orders-9"}, mayLead, nil, ""},
	} {
		if got := d.ChooseSuccessor(c.reached, c.mayLead, c.config); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
