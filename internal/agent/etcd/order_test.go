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
func answering(leader uint64, others ...etcdapi.GroupMember) sight {
	return sight{
		Status:  &clientv3.StatusResponse{Header: &etcdserverpb.ResponseHeader{MemberId: 0xa}, Leader: leader},
		Members: append(others, etcdapi.GroupMember{ID: "a"}),
	}
}

func TestHearing(t *testing.T) {
	voter, learner := etcdapi.GroupMember{ID: "b"}, etcdapi.GroupMember{ID: "c", Learner: true}
	peersOnly := sight{Members: []etcdapi.GroupMember{{ID: "a"}, voter}}
	behind := sight{Members: peersOnly.Members, Led: true}
	// A look each second, and what speaks against going on alone after the last.
	for name, c := range map[string]struct {
		sights []sight
		want   string
	}{
		"nothing was heard yet":            {nil, "not sure"},
		"etcd has just started":            {[]sight{{}, peersOnly, peersOnly, peersOnly}, "not sure"},
		"it has not heard of any leader":   {[]sight{{}, peersOnly, peersOnly, peersOnly, peersOnly, peersOnly, peersOnly}, ""},
		"it had a leader and lost it":      {[]sight{answering(0xb, voter), answering(0), answering(0), answering(0), answering(0), answering(0), answering(0)}, ""},
		"it has lost it just now":          {[]sight{answering(0xb, voter), answering(0), answering(0), answering(0)}, "not sure"},
		"a leader came back":               {[]sight{answering(0), answering(0), answering(0), answering(0), answering(0), answering(0), answering(0xb, voter)}, "b leads"},
		"it was elected":                   {[]sight{answering(0), answering(0xa, voter)}, "a leads"},
		"it leads a learner":               {[]sight{answering(0xa, learner)}, "a leads"},
		"it follows, and is far behind":    {[]sight{behind, behind, behind, behind, behind, behind, behind}, "not sure"},
		"clients get no answer any more":   {[]sight{answering(0), peersOnly, peersOnly, peersOnly, peersOnly, peersOnly, peersOnly, peersOnly}, "not sure"},
		"etcd ended, and has just started": {[]sight{peersOnly, peersOnly, peersOnly, {}, {}, {}, peersOnly}, "not sure"},
	} {
		h, now := hearing{}, time.Hour
		for i, s := range c.sights {
			if i > 0 {
				now += time.Second
			}
			h = h.with(s, now)
		}
		got := h.objection(now, defaultElection)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Who lets elections take longer waits longer.
func TestElection(t *testing.T) {
	for value, want := range map[string]time.Duration{"": time.Second, "5000": 5 * time.Second, "soon": time.Second} {
		if got := (choice{Parameters: map[string]string{"election-timeout": value}}).election(); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
	h := hearing{Since: time.Hour}
	if h.objection(time.Hour+6*time.Second, 5*time.Second) == "" {
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
		"nobody answers":                      {nil, ""},
		"nobody hears of a leader":            {map[string]agentapi.Status{"orders-0": says(ours, ""), "orders-2": {SystemIdentifier: ours}}, ""},
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
		got := othersObject(t.Context(), []string{"orders-0", "orders-2"}, logState{Member: "a", Cluster: ours}, ask)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A member that runs stops for an order only when nothing speaks against it.
func TestObey(t *testing.T) {
	silent, led := hearing{Since: 1}, hearing{Leader: "b"}
	for name, c := range map[string]struct {
		pod    string // that is ordered
		member string // whose data it is
		heard  hearing
		others string
		stops  bool
		says   string
	}{
		"nobody leads":                        {"orders-1", "a", silent, "", true, ""},
		"it hears a leader":                   {"orders-1", "a", led, "", false, "does not go on alone as ordered: the quorum is back: b leads"},
		"another member hears a leader":       {"orders-1", "a", silent, "orders-2 says so", false, "does not go on alone as ordered: orders-2 says so"},
		"the order is for another pod":        {"orders-0", "a", silent, "", false, ""},
		"the order is for other data than it": {"orders-1", "b", silent, "", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			config := &agent.Config{}
			config.UID, config.SystemIdentifier, config.Recovery = "u", ours, ordered(c.pod)
			g := gateForTest(t, config, &shelf{})
			g.object = func(context.Context, logState) string { return c.others }
			settled(t, g.dir, mark{Volume: "v1"}, logState{Member: c.member, Cluster: ours})
			l := &life{etcdAgent: &etcdAgent{gate: g, log: g.log}, heard: c.heard, restart: make(chan struct{}, 1)}
			l.overtaken(t.Context())
			if stops := len(l.restart) == 1; stops != c.stops || l.objection != c.says {
				t.Errorf("stops: %v, says %q", stops, l.objection)
			}
			want := actStart
			if c.stops {
				want = actRecover
			}
			if d, _, err := g.next(t.Context()); d.Action != want || err != nil {
				t.Errorf("next it %s, %v", d.Message, err)
			}
		})
	}
}

// When etcd has stopped for the order, the others are asked once more.
func TestStepAsksBeforeItGoesOnAlone(t *testing.T) {
	config := &agent.Config{}
	config.UID, config.SystemIdentifier, config.Recovery = "u", ours, ordered("orders-1")
	g := gateForTest(t, config, &shelf{})
	g.object = func(context.Context, logState) string { return "orders-2 says so" }
	g.leaderless = config.Recovery.Token
	settled(t, g.dir, mark{Volume: "v1"}, logState{Member: "a", Cluster: ours})
	a := &etcdAgent{gate: g, log: g.log, Host: &agent.Host{Store: statusserver.NewStore(agentapi.Status{})}}
	if pause, err := a.step(t.Context()); pause != 0 || err != nil {
		t.Errorf("pause %s, %v", pause, err)
	}
	if d, _, err := g.next(t.Context()); d.Action != actStart || err != nil {
		t.Errorf("next it %s, %v", d.Message, err)
	}
}

// What etcd heard before it stopped counts for the next step, and no longer: the
// quorum may be back by the one after that.
func TestStepForgetsThatNobodyLed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(config *agent.Config)
		space  diskspace.Space
	}{
		"going on alone failed":      {func(*agent.Config) {}, diskspace.Space{}},
		"there was no room to start": {func(*agent.Config) {}, diskspace.Space{Free: 1, Total: 100}},
		"the order was not there":    {func(c *agent.Config) { c.Recovery = nil }, diskspace.Space{}},
	} {
		t.Run(name, func(t *testing.T) {
			full, config := true, &agent.Config{}
			config.UID, config.SystemIdentifier, config.Recovery = "u", ours, ordered("orders-1")
			g := gateForTest(t, config, &shelf{})
			g.object = func(context.Context, logState) string { return "" }
			g.space = func() diskspace.Space {
				if full {
					return c.space
				}
				return diskspace.Space{}
			}
			g.leaderless = config.Recovery.Token
			settled(t, g.dir, mark{Volume: "v1"}, logState{Member: "a", Cluster: ours})
			a := &etcdAgent{gate: g, log: g.log, Host: agent.NewHost(agent.HostOptions{Log: g.log, Client: fake.NewClientset()})}
			c.change(config)
			_, _ = a.step(t.Context()) // it has no certificate to start with
			full, config.Recovery = false, ordered("orders-1")
			if d, _, err := g.next(t.Context()); d.Action != actStart || err != nil {
				t.Errorf("next it %s, %v", d.Message, err)
			}
		})
	}
}
