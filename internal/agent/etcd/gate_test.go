package etcd

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// shelf is a register that one member has to itself.
type shelf struct {
	leaseclient.Register
	away          bool
	looks, writes int
}

func (s *shelf) Look(context.Context) (leaseclient.Register, error) {
	s.looks++
	if s.away {
		return leaseclient.Register{}, errors.New("away")
	}
	return s.Register, nil
}

func (s *shelf) Write(_ context.Context, next leaseclient.Register) error {
	s.Register = next
	s.writes++
	return nil
}

func gateForTest(t *testing.T, config *agent.Config, s *shelf) *gate {
	return &gate{
		pod: "orders-1", dir: t.TempDir(), log: slog.New(slog.DiscardHandler), register: s,
		config: func() *agent.Config { return config }, space: func() diskspace.Space { return diskspace.Space{} },
		confirm: func(context.Context, etcdapi.JoinGrant, logState) confirmation { return confirmYes },
	}
}

// A pod of an earlier cluster of the name, which is about to go, takes nothing
// from the next one's configuration.
func TestGateOfAnEarlierCluster(t *testing.T) {
	config := &agent.Config{Hash: "1"}
	config.UID = "old"
	g := gateForTest(t, config, &shelf{})
	if _, f, err := g.next(t.Context()); err != nil || f.Ticket != nil {
		t.Fatal(f, err)
	}
	config.UID, config.Fresh = "new", true
	config.Tickets = map[string]etcdapi.JoinGrant{"orders-1": *seeding()}
	config.Recovery = &etcdapi.Recovery{Pod: "orders-1"}
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
	config := &agent.Config{}
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
	want := started("b", "v1").WithStart(leaseclient.Start{Member: "c", Pod: "orders-1", Volume: "v1"})
	if diff := cmp.Diff(want, s.Register); diff != "" || s.writes != 1 {
		t.Errorf("%d writes (-want +got):\n%s", s.writes, diff)
	}
	s.away = true
	settle("once and for all, without the API server", "c", false)
	if s.writes != 1 {
		t.Errorf("%d writes", s.writes)
	}

	other := gateForTest(t, config, &shelf{Register: leaseclient.Register{SystemIdentifier: theirs}})
	writeLog(t, filepath.Join(other.dir, dataName), logState{Member: "c", Cluster: ours})
	if id, err := other.settle(t.Context()); id != "" || err == nil {
		t.Errorf("another cluster's register took it: %q, %v", id, err)
	}
}

// settled makes the data of a member whose start is on record.
func settled(t *testing.T, dir string, m mark, log logState) {
	t.Helper()
	m.Member, m.Cluster = log.Member, log.Cluster
	if err := m.write(dir); err != nil {
		t.Fatal(err)
	}
	writeLog(t, filepath.Join(dir, dataName), log)
}

// The register may be deleted while members run. Whoever runs on its data puts
// itself back, and never in the place of another volume.
func TestKeep(t *testing.T) {
	others := leaseclient.Register{Cluster: "u", SystemIdentifier: ours, Starts: []leaseclient.Start{{Member: "a", Pod: "orders-0", Volume: "v0"}}}
	own := leaseclient.Start{Member: "b", Pod: "orders-1", Volume: "v1"}
	elsewhere := others.WithStart(leaseclient.Start{Member: "b", Pod: "orders-1", Volume: "v9"})
	foreign := leaseclient.Register{Cluster: "u", SystemIdentifier: theirs}
	for name, c := range map[string]struct {
		register, want leaseclient.Register
		fails, claimed bool
	}{
		"on record":                  {others.WithStart(own), others.WithStart(own), false, false},
		"gone":                       {leaseclient.Register{}, leaseclient.Register{Cluster: "u", SystemIdentifier: ours, Starts: []leaseclient.Start{own}}, false, false},
		"made anew by another":       {others, others.WithStart(own), false, false},
		"the birth alone was lost":   {leaseclient.Register{Starts: []leaseclient.Start{own}}, leaseclient.Register{Cluster: "u", SystemIdentifier: ours, Starts: []leaseclient.Start{own}}, false, false},
		"has another volume":         {elsewhere, elsewhere, true, true},
		"is that of another cluster": {foreign, foreign, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			config := &agent.Config{}
			config.UID, config.SystemIdentifier = "u", ours
			s := &shelf{Register: c.register}
			g := gateForTest(t, config, s)
			g.cluster = "u"
			settled(t, g.dir, mark{Volume: "v1"}, logState{Member: "b", Cluster: ours})
			err := g.keep(t.Context())
			if (err != nil) != c.fails || (claim(err) != "") != c.claimed {
				t.Errorf("claimed %q, error %v", claim(err), err)
			}
			if diff := cmp.Diff(c.want, s.Register); diff != "" {
				t.Errorf("register (-want +got):\n%s", diff)
			}
			if unchanged := cmp.Equal(c.register, c.want); unchanged != (s.writes == 0) {
				t.Errorf("%d writes", s.writes)
			}
		})
	}
}

// Nor does the first record take the place of another volume.
func TestSettleLeavesTheRecordOfAnotherVolume(t *testing.T) {
	s := &shelf{Register: started("b", "v9")}
	config := &agent.Config{}
	config.UID = "u"
	g := gateForTest(t, config, s)
	writeLog(t, filepath.Join(g.dir, dataName), logState{Member: "b", Cluster: ours})
	if id, err := g.settle(t.Context()); id != "" || claim(err) == "" || s.writes != 0 {
		t.Errorf("%q, %v, %d writes", id, err, s.writes)
	}
}

// A pod of an earlier cluster of the name leaves the next one's register alone.
func TestKeepOfAnEarlierCluster(t *testing.T) {
	config := &agent.Config{}
	config.UID = "new"
	s := &shelf{}
	g := gateForTest(t, config, s)
	g.cluster = "old"
	settled(t, g.dir, mark{Volume: "v1"}, logState{Member: "b", Cluster: ours})
	if err := g.keep(t.Context()); err != nil || s.looks+s.writes != 0 {
		t.Errorf("%d looks, %d writes, %v", s.looks, s.writes, err)
	}
}

func TestKeepOnRecordNowAndThen(t *testing.T) {
	config := &agent.Config{}
	config.UID = "u"
	s := &shelf{Register: started("b", "v1")}
	g := gateForTest(t, config, s)
	g.cluster = "u"
	settled(t, g.dir, mark{Volume: "v1"}, logState{Member: "b", Cluster: ours})
	l := &life{etcdAgent: &etcdAgent{gate: g, log: g.log}}
	const boot = time.Hour
	for _, c := range []struct {
		after time.Duration
		away  bool
		looks int
	}{
		{0, false, 1},
		{recordInterval - 1, false, 1},
		{recordInterval, true, 2},
		{recordInterval + recordRetry - 1, false, 2},
		{recordInterval + recordRetry, false, 3},
		{recordInterval + recordRetry + upkeepInterval, false, 3},
	} {
		s.away = c.away
		if l.keepOnRecord(t.Context(), boot+c.after); s.looks != c.looks {
			t.Errorf("after %s: %d looks, want %d", c.after, s.looks, c.looks)
		}
	}
	// Two volumes claim the member, and then one does again.
	s.Register = started("b", "v9")
	l.keepOnRecord(t.Context(), boot+10*recordInterval)
	if l.elsewhere == "" {
		t.Error("the claim of another volume is not told")
	}
	s.Register = started("b", "v1")
	if l.keepOnRecord(t.Context(), boot+20*recordInterval); l.elsewhere != "" || s.writes != 0 {
		t.Errorf("%q is told, %d writes", l.elsewhere, s.writes)
	}
}
