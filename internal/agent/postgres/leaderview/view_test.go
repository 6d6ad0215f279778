package leaderview

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// fakePeers answer with one status, and record what was asked of them.
type fakePeers struct {
	status  agentapi.Status
	err     error
	asked   []string
	located map[string]string
}

func (p *fakePeers) Status(_ context.Context, pod string) (agentapi.Status, error) {
	p.asked = append(p.asked, pod)
	return p.status, p.err
}

func (p *fakePeers) Locate(pod, ip string) { p.located[pod] = ip }

var leading = elector.Leader{UID: "p1", Pod: "orders-1", Volume: "v1", Term: 4, Timeline: 4}

// newView is that of orders-0, whose leader and its address a test changes.
func newView() (v *View, peers *fakePeers, leader *elector.Leader, address *string) {
	peers = &fakePeers{located: map[string]string{}, status: agentapi.Status{Pod: "orders-1", PodUID: "p1", Role: v1alpha1.RolePrimary, Serving: true}}
	leader, address = &elector.Leader{}, new(string)
	v = NewView(Options{
		Pod: "orders-0", Peers: peers, Leader: func() elector.Leader { return *leader }, Address: func(elector.Leader) string { return *address },
	})
	return v, peers, leader, address
}

func TestRule14LeaderIsOfTheLeaseAlone(t *testing.T) {
	v, peers, leader, address := newView()
	for name, l := range map[string]elector.Leader{
		"no holder": {Term: 4}, "a holder without a pod": {UID: "p1", Term: 4}, "this member": {UID: "p0", Pod: "orders-0", Term: 4},
	} {
		*leader = l
		if got, known := v.FindLeader(); known || got != (elector.Leader{}) {
			t.Errorf("%s: %+v", name, got)
		}
		if _, err := v.AskPrimary(t.Context()); !errors.Is(err, ErrNoLeader) || len(peers.asked) > 0 {
			t.Errorf("%s: %v, asked %v", name, err, peers.asked)
		}
	}
	*leader = leading
	if got, known := v.FindLeader(); !known || got != leading || len(peers.located) > 0 {
		t.Errorf("found %+v, located %v", got, peers.located)
	}
	*address = "10.0.0.7"
	v.FindLeader()
	if diff := cmp.Diff(map[string]string{"orders-1": "10.0.0.7"}, peers.located); diff != "" {
		t.Errorf("located (-want +got):\n%s", diff)
	}
}

func TestFindPrimaryBelievesTheHolderOnly(t *testing.T) {
	for _, c := range []struct {
		name  string
		edit  func(*fakePeers)
		found bool
	}{
		{"the holder is the primary", func(*fakePeers) {}, true},
		{"another pod has its name", func(p *fakePeers) { p.status.PodUID = "p9" }, false},
		{"it does not answer", func(p *fakePeers) { p.err = errors.New("refused") }, false},
		{"it is no primary yet", func(p *fakePeers) { p.status.Role = v1alpha1.RoleMember }, false},
		{"it does not serve", func(p *fakePeers) { p.status.Serving = false }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, peers, leader, _ := newView()
			*leader = leading
			c.edit(peers)
			status, found := v.FindPrimary(t.Context())
			if found != c.found || (status.Pod != "") != c.found {
				t.Errorf("found %v: %+v", found, status)
			}
		})
	}
}

func TestPrimaryPodIsTheLastOne(t *testing.T) {
	v, _, leader, _ := newView()
	if got := v.PrimaryPod(); got != "the primary" {
		t.Errorf("before any: %q", got)
	}
	*leader = leading
	if got := v.PrimaryPod(); got != "orders-1" {
		t.Errorf("while it leads: %q", got)
	}
	*leader = elector.Leader{Term: 4}
	if got := v.PrimaryPod(); got != "orders-1" {
		t.Errorf("after it led: %q", got)
	}
}

// Where a primary's WAL ends is not known of another system, or by an old answer.
func TestReadPrimary(t *testing.T) {
	status := func(old bool) agentapi.Status {
		s := agentapi.Status{Pod: "orders-1", SystemIdentifier: "7", Position: 0x300, DataSize: 99}
		agentapi.ChangeEngineStatus(&s, func(r *postgresapi.ReplicationStatus) { r.Timeline, r.PositionOld = 4, old })
		return s
	}
	for _, c := range []struct {
		name, system string
		old          bool
		end          lsn.Point
	}{
		{"of the same system", "7", false, lsn.Point{Timeline: 4, Position: 0x300}},
		{"by an old answer", "7", true, lsn.Point{Timeline: 4}},
		{"of another system", "8", false, lsn.Point{Timeline: 4}},
		{"for a member without data", "", false, lsn.Point{Timeline: 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := Primary{Known: true, Pod: "orders-1", SystemIdentifier: "7", End: c.end, DataSize: 99}
			if diff := cmp.Diff(want, ReadPrimary(status(c.old), true, c.system)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
