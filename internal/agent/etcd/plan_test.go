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
	return volume{Content: contentData, RaftLog: raftLogState{Member: id, Cluster: ours}, Mark: mark{Volume: "v1", Member: id, Cluster: ours}}
}

// servedBy is the data of the member a that a version has served.
func servedBy(version string) volume {
	v := data("a")
	v.Mark.Served = served{"a", version}
	return v
}

// restored is the data of the member a as it was restored for a cluster.
func restored(cluster string, m mark) volume {
	return volume{Content: contentData, RaftLog: raftLogState{"a", ours, 1}, Mark: m, RestoredFor: cluster}
}

func empty(m mark) volume { return volume{Mark: m} }

func joining(id string) *etcdapi.JoinGrant {
	return &etcdapi.JoinGrant{MemberID: id, State: etcdapi.JoinExisting}
}

func seeding() *etcdapi.JoinGrant {
	return &etcdapi.JoinGrant{MemberID: etcdapi.SeedMember, State: etcdapi.JoinNew}
}

// requested is the request to go on alone, for the member a under a pod.
func requested(pod string) *etcdapi.Recovery {
	return &etcdapi.Recovery{Token: "1", Pod: pod, MemberID: "a"}
}

func started(id, volume string) leaseclient.MembershipRecord {
	return leaseclient.MembershipRecord{Cluster: "u", SystemIdentifier: ours, Starts: []leaseclient.Start{{Member: id, Pod: "orders-1", Volume: volume}}}
}

func TestDecide(t *testing.T) {
	open := leaseclient.MembershipRecord{Cluster: "u"}
	named := mark{Volume: "v1"}
	held := func(h agentapi.Hold) verdict { return verdict{actHold, h} }
	do := func(a action) verdict { return verdict{Action: a} }
	cases := []struct {
		name  string
		facts observation
		want  verdict
	}{
		// Data.
		{"data starts without a join grant, and without the API server", observation{Volume: data("a")}, do(actStart)},
		{"data starts whatever join grant the pod has of its own", observation{Volume: data("a"), JoinGrant: joining("a")}, do(actStart)},
		{"data starts while the group does not confirm its successor", observation{Volume: data("a"), JoinGrant: joining("b")}, do(actStart)},
		{"data stays when the group does not count the grant's member", observation{Volume: data("a"), JoinGrant: joining("b"), Confirmed: confirmNo}, do(actStart)},
		{"data of a member that the group has replaced is set aside", observation{Volume: data("a"), JoinGrant: joining("b"), Confirmed: confirmYes}, do(actSetAside)},
		{"data is not set aside for a new group", observation{Volume: data("a"), JoinGrant: seeding(), Confirmed: confirmYes}, do(actStart)},
		{"a removed member holds", observation{Volume: data("a"), Removed: "a"}, held(agentapi.HoldRemoved)},
		{"a removed member holds until the group confirms its successor", observation{Volume: data("a"), Removed: "a", JoinGrant: joining("b")}, held(agentapi.HoldRemoved)},
		{"another member's removal is not this one's", observation{Volume: data("b"), Removed: "a"}, do(actStart)},
		{"another cluster's data is held by the configuration", observation{Volume: data("a"), ConfigSystemIdentifier: theirs}, held(agentapi.HoldSystemIdentifier)},
		{"another cluster's data is held by the membership record",
			observation{Volume: data("a"), MembershipKnown: true, Membership: leaseclient.MembershipRecord{SystemIdentifier: theirs}}, held(agentapi.HoldSystemIdentifier)},
		{"data that is not what was marked is held",
			observation{Volume: volume{Content: contentData, RaftLog: raftLogState{"a", theirs, 1}, Mark: mark{Cluster: ours}}}, held(agentapi.HoldSystemIdentifier)},
		{"a bootstrap is recorded before it serves",
			observation{Volume: volume{Content: contentData, RaftLog: raftLogState{"a", ours, 1}, Mark: named}, MembershipKnown: true, Membership: open}, do(actRecordBootstrap)},
		{"a bootstrap does not serve while the membership record cannot be read",
			observation{Volume: volume{Content: contentData, RaftLog: raftLogState{"a", ours, 1}, Mark: named}}, do(actWait)},
		{"a bootstrap that is recorded serves",
			observation{Volume: volume{Content: contentData, RaftLog: raftLogState{"a", ours, 1}, Mark: named}, MembershipKnown: true, Membership: started("a", "v1")}, do(actStart)},
		{"data waits for the configuration", observation{Volume: data("a"), Cluster: "-"}, do(actWait)},
		{"a full volume holds", observation{Volume: func() volume { v := data("a"); v.Space = diskspace.Space{Free: 1 << 20, Total: 1 << 30}; return v }()}, held(agentapi.HoldVolumeFull)},
		{"unknown files hold", observation{Volume: volume{Content: contentUnknown}, JoinGrant: seeding()}, held(agentapi.HoldDataUnknown)},

		// Restored data.
		{"restored data waits for the membership record, though the configuration knows it", observation{Volume: restored("u", mark{}), ConfigSystemIdentifier: ours}, do(actWait)},
		{"it opens a membership record that an earlier cluster left behind",
			observation{Volume: restored("u", named), MembershipKnown: true, Membership: leaseclient.MembershipRecord{Cluster: "old", SystemIdentifier: theirs}}, do(actOpenRecord)},
		{"its volume gets a name first", observation{Volume: restored("u", mark{}), ConfigSystemIdentifier: ours, MembershipKnown: true, Membership: open}, do(actName)},
		{"it is recorded before it serves, though the configuration knows it",
			observation{Volume: restored("u", named), ConfigSystemIdentifier: ours, MembershipKnown: true, Membership: open}, do(actRecordBootstrap)},
		{"it serves when it is recorded", observation{Volume: restored("u", named), MembershipKnown: true, Membership: started("a", "v1")}, do(actStart)},
		{"it is any data from then on", observation{Volume: restored("u", data("a").Mark)}, do(actStart)},
		{"it is held by another cluster's bootstrap under this name",
			observation{Volume: restored("u", named), MembershipKnown: true, Membership: leaseclient.MembershipRecord{Cluster: "u", SystemIdentifier: theirs}}, held(agentapi.HoldSystemIdentifier)},
		{"it is held where the configuration knows another", observation{Volume: restored("u", named), ConfigSystemIdentifier: theirs, MembershipKnown: true, Membership: open}, held(agentapi.HoldSystemIdentifier)},
		{"data that was restored for another cluster is any data",
			observation{Volume: restored("old", named), MembershipKnown: true, Membership: leaseclient.MembershipRecord{Cluster: "old", SystemIdentifier: theirs}}, held(agentapi.HoldSystemIdentifier)},

		// Versions.
		{"data that another patch has served starts", observation{Volume: servedBy("3.6.11"), Version: "3.6.16"}, do(actStart)},
		{"data of an earlier minor version starts", observation{Volume: servedBy("3.5.26"), Version: "3.6.16"}, do(actStart)},
		{"data of too early a patch holds", observation{Volume: servedBy("3.5.9"), Version: "3.6.16"}, held(agentapi.HoldDataVersion)},
		{"data from two minor versions before holds", observation{Volume: servedBy("3.5.26"), Version: "3.7.3"}, held(agentapi.HoldDataVersion)},
		{"data from two minor versions on holds", observation{Volume: servedBy("3.7.3"), Version: "3.5.35"}, held(agentapi.HoldDataVersion)},
		{"whether it may go back by one is etcd's to say", observation{Volume: servedBy("3.6.16"), Version: "3.5.35"}, do(actStart)},
		{"whether it may go back by a patch is, too", observation{Volume: servedBy("3.6.16"), Version: "3.6.11"}, do(actStart)},
		{"data that no version is known to have served starts", observation{Volume: data("a"), Version: "3.7.3"}, do(actStart)},
		{"the version of other data says nothing",
			observation{Volume: func() volume { v := servedBy("3.5.9"); v.Mark.Served.Member = "z"; return v }(), Version: "3.7.3"}, do(actStart)},
		{"data that is of no more use is set aside, whatever served it",
			observation{Volume: servedBy("3.5.9"), Version: "3.7.3", JoinGrant: joining("b"), Confirmed: confirmYes}, do(actSetAside)},
		{"no request leads around it", observation{Volume: servedBy("3.5.9"), Version: "3.7.3", Recovery: requested("orders-1"), Leaderless: "1"}, held(agentapi.HoldDataVersion)},

		// Recovery.
		{"the requested member goes on alone", observation{Volume: data("a"), Recovery: requested("orders-1"), Leaderless: "1"}, do(actRecover)},
		{"it starts with the others while it is not sure that no member leads", observation{Volume: data("a"), Recovery: requested("orders-1")}, do(actStart)},
		{"no member led before another request", observation{Volume: data("a"), Recovery: requested("orders-1"), Leaderless: "0"}, do(actStart)},
		{"a removed member does not", observation{Volume: data("a"), Recovery: requested("orders-1"), Leaderless: "1", Removed: "a"}, held(agentapi.HoldRemoved)},
		{"other data on its pod does not", observation{Volume: data("b"), Recovery: requested("orders-1"), Leaderless: "1"}, do(actStart)},
		{"another pod does not", observation{Volume: data("a"), Recovery: requested("orders-0"), Leaderless: "1"}, do(actStart)},
		{"a request is carried out once",
			observation{Volume: func() volume { v := data("a"); v.Mark.Recovered = "1"; return v }(), Recovery: requested("orders-1"), Leaderless: "1"}, do(actStart)},
		{"an empty volume does not recover", observation{Recovery: requested("orders-1"), Leaderless: "1"}, do(actWait)},

		// The seed.
		{"an empty volume waits for a join grant", observation{}, do(actWait)},
		{"the membership record is opened first", observation{JoinGrant: seeding(), MembershipKnown: true}, do(actOpenRecord)},
		{"nothing is bootstrapped while the membership record cannot be read", observation{JoinGrant: seeding()}, do(actWait)},
		{"a volume has a name before a bootstrap", observation{JoinGrant: seeding(), MembershipKnown: true, Membership: open}, do(actName)},
		{"the seed is bootstrapped", observation{JoinGrant: seeding(), Volume: empty(named), MembershipKnown: true, Membership: open}, do(actBootstrap)},
		{"nothing is bootstrapped twice, by the membership record", observation{JoinGrant: seeding(), Volume: empty(named), MembershipKnown: true, Membership: started("a", "v0")}, held(agentapi.HoldDataMissing)},
		{"nothing is bootstrapped twice, by the configuration",
			observation{JoinGrant: seeding(), Volume: empty(named), ConfigSystemIdentifier: ours, MembershipKnown: true, Membership: open}, held(agentapi.HoldDataMissing)},
		{"nothing is bootstrapped on a volume that was in use",
			observation{JoinGrant: seeding(), Volume: empty(mark{Volume: "v1", Member: "a"}), MembershipKnown: true, Membership: open}, held(agentapi.HoldDataMissing)},
		{"the record of an earlier cluster of which nothing is left says nothing",
			observation{JoinGrant: seeding(), Fresh: true, MembershipKnown: true, Membership: leaseclient.MembershipRecord{Cluster: "old", SystemIdentifier: theirs}}, do(actOpenRecord)},
		{"the record of an earlier cluster of which something is left forbids a bootstrap",
			observation{JoinGrant: seeding(), MembershipKnown: true, Membership: leaseclient.MembershipRecord{Cluster: "old", SystemIdentifier: theirs}}, held(agentapi.HoldDataMissing)},

		// Joiners.
		{"a joining member waits for the membership record", observation{JoinGrant: joining("b"), Confirmed: confirmYes}, do(actWait)},
		{"a joiner waits for the group", observation{JoinGrant: joining("b"), MembershipKnown: true, Membership: open}, do(actWait)},
		{"a stale join grant admits no member", observation{JoinGrant: joining("b"), MembershipKnown: true, Membership: open, Confirmed: confirmNo}, do(actWait)},
		{"a joiner's volume gets its name", observation{JoinGrant: joining("b"), MembershipKnown: true, Membership: open, Confirmed: confirmYes}, do(actName)},
		{"a joining member is recorded before it starts", observation{JoinGrant: joining("b"), Volume: empty(named), MembershipKnown: true, Membership: open, Confirmed: confirmYes}, do(actRecordStart)},
		{"a joining member recorded on this volume starts", observation{JoinGrant: joining("b"), Volume: empty(named), MembershipKnown: true, Membership: started("b", "v1"), Confirmed: confirmYes}, do(actJoin)},
		{"a joining member recorded on another volume does not",
			observation{JoinGrant: joining("b"), Volume: empty(named), MembershipKnown: true, Membership: started("b", "v0"), Confirmed: confirmYes}, held(agentapi.HoldDataMissing)},
		{"nor on a volume without a name",
			observation{JoinGrant: joining("b"), MembershipKnown: true, Membership: started("b", "v0"), Confirmed: confirmYes}, held(agentapi.HoldDataMissing)},
		{"a volume whose data has gone is not started on again",
			observation{JoinGrant: joining("b"), Volume: empty(mark{Volume: "v1", Member: "b"}), MembershipKnown: true, Membership: started("b", "v1"), Confirmed: confirmYes}, held(agentapi.HoldDataMissing)},
		{"nor is one whose first start may have had data",
			observation{JoinGrant: joining("b"), Volume: empty(mark{Volume: "v1", Begun: "b"}), MembershipKnown: true, Membership: started("b", "v1"), Confirmed: confirmYes}, held(agentapi.HoldDataMissing)},
		{"a volume of a replaced member takes the next one",
			observation{JoinGrant: joining("c"), Volume: empty(mark{Volume: "v1", Member: "b"}), MembershipKnown: true, Membership: started("b", "v1"), Confirmed: confirmYes}, do(actRecordStart)},

		// Without a join grant.
		{"an emptied volume says so by its mark", observation{Volume: empty(mark{Volume: "v1", Member: "b"})}, held(agentapi.HoldDataMissing)},
		{"an empty volume in place of one in use says so by the membership record", observation{MembershipKnown: true, Membership: started("b", "v0")}, held(agentapi.HoldDataMissing)},
		{"a new pod of a bootstrapped cluster waits to be admitted", observation{ConfigSystemIdentifier: ours, MembershipKnown: true, Membership: open}, do(actWait)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.facts.Pod = "orders-1"
			if c.facts.ConfigKnown = c.facts.Cluster != "-"; c.facts.ConfigKnown {
				c.facts.Cluster = "u"
			}
			got := planStart(c.facts)
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
		facts observation
		want  string
	}{
		"the one of the join grant":             {observation{JoinGrant: joining("c"), MembershipKnown: true, Membership: started("c", "v0")}, "c"},
		"the one of the mark":                   {observation{Volume: empty(mark{Volume: "v1", Member: "b"})}, "b"},
		"one that may have had data":            {observation{Volume: empty(mark{Volume: "v1", Begun: "b"})}, "b"},
		"the last one of the membership record": {observation{MembershipKnown: true, Membership: started("a", "v0").WithStart(leaseclient.Start{Member: "b", Pod: "orders-1"}).WithStart(leaseclient.Start{Member: "c", Pod: "orders-2"})}, "b"},
		"none before a second bootstrap":        {observation{JoinGrant: seeding(), ConfigSystemIdentifier: ours, MembershipKnown: true}, ""},
		"none for a new pod":                    {observation{ConfigSystemIdentifier: ours, MembershipKnown: true, Membership: leaseclient.MembershipRecord{Cluster: "u"}}, ""},
		"none by the record of an earlier cluster": {
			observation{Fresh: true, MembershipKnown: true, Membership: leaseclient.MembershipRecord{Cluster: "old", Starts: []leaseclient.Start{{Member: "b", Pod: "orders-1"}}}}, ""},
	} {
		c.facts.Pod, c.facts.Cluster, c.facts.ConfigKnown = "orders-1", "u", true
		if got := planStart(c.facts); got.Lost != c.want {
			t.Errorf("%s: %q is lost, want %q", name, got.Lost, c.want)
		}
	}
}

// A member that was away for long learns the way that is left to it.
func TestLeftBehind(t *testing.T) {
	for have, next := range map[string]string{"3.5.9": "3.6.16", "3.5.26": "3.7.3"} {
		if why := (observation{Volume: servedBy(have), Version: next}).refusedVersion(); !strings.Contains(why, "delete this member's volume and pod") {
			t.Errorf("%s under %s: %q", have, next, why)
		}
	}
}
