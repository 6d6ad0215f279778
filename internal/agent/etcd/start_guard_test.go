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

// memoryStore is a membership record that one member has to itself.
type memoryStore struct {
	leaseclient.MembershipRecord
	away          bool
	reads, writes int
}

func (s *memoryStore) ReadRecord(context.Context) (leaseclient.MembershipRecord, error) {
	s.reads++
	if s.away {
		return leaseclient.MembershipRecord{}, errors.New("away")
	}
	return s.MembershipRecord, nil
}

func (s *memoryStore) WriteRecord(_ context.Context, next leaseclient.MembershipRecord) error {
	s.MembershipRecord = next
	s.writes++
	return nil
}

func gateForTest(t *testing.T, config *agent.Config, s *memoryStore) *startGuard {
	return &startGuard{
		pod: "orders-1", dir: t.TempDir(), log: slog.New(slog.DiscardHandler), membership: s,
		config: func() *agent.Config { return config }, space: func() diskspace.Space { return diskspace.Space{} },
		confirm: func(context.Context, etcdapi.JoinGrant, raftLogState) confirmation { return confirmYes },
	}
}

// A pod of an earlier cluster of the name, which is about to go, takes nothing
// from the next one's configuration.
func TestGateOfAnEarlierCluster(t *testing.T) {
	config := &agent.Config{Hash: "1"}
	config.UID = "old"
	g := gateForTest(t, config, &memoryStore{})
	if _, f, err := g.planNext(t.Context()); err != nil || f.JoinGrant != nil {
		t.Fatal(f, err)
	}
	config.UID, config.Fresh = "new", true
	config.JoinGrants = map[string]etcdapi.JoinGrant{"orders-1": *seeding()}
	config.Recovery = &etcdapi.Recovery{Pod: "orders-1"}
	_, f, err := g.planNext(t.Context())
	if f.JoinGrant != nil || f.Recovery != nil || f.Fresh || err != nil {
		t.Errorf("%+v %v", f, err)
	}
	g.cluster = "" // a pod of the new one
	if _, f, _ := g.planNext(t.Context()); f.JoinGrant == nil || f.Recovery == nil || !f.Fresh || f.ConfigHash != "1" {
		t.Errorf("%+v", f)
	}
}

func TestSettle(t *testing.T) {
	config := &agent.Config{}
	config.UID, config.SystemIdentifier = "u", ours
	s := &memoryStore{MembershipRecord: started("b", "v1")}
	g := gateForTest(t, config, s)
	settle := func(what, want string, fails bool) {
		t.Helper()
		if id, err := g.settleMember(t.Context()); id != want || (err != nil) != fails {
			t.Errorf("%s: %q, %v", what, id, err)
		}
	}
	settle("no data", "", false)
	// The join grant was for b, and etcd joined as c.
	if err := (mark{Volume: "v1", Begun: "b"}).writeTo(g.dir); err != nil {
		t.Fatal(err)
	}
	writeLog(t, filepath.Join(g.dir, dataName), raftLogState{Member: "c", Cluster: ours})
	s.away = true
	settle("while the API server is away", "", true)
	s.away = false
	settle("as the data says", "c", false)
	want := started("b", "v1").WithStart(leaseclient.Start{Member: "c", Pod: "orders-1", Volume: "v1"})
	if diff := cmp.Diff(want, s.MembershipRecord); diff != "" || s.writes != 1 {
		t.Errorf("%d writes (-want +got):\n%s", s.writes, diff)
	}
	s.away = true
	settle("once and for all, without the API server", "c", false)
	if s.writes != 1 {
		t.Errorf("%d writes", s.writes)
	}

	other := gateForTest(t, config, &memoryStore{MembershipRecord: leaseclient.MembershipRecord{SystemIdentifier: theirs}})
	writeLog(t, filepath.Join(other.dir, dataName), raftLogState{Member: "c", Cluster: ours})
	if id, err := other.settleMember(t.Context()); id != "" || err == nil {
		t.Errorf("another cluster's record took it: %q, %v", id, err)
	}
}

// settled makes the data of a member whose start is recorded.
func settled(t *testing.T, dir string, m mark, log raftLogState) {
	t.Helper()
	m.Member, m.Cluster = log.Member, log.Cluster
	if err := m.writeTo(dir); err != nil {
		t.Fatal(err)
	}
	writeLog(t, filepath.Join(dir, dataName), log)
}

// The membership record may be deleted while members run. A member that runs on its data puts
// itself back, and never in the place of another volume.
func TestKeep(t *testing.T) {
	others := leaseclient.MembershipRecord{Cluster: "u", SystemIdentifier: ours, Starts: []leaseclient.Start{{Member: "a", Pod: "orders-0", Volume: "v0"}}}
	own := leaseclient.Start{Member: "b", Pod: "orders-1", Volume: "v1"}
	elsewhere := others.WithStart(leaseclient.Start{Member: "b", Pod: "orders-1", Volume: "v9"})
	foreign := leaseclient.MembershipRecord{Cluster: "u", SystemIdentifier: theirs}
	for name, c := range map[string]struct {
		record, want   leaseclient.MembershipRecord
		fails, claimed bool
	}{
		"recorded":                     {others.WithStart(own), others.WithStart(own), false, false},
		"gone":                         {leaseclient.MembershipRecord{}, leaseclient.MembershipRecord{Cluster: "u", SystemIdentifier: ours, Starts: []leaseclient.Start{own}}, false, false},
		"made anew by another":         {others, others.WithStart(own), false, false},
		"the bootstrap alone was lost": {leaseclient.MembershipRecord{Starts: []leaseclient.Start{own}}, leaseclient.MembershipRecord{Cluster: "u", SystemIdentifier: ours, Starts: []leaseclient.Start{own}}, false, false},
		"has another volume":           {elsewhere, elsewhere, true, true},
		"is that of another cluster":   {foreign, foreign, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			config := &agent.Config{}
			config.UID, config.SystemIdentifier = "u", ours
			s := &memoryStore{MembershipRecord: c.record}
			g := gateForTest(t, config, s)
			g.cluster = "u"
			settled(t, g.dir, mark{Volume: "v1"}, raftLogState{Member: "b", Cluster: ours})
			err := g.ensureRecorded(t.Context())
			if (err != nil) != c.fails || (describeClaim(err) != "") != c.claimed {
				t.Errorf("claimed %q, error %v", describeClaim(err), err)
			}
			if diff := cmp.Diff(c.want, s.MembershipRecord); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
			if unchanged := cmp.Equal(c.record, c.want); unchanged != (s.writes == 0) {
				t.Errorf("%d writes", s.writes)
			}
		})
	}
}

// Nor does the first record take the place of another volume.
func TestSettleLeavesTheRecordOfAnotherVolume(t *testing.T) {
	s := &memoryStore{MembershipRecord: started("b", "v9")}
	config := &agent.Config{}
	config.UID = "u"
	g := gateForTest(t, config, s)
	writeLog(t, filepath.Join(g.dir, dataName), raftLogState{Member: "b", Cluster: ours})
	if id, err := g.settleMember(t.Context()); id != "" || describeClaim(err) == "" || s.writes != 0 {
		t.Errorf("%q, %v, %d writes", id, err, s.writes)
	}
}

// A pod of an earlier cluster of the name leaves the next one's record alone.
func TestKeepOfAnEarlierCluster(t *testing.T) {
	config := &agent.Config{}
	config.UID = "new"
	s := &memoryStore{}
	g := gateForTest(t, config, s)
	g.cluster = "old"
	settled(t, g.dir, mark{Volume: "v1"}, raftLogState{Member: "b", Cluster: ours})
	if err := g.ensureRecorded(t.Context()); err != nil || s.reads+s.writes != 0 {
		t.Errorf("%d reads, %d writes, %v", s.reads, s.writes, err)
	}
}

func TestKeepOnRecordNowAndThen(t *testing.T) {
	config := &agent.Config{}
	config.UID = "u"
	s := &memoryStore{MembershipRecord: started("b", "v1")}
	g := gateForTest(t, config, s)
	g.cluster = "u"
	settled(t, g.dir, mark{Volume: "v1"}, raftLogState{Member: "b", Cluster: ours})
	l := &etcdRun{etcdAgent: &etcdAgent{guard: g, log: g.log}}
	const boot = time.Hour
	for _, c := range []struct {
		after time.Duration
		away  bool
		reads int
	}{
		{0, false, 1},
		{recordInterval - 1, false, 1},
		{recordInterval, true, 2},
		{recordInterval + recordRetry - 1, false, 2},
		{recordInterval + recordRetry, false, 3},
		{recordInterval + recordRetry + maintenanceInterval, false, 3},
	} {
		s.away = c.away
		if l.keepRecorded(t.Context(), boot+c.after); s.reads != c.reads {
			t.Errorf("after %s: %d reads, want %d", c.after, s.reads, c.reads)
		}
	}
	// Two volumes claim the member, and then one does again.
	s.MembershipRecord = started("b", "v9")
	l.keepRecorded(t.Context(), boot+10*recordInterval)
	if l.elsewhere == "" {
		t.Error("the claim of another volume is not reported")
	}
	s.MembershipRecord = started("b", "v1")
	if l.keepRecorded(t.Context(), boot+20*recordInterval); l.elsewhere != "" || s.writes != 0 {
		t.Errorf("%q is reported, %d writes", l.elsewhere, s.writes)
	}
}
