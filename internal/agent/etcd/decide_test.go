package etcd

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

const ours, theirs = "cdf818194e3a8c32", "1ce95a1b8bb8d0c1"

// what a decision comes to, without its words.
type verdict struct {
	Action action
	Hold   agentapi.Hold
}

func data(id string) volume {
	return volume{Content: contentData, Log: logState{Member: id, Cluster: ours}, Mark: mark{Volume: "v1", Member: id, Cluster: ours}}
}

// servedBy is the data of the member a that a version has served.
func servedBy(version string) volume {
	v := data("a")
	v.Mark.Served = served{"a", version}
	return v
}

// restored is the data of the member a as it was restored for a cluster.
func restored(cluster string, m mark) volume {
	return volume{Content: contentData, Log: logState{"a", ours, 1}, Mark: m, RestoredFor: cluster}
}

func empty(m mark) volume { return volume{Mark: m} }

func joining(id string) *etcdapi.JoinGrant {
	return &etcdapi.JoinGrant{MemberID: id, State: etcdapi.JoinExisting}
}

func seeding() *etcdapi.JoinGrant {
	return &etcdapi.JoinGrant{MemberID: etcdapi.SeedMember, State: etcdapi.JoinNew}
}

// ordered is the order to go on alone, for the member a under a pod.
func ordered(pod string) *etcdapi.Recovery {
	return &etcdapi.Recovery{Token: "1", Pod: pod, MemberID: "a"}
}

func started(id, volume string) leaseclient.Register {
	return leaseclient.Register{Cluster: "u", SystemIdentifier: ours, Starts: []leaseclient.Start{{Member: id, Pod: "orders-1", Volume: volume}}}
}

func TestDecide(t *testing.T) {
	open := leaseclient.Register{Cluster: "u"}
	named := mark{Volume: "v1"}
	held := func(h agentapi.Hold) verdict { return verdict{actHold, h} }
	do := func(a action) verdict { return verdict{Action: a} }
	cases := []struct {
		name  string
		facts facts
		want  verdict
	}{
		// Data.
		{"data starts without a ticket, and without the API server", facts{Volume: data("a")}, do(actStart)},
		{"data starts whatever ticket the pod has of its own", facts{Volume: data("a"), Ticket: joining("a")}, do(actStart)},
		{"data starts while the group does not confirm its successor", facts{Volume: data("a"), Ticket: joining("b")}, do(actStart)},
		{"data stays when the group does not count the ticket's member", facts{Volume: data("a"), Ticket: joining("b"), Confirmed: confirmNo}, do(actStart)},
		{"data of a member that the group has replaced is set aside", facts{Volume: data("a"), Ticket: joining("b"), Confirmed: confirmYes}, do(actSetAside)},
		{"data is not set aside for a new group", facts{Volume: data("a"), Ticket: seeding(), Confirmed: confirmYes}, do(actStart)},
		{"a removed member holds", facts{Volume: data("a"), Removed: "a"}, held(agentapi.HoldRemoved)},
		{"a removed member holds until the group confirms its successor", facts{Volume: data("a"), Removed: "a", Ticket: joining("b")}, held(agentapi.HoldRemoved)},
		{"another member's removal is not this one's", facts{Volume: data("b"), Removed: "a"}, do(actStart)},
		{"another cluster's data is held by the configuration", facts{Volume: data("a"), ConfigSystemIdentifier: theirs}, held(agentapi.HoldSystemIdentifier)},
		{"another cluster's data is held by the register",
			facts{Volume: data("a"), RegisterKnown: true, Register: leaseclient.Register{SystemIdentifier: theirs}}, held(agentapi.HoldSystemIdentifier)},
		{"data that is not what was marked is held",
			facts{Volume: volume{Content: contentData, Log: logState{"a", theirs, 1}, Mark: mark{Cluster: ours}}}, held(agentapi.HoldSystemIdentifier)},
		{"a birth is recorded before it serves",
			facts{Volume: volume{Content: contentData, Log: logState{"a", ours, 1}, Mark: named}, RegisterKnown: true, Register: open}, do(actLatch)},
		{"a birth does not serve while the register cannot be read",
			facts{Volume: volume{Content: contentData, Log: logState{"a", ours, 1}, Mark: named}}, do(actWait)},
		{"a birth that is on record serves",
			facts{Volume: volume{Content: contentData, Log: logState{"a", ours, 1}, Mark: named}, RegisterKnown: true, Register: started("a", "v1")}, do(actStart)},
		{"data waits for the configuration", facts{Volume: data("a"), Cluster: "-"}, do(actWait)},
		{"a full volume holds", facts{Volume: func() volume { v := data("a"); v.Space = diskspace.Space{Free: 1 << 20, Total: 1 << 30}; return v }()}, held(agentapi.HoldVolumeFull)},
		{"unknown files hold", facts{Volume: volume{Content: contentUnknown}, Ticket: seeding()}, held(agentapi.HoldDataUnknown)},

		// Restored data.
		{"restored data waits for the register, though the configuration knows it", facts{Volume: restored("u", mark{}), ConfigSystemIdentifier: ours}, do(actWait)},
		{"it opens a register that an earlier cluster left behind",
			facts{Volume: restored("u", named), RegisterKnown: true, Register: leaseclient.Register{Cluster: "old", SystemIdentifier: theirs}}, do(actOpen)},
		{"its volume gets a name first", facts{Volume: restored("u", mark{}), ConfigSystemIdentifier: ours, RegisterKnown: true, Register: open}, do(actName)},
		{"it is recorded before it serves, though the configuration knows it",
			facts{Volume: restored("u", named), ConfigSystemIdentifier: ours, RegisterKnown: true, Register: open}, do(actLatch)},
		{"it serves when it is on record", facts{Volume: restored("u", named), RegisterKnown: true, Register: started("a", "v1")}, do(actStart)},
		{"it is any data from then on", facts{Volume: restored("u", data("a").Mark)}, do(actStart)},
		{"it is held by another cluster's birth under this name",
			facts{Volume: restored("u", named), RegisterKnown: true, Register: leaseclient.Register{Cluster: "u", SystemIdentifier: theirs}}, held(agentapi.HoldSystemIdentifier)},
		{"it is held where the configuration knows another", facts{Volume: restored("u", named), ConfigSystemIdentifier: theirs, RegisterKnown: true, Register: open}, held(agentapi.HoldSystemIdentifier)},
		{"data that was restored for another cluster is any data",
			facts{Volume: restored("old", named), RegisterKnown: true, Register: leaseclient.Register{Cluster: "old", SystemIdentifier: theirs}}, held(agentapi.HoldSystemIdentifier)},

		// Versions.
		{"data that another patch has served starts", facts{Volume: servedBy("3.6.11"), Version: "3.6.16"}, do(actStart)},
		{"data of an earlier minor version starts", facts{Volume: servedBy("3.5.26"), Version: "3.6.16"}, do(actStart)},
		{"data of too early a patch holds", facts{Volume: servedBy("3.5.9"), Version: "3.6.16"}, held(agentapi.HoldDataVersion)},
		{"data from two minor versions before holds", facts{Volume: servedBy("3.5.26"), Version: "3.7.3"}, held(agentapi.HoldDataVersion)},
		{"data from two minor versions on holds", facts{Volume: servedBy("3.7.3"), Version: "3.5.35"}, held(agentapi.HoldDataVersion)},
		{"whether it may go back by one is etcd's to say", facts{Volume: servedBy("3.6.16"), Version: "3.5.35"}, do(actStart)},
		{"whether it may go back by a patch is, too", facts{Volume: servedBy("3.6.16"), Version: "3.6.11"}, do(actStart)},
		{"data that no version is known to have served starts", facts{Volume: data("a"), Version: "3.7.3"}, do(actStart)},
		{"the version of other data says nothing",
			facts{Volume: func() volume { v := servedBy("3.5.9"); v.Mark.Served.Member = "z"; return v }(), Version: "3.7.3"}, do(actStart)},
		{"data that is of no more use is set aside, whatever served it",
			facts{Volume: servedBy("3.5.9"), Version: "3.7.3", Ticket: joining("b"), Confirmed: confirmYes}, do(actSetAside)},
		{"no order leads around it", facts{Volume: servedBy("3.5.9"), Version: "3.7.3", Recovery: ordered("orders-1"), Leaderless: "1"}, held(agentapi.HoldDataVersion)},

		// Recovery.
		{"the ordered member goes on alone", facts{Volume: data("a"), Recovery: ordered("orders-1"), Leaderless: "1"}, do(actRecover)},
		{"it starts with the others while it is not sure that nobody leads", facts{Volume: data("a"), Recovery: ordered("orders-1")}, do(actStart)},
		{"nobody led before another order", facts{Volume: data("a"), Recovery: ordered("orders-1"), Leaderless: "0"}, do(actStart)},
		{"a removed member does not", facts{Volume: data("a"), Recovery: ordered("orders-1"), Leaderless: "1", Removed: "a"}, held(agentapi.HoldRemoved)},
		{"other data on its pod does not", facts{Volume: data("b"), Recovery: ordered("orders-1"), Leaderless: "1"}, do(actStart)},
		{"another pod does not", facts{Volume: data("a"), Recovery: ordered("orders-0"), Leaderless: "1"}, do(actStart)},
		{"an order is carried out once",
			facts{Volume: func() volume { v := data("a"); v.Mark.Recovered = "1"; return v }(), Recovery: ordered("orders-1"), Leaderless: "1"}, do(actStart)},
		{"an empty volume does not recover", facts{Recovery: ordered("orders-1"), Leaderless: "1"}, do(actWait)},

		// The seed.
		{"an empty volume waits for a ticket", facts{}, do(actWait)},
		{"the register is opened first", facts{Ticket: seeding(), RegisterKnown: true}, do(actOpen)},
		{"nothing is born while the register cannot be read", facts{Ticket: seeding()}, do(actWait)},
		{"a volume has a name before a birth", facts{Ticket: seeding(), RegisterKnown: true, Register: open}, do(actName)},
		{"the seed is born", facts{Ticket: seeding(), Volume: empty(named), RegisterKnown: true, Register: open}, do(actBirth)},
		{"nothing is born twice, by the register", facts{Ticket: seeding(), Volume: empty(named), RegisterKnown: true, Register: started("a", "v0")}, held(agentapi.HoldDataMissing)},
		{"nothing is born twice, by the configuration",
			facts{Ticket: seeding(), Volume: empty(named), ConfigSystemIdentifier: ours, RegisterKnown: true, Register: open}, held(agentapi.HoldDataMissing)},
		{"nothing is born on a volume that was in use",
			facts{Ticket: seeding(), Volume: empty(mark{Volume: "v1", Member: "a"}), RegisterKnown: true, Register: open}, held(agentapi.HoldDataMissing)},
		{"the register of an earlier cluster of which nothing is left says nothing",
			facts{Ticket: seeding(), Fresh: true, RegisterKnown: true, Register: leaseclient.Register{Cluster: "old", SystemIdentifier: theirs}}, do(actOpen)},
		{"the register of an earlier cluster of which something is left forbids a birth",
			facts{Ticket: seeding(), RegisterKnown: true, Register: leaseclient.Register{Cluster: "old", SystemIdentifier: theirs}}, held(agentapi.HoldDataMissing)},

		// Joiners.
		{"a joiner waits for the register", facts{Ticket: joining("b"), Confirmed: confirmYes}, do(actWait)},
		{"a joiner waits for the group", facts{Ticket: joining("b"), RegisterKnown: true, Register: open}, do(actWait)},
		{"a stale ticket admits nobody", facts{Ticket: joining("b"), RegisterKnown: true, Register: open, Confirmed: confirmNo}, do(actWait)},
		{"a joiner's volume gets its name", facts{Ticket: joining("b"), RegisterKnown: true, Register: open, Confirmed: confirmYes}, do(actName)},
		{"a joiner is put on record before it starts", facts{Ticket: joining("b"), Volume: empty(named), RegisterKnown: true, Register: open, Confirmed: confirmYes}, do(actRegister)},
		{"a joiner on record on this volume starts", facts{Ticket: joining("b"), Volume: empty(named), RegisterKnown: true, Register: started("b", "v1"), Confirmed: confirmYes}, do(actJoin)},
		{"a joiner on record on another volume does not",
			facts{Ticket: joining("b"), Volume: empty(named), RegisterKnown: true, Register: started("b", "v0"), Confirmed: confirmYes}, held(agentapi.HoldDataMissing)},
		{"nor on a volume without a name",
			facts{Ticket: joining("b"), RegisterKnown: true, Register: started("b", "v0"), Confirmed: confirmYes}, held(agentapi.HoldDataMissing)},
		{"a volume whose data has gone is not started on again",
			facts{Ticket: joining("b"), Volume: empty(mark{Volume: "v1", Member: "b"}), RegisterKnown: true, Register: started("b", "v1"), Confirmed: confirmYes}, held(agentapi.HoldDataMissing)},
		{"nor is one whose first start may have had data",
			facts{Ticket: joining("b"), Volume: empty(mark{Volume: "v1", Begun: "b"}), RegisterKnown: true, Register: started("b", "v1"), Confirmed: confirmYes}, held(agentapi.HoldDataMissing)},
		{"a volume of a replaced member takes the next one",
			facts{Ticket: joining("c"), Volume: empty(mark{Volume: "v1", Member: "b"}), RegisterKnown: true, Register: started("b", "v1"), Confirmed: confirmYes}, do(actRegister)},

		// Without a ticket.
		{"an emptied volume says so by its mark", facts{Volume: empty(mark{Volume: "v1", Member: "b"})}, held(agentapi.HoldDataMissing)},
		{"an empty volume in place of one in use says so by the register", facts{RegisterKnown: true, Register: started("b", "v0")}, held(agentapi.HoldDataMissing)},
		{"a new pod of a born cluster waits to be admitted", facts{ConfigSystemIdentifier: ours, RegisterKnown: true, Register: open}, do(actWait)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.facts.Pod = "orders-1"
			if c.facts.ConfigKnown = c.facts.Cluster != "-"; c.facts.ConfigKnown {
				c.facts.Cluster = "u"
			}
			got := decide(c.facts)
			if diff := cmp.Diff(c.want, verdict{got.Action, got.Hold}); diff != "" {
				t.Errorf("decide (-want +got):\n%s\nmessage: %s", diff, got.Message)
			}
			if got.Message == "" {
				t.Error("a decision says why")
			}
		})
	}
}

// The operator replaces the member that the agent names, and no other.
func TestDecideNamesTheLostMember(t *testing.T) {
	for name, c := range map[string]struct {
		facts facts
		want  string
	}{
		"the one of the ticket":        {facts{Ticket: joining("c"), RegisterKnown: true, Register: started("c", "v0")}, "c"},
		"the one of the mark":          {facts{Volume: empty(mark{Volume: "v1", Member: "b"})}, "b"},
		"one that may have had data":   {facts{Volume: empty(mark{Volume: "v1", Begun: "b"})}, "b"},
		"the last one of the register": {facts{RegisterKnown: true, Register: started("a", "v0").WithStart(leaseclient.Start{Member: "b", Pod: "orders-1"}).WithStart(leaseclient.Start{Member: "c", Pod: "orders-2"})}, "b"},
		"nobody before a second birth": {facts{Ticket: seeding(), ConfigSystemIdentifier: ours, RegisterKnown: true}, ""},
		"nobody for a new pod":         {facts{ConfigSystemIdentifier: ours, RegisterKnown: true, Register: leaseclient.Register{Cluster: "u"}}, ""},
		"nobody by the register of an earlier cluster": {
			facts{Fresh: true, RegisterKnown: true, Register: leaseclient.Register{Cluster: "old", Starts: []leaseclient.Start{{Member: "b", Pod: "orders-1"}}}}, ""},
	} {
		c.facts.Pod, c.facts.Cluster, c.facts.ConfigKnown = "orders-1", "u", true
		if got := decide(c.facts); got.Lost != c.want {
			t.Errorf("%s: %q is lost, want %q", name, got.Lost, c.want)
		}
	}
}

// A member that was away for long is told the way that is left to it.
func TestLeftBehind(t *testing.T) {
	for have, next := range map[string]string{"3.5.9": "3.6.16", "3.5.26": "3.7.3"} {
		if why := (facts{Volume: servedBy(have), Version: next}).refusedVersion(); !strings.Contains(why, "delete this member's volume and pod") {
			t.Errorf("%s under %s: %q", have, next, why)
		}
	}
}
