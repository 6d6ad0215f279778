package etcd

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/member"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// shelf is a register that one member has to itself.
type shelf struct {
	member.Register
	away   bool
	writes int
}

func (s *shelf) Look(context.Context) (member.Register, error) {
	if s.away {
		return member.Register{}, errors.New("away")
	}
	return s.Register, nil
}

func (s *shelf) Write(_ context.Context, next member.Register) error {
	s.Register = next
	s.writes++
	return nil
}

func gateForTest(t *testing.T, config *member.Config, s *shelf) *gate {
	return &gate{
		pod: "orders-1", dir: t.TempDir(), log: slog.New(slog.DiscardHandler), register: s,
		config: func() *member.Config { return config }, space: func() member.Space { return member.Space{} },
		confirm: func(context.Context, memberapi.Ticket, logState) confirmation { return confirmYes },
	}
}

// A pod of an earlier cluster of the name, which is about to go, takes nothing
// from the next one's configuration.
func TestGateOfAnEarlierCluster(t *testing.T) {
	config := &member.Config{Hash: "1"}
	config.UID = "old"
	g := gateForTest(t, config, &shelf{})
	if _, f, err := g.next(t.Context()); err != nil || f.Ticket != nil {
		t.Fatal(f, err)
	}
	config.UID, config.Fresh = "new", true
	config.Tickets = map[string]memberapi.Ticket{"orders-1": *seeding()}
	config.Recovery = &memberapi.Recovery{Pod: "orders-1"}
	_, f, err := g.next(t.Context())
	if f.Ticket != nil || f.Recovery != nil || f.Fresh || err != nil {
		t.Errorf("%+v %v", f, err)
	}
	g.cluster = "" // a pod of the new one
	if _, f, _ := g.next(t.Context()); f.Ticket == nil || f.Recovery == nil || !f.Fresh || f.ConfigHash != "1" {
		t.Errorf("%+v", f)
	}
}

func TestSettle(t *testing.T) {
	config := &member.Config{}
	config.UID, config.SystemIdentifier = "u", ours
	s := &shelf{Register: started("b", "v1")}
	g := gateForTest(t, config, s)
	settle := func(what, want string, fails bool) {
		t.Helper()
		if id, err := g.settle(t.Context()); id != want || (err != nil) != fails {
			t.Errorf("%s: %q, %v", what, id, err)
		}
	}
	settle("no data", "", false)
	// The ticket was for b, and etcd joined as c.
	if err := (mark{Volume: "v1", Begun: "b"}).write(g.dir); err != nil {
		t.Fatal(err)
	}
	writeLog(t, filepath.Join(g.dir, dataName), logState{Member: "c", Cluster: ours})
	s.away = true
	settle("while the API server is away", "", true)
	s.away = false
	settle("as the data says", "c", false)
	want := started("b", "v1").WithStart(member.Start{Member: "c", Pod: "orders-1", Volume: "v1"})
	if diff := cmp.Diff(want, s.Register); diff != "" || s.writes != 1 {
		t.Errorf("%d writes (-want +got):\n%s", s.writes, diff)
	}
	s.away = true
	settle("once and for all, without the API server", "c", false)
	if s.writes != 1 {
		t.Errorf("%d writes", s.writes)
	}

	other := gateForTest(t, config, &shelf{Register: member.Register{SystemIdentifier: theirs}})
	writeLog(t, filepath.Join(other.dir, dataName), logState{Member: "c", Cluster: ours})
	if id, err := other.settle(t.Context()); id != "" || err == nil {
		t.Errorf("another cluster's register took it: %q, %v", id, err)
	}
}
