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

	"github.com/holdfast-db/holdfast/internal/member"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// answering is what etcd, as the member a, answers when it hears of a leader.
func answering(leader uint64, others ...memberapi.GroupMember) sight {
	return sight{
		Status:  &clientv3.StatusResponse{Header: &etcdserverpb.ResponseHeader{MemberId: 0xa}, Leader: leader},
		Members: append(others, memberapi.GroupMember{ID: "a"}),
	}
}

func TestHearing(t *testing.T) {
	voter, learner := memberapi.GroupMember{ID: "b"}, memberapi.GroupMember{ID: "c", Learner: true}
	peersOnly := sight{Members: []memberapi.GroupMember{{ID: "a"}, voter}}
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
	says := func(cluster, leader string) memberapi.Status {
		return memberapi.Status{SystemIdentifier: cluster, Group: &memberapi.Group{Leader: leader}}
	}
	for name, c := range map[string]struct {
		say  map[string]memberapi.Status
		want string
	}{
		"nobody answers":                      {nil, ""},
		"nobody hears of a leader":            {map[string]memberapi.Status{"orders-0": says(ours, ""), "orders-2": {SystemIdentifier: ours}}, ""},
		"one hears of a leader":               {map[string]memberapi.Status{"orders-0": says(ours, ""), "orders-2": says(ours, "c")}, "orders-2 says that c leads"},
		"one is behind":                       {map[string]memberapi.Status{"orders-2": says(ours, "a")}, ""},
		"one of another cluster has a leader": {map[string]memberapi.Status{"orders-2": says(theirs, "c")}, ""},
	} {
		ask := func(_ context.Context, pod string) (memberapi.Status, error) {
			if s, there := c.say[pod]; there {
				return s, nil
			}
			return memberapi.Status{}, errors.New("away")
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
			config := &member.Config{}
			config.UID, config.SystemIdentifier, config.Recovery = "u", ours, ordered(c.pod)
			g := gateForTest(t, config, &shelf{})
			g.object = func(context.Context, logState) string { return c.others }
			settled(t, g.dir, mark{Volume: "v1"}, logState{Member: c.member, Cluster: ours})
			l := &life{agent: &agent{gate: g, log: g.log}, heard: c.heard, restart: make(chan struct{}, 1)}
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
	config := &member.Config{}
	config.UID, config.SystemIdentifier, config.Recovery = "u", ours, ordered("orders-1")
	g := gateForTest(t, config, &shelf{})
	g.object = func(context.Context, logState) string { return "orders-2 says so" }
	g.leaderless = config.Recovery.Token
	settled(t, g.dir, mark{Volume: "v1"}, logState{Member: "a", Cluster: ours})
	a := &agent{gate: g, log: g.log, Host: &member.Host{Store: member.NewStore(memberapi.Status{})}}
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
		change func(config *member.Config)
		space  member.Space
	}{
		"going on alone failed":      {func(*member.Config) {}, member.Space{}},
		"there was no room to start": {func(*member.Config) {}, member.Space{Free: 1, Total: 100}},
		"the order was not there":    {func(c *member.Config) { c.Recovery = nil }, member.Space{}},
	} {
		t.Run(name, func(t *testing.T) {
			full, config := true, &member.Config{}
			config.UID, config.SystemIdentifier, config.Recovery = "u", ours, ordered("orders-1")
			g := gateForTest(t, config, &shelf{})
			g.object = func(context.Context, logState) string { return "" }
			g.space = func() member.Space {
				if full {
					return c.space
				}
				return member.Space{}
			}
			g.leaderless = config.Recovery.Token
			settled(t, g.dir, mark{Volume: "v1"}, logState{Member: "a", Cluster: ours})
			a := &agent{gate: g, log: g.log, Host: member.NewHost(member.HostOptions{Log: g.log, Client: fake.NewClientset()})}
			c.change(config)
			_, _ = a.step(t.Context()) // it has no certificate to start with
			full, config.Recovery = false, ordered("orders-1")
			if d, _, err := g.next(t.Context()); d.Action != actStart || err != nil {
				t.Errorf("next it %s, %v", d.Message, err)
			}
		})
	}
}
