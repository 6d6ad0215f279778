package etcd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// answering is what etcd, as the member a, answers when it hears of a leader.
func answering(leader uint64, others ...etcdapi.GroupMember) serverObservation {
	return serverObservation{
		Status:  &clientv3.StatusResponse{Header: &etcdserverpb.ResponseHeader{MemberId: 0xa}, Leader: leader},
		Members: append(others, etcdapi.GroupMember{ID: "a"}),
	}
}

func TestHearing(t *testing.T) {
	voter, learner := etcdapi.GroupMember{ID: "b"}, etcdapi.GroupMember{ID: "c", Learner: true}
	peersOnly := serverObservation{Members: []etcdapi.GroupMember{{ID: "a"}, voter}}
	behind := serverObservation{Members: peersOnly.Members, Led: true}
	// An observation each second, and what speaks against going on alone after the last.
	for name, c := range map[string]struct {
		observations []serverObservation
		want         string
	}{
		"nothing was heard yet":            {nil, "not sure"},
		"etcd has just started":            {[]serverObservation{{}, peersOnly, peersOnly, peersOnly}, "not sure"},
		"it has not heard of any leader":   {[]serverObservation{{}, peersOnly, peersOnly, peersOnly, peersOnly, peersOnly, peersOnly}, ""},
		"it had a leader and lost it":      {[]serverObservation{answering(0xb, voter), answering(0), answering(0), answering(0), answering(0), answering(0), answering(0)}, ""},
		"it has lost it just now":          {[]serverObservation{answering(0xb, voter), answering(0), answering(0), answering(0)}, "not sure"},
		"a leader came back":               {[]serverObservation{answering(0), answering(0), answering(0), answering(0), answering(0), answering(0), answering(0xb, voter)}, "b leads"},
		"it was elected":                   {[]serverObservation{answering(0), answering(0xa, voter)}, "a leads"},
		"it leads a learner":               {[]serverObservation{answering(0xa, learner)}, "a leads"},
		"it follows, and is far behind":    {[]serverObservation{behind, behind, behind, behind, behind, behind, behind}, "not sure"},
		"clients get no answer any more":   {[]serverObservation{answering(0), peersOnly, peersOnly, peersOnly, peersOnly, peersOnly, peersOnly, peersOnly}, "not sure"},
		"etcd ended, and has just started": {[]serverObservation{peersOnly, peersOnly, peersOnly, {}, {}, {}, peersOnly}, "not sure"},
	} {
		h, now := leaderHistory{}, time.Hour
		for i, s := range c.observations {
			if i > 0 {
				now += time.Second
			}
			h = h.withObservation(s, now)
		}
		got := h.describeObjection(now, defaultElection)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Who lets elections take longer waits longer.
func TestElection(t *testing.T) {
	for value, want := range map[string]time.Duration{"": time.Second, "5000": 5 * time.Second, "soon": time.Second} {
		if got := (choice{Parameters: map[string]string{"election-timeout": value}}).electionTimeout(); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
	h := leaderHistory{Since: time.Hour}
	if h.describeObjection(time.Hour+6*time.Second, 5*time.Second) == "" {
		t.Error("it did not wait")
	}
}

func TestOthersObject(t *testing.T) {
	says := func(cluster, leader string) agentapi.Status {
		return agentapi.Status{SystemIdentifier: cluster, Engine: etcdapi.GroupStatus{Group: &etcdapi.Group{Leader: leader}}}
	}
	for name, c := range map[string]struct {
		say  map[string]agentapi.Status
		want string
	}{
		"no member answers":                   {nil, ""},
		"no member hears of a leader":         {map[string]agentapi.Status{"orders-0": says(ours, ""), "orders-2": {SystemIdentifier: ours}}, ""},
		"one hears of a leader":               {map[string]agentapi.Status{"orders-0": says(ours, ""), "orders-2": says(ours, "c")}, "orders-2 says that c leads"},
		"one is behind":                       {map[string]agentapi.Status{"orders-2": says(ours, "a")}, ""},
		"one of another cluster has a leader": {map[string]agentapi.Status{"orders-2": says(theirs, "c")}, ""},
	} {
		ask := func(_ context.Context, pod string) (agentapi.Status, error) {
			if s, there := c.say[pod]; there {
				return s, nil
			}
			return agentapi.Status{}, errors.New("away")
		}
		got := findOthersObjection(t.Context(), []string{"orders-0", "orders-2"}, raftLogState{Member: "a", Cluster: ours}, ask)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A member that runs stops for a request only when nothing speaks against it.
func TestFollowRecoveryRequest(t *testing.T) {
	silent, led := leaderHistory{Since: 1}, leaderHistory{Leader: "b"}
	for name, c := range map[string]struct {
		pod    string // that is requested
		member string // whose data it is
		heard  leaderHistory
		others string
		stops  bool
		says   string
	}{
		"no member leads":                       {"orders-1", "a", silent, "", true, ""},
		"it hears a leader":                     {"orders-1", "a", led, "", false, "does not go on alone as requested: the quorum is back: b leads"},
		"another member hears a leader":         {"orders-1", "a", silent, "orders-2 says so", false, "does not go on alone as requested: orders-2 says so"},
		"the request is for another pod":        {"orders-0", "a", silent, "", false, ""},
		"the request is for other data than it": {"orders-1", "b", silent, "", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			config := &agent.Config{}
			config.UID, config.SystemIdentifier, config.Recovery = "u", ours, requested(c.pod)
			g := gateForTest(t, config, &memoryStore{})
			g.findObjection = func(context.Context, raftLogState) string { return c.others }
			settled(t, g.dir, mark{Volume: "v1"}, raftLogState{Member: c.member, Cluster: ours})
			l := &etcdRun{etcdAgent: &etcdAgent{guard: g, log: g.log}, heard: c.heard, restart: make(chan struct{}, 1)}
			l.checkOvertaken(t.Context())
			if stops := len(l.restart) == 1; stops != c.stops || l.objection != c.says {
				t.Errorf("stops: %v, says %q", stops, l.objection)
			}
			want := actStart
			if c.stops {
				want = actRecover
			}
			if d, _, err := g.planNext(t.Context()); d.Action != want || err != nil {
				t.Errorf("next it %s, %v", d.Message, err)
			}
		})
	}
}

// When etcd has stopped for the request, the others are asked once more.
func TestStepAsksBeforeItGoesOnAlone(t *testing.T) {
	config := &agent.Config{}
	config.UID, config.SystemIdentifier, config.Recovery = "u", ours, requested("orders-1")
	g := gateForTest(t, config, &memoryStore{})
	g.findObjection = func(context.Context, raftLogState) string { return "orders-2 says so" }
	g.leaderless = config.Recovery.Token
	settled(t, g.dir, mark{Volume: "v1"}, raftLogState{Member: "a", Cluster: ours})
	a := &etcdAgent{guard: g, log: g.log, Host: &agent.Host{Store: statusserver.NewStore(agentapi.Status{})}}
	if pause, err := a.doStep(t.Context()); pause != 0 || err != nil {
		t.Errorf("pause %s, %v", pause, err)
	}
	if d, _, err := g.planNext(t.Context()); d.Action != actStart || err != nil {
		t.Errorf("next it %s, %v", d.Message, err)
	}
}

// What etcd heard before it stopped counts for the next step, and no longer: the
// quorum may be back by the one after that.
func TestStepForgetsThatNoMemberLed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(config *agent.Config)
		space  diskspace.Space
	}{
		"going on alone failed":       {func(*agent.Config) {}, diskspace.Space{}},
		"there was no space to start": {func(*agent.Config) {}, diskspace.Space{Free: 1, Total: 100}},
		"the request was not there":   {func(c *agent.Config) { c.Recovery = nil }, diskspace.Space{}},
	} {
		t.Run(name, func(t *testing.T) {
			full, config := true, &agent.Config{}
			config.UID, config.SystemIdentifier, config.Recovery = "u", ours, requested("orders-1")
			g := gateForTest(t, config, &memoryStore{})
			g.findObjection = func(context.Context, raftLogState) string { return "" }
			g.space = func() diskspace.Space {
				if full {
					return c.space
				}
				return diskspace.Space{}
			}
			g.leaderless = config.Recovery.Token
			settled(t, g.dir, mark{Volume: "v1"}, raftLogState{Member: "a", Cluster: ours})
			a := &etcdAgent{guard: g, log: g.log, Host: agent.NewHost(agent.HostOptions{Log: g.log, Client: fake.NewClientset()})}
			c.change(config)
			_, _ = a.doStep(t.Context()) // it has no certificate to start with
			full, config.Recovery = false, requested("orders-1")
			if d, _, err := g.planNext(t.Context()); d.Action != actStart || err != nil {
				t.Errorf("next it %s, %v", d.Message, err)
			}
		})
	}
}
