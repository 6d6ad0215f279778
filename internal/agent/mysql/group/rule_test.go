package group

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// secondName is that of a group that went on without members.
const secondName = "5b8f3c1e-0000-4000-8000-000000000002"

func gtids(text string) mysqlgtid.Set {
	s, err := mysqlgtid.Parse(strings.NewReplacer("G", simulatedGroup, "N", secondName, "L", uuidOf(0)).Replace(text))
	if err != nil {
		panic(err)
	}
	return s
}

// detached is a member out of the group that holds the first transactions of it.
func detached(pod int, executed string) Report {
	return Report{Pod: "a-" + string(rune('0'+pod)), Ordinal: pod, UUID: uuidOf(pod), Group: simulatedGroup, Phase: Detached, Executed: gtids(executed)}
}

// serving is a member of a group of others, which the first of them leads.
func serving(pod int, executed string, view ...int) Report {
	r := detached(pod, executed)
	r.Phase = InGroup
	for i, other := range view {
		r.View.Members = append(r.View.Members, Member{UUID: uuidOf(other), State: Online, Primary: i == 0})
	}
	return r
}

// A member joins a group the way that the group agrees, which its primary reports.
func TestJoinAgreesAsTheGroup(t *testing.T) {
	for _, single := range []bool{false, true} {
		primary := with(serving(1, "G:1-7", 1, 2), func(r *Report) { r.SingleLeader, r.Persisted = single, []string{uuidOf(0)} })
		secondary := with(serving(2, "G:1-7", 1, 2), func(r *Report) { r.SingleLeader = !single })
		plan := PlanStart(Situation{
			Self: detached(0, "G:1-5"), Peers: []Report{secondary, primary}, RecordKnown: true,
			Record: recorded(0, 1, 2).WithJoining(uuidOf(0), "a-0"),
		})
		if plan.Action != Join || plan.SingleLeader != single {
			t.Errorf("a group with a single leader %t: %+v", single, plan)
		}
	}
}

// A group is started with a single leader once each member that answers could join it: the
// agent of an earlier build would be refused for good.
func TestStartedGroupTakesInEachMember(t *testing.T) {
	newer := func(pod int, executed string) Report {
		return with(detached(pod, executed), func(r *Report) { r.JoinsSingleLeader = true })
	}
	claimed := func(peers ...Report) Situation {
		return Situation{Self: newer(0, "G:1-9"), Peers: peers, Record: recorded(0, 1, 2).WithClaim(uuidOf(0)), RecordKnown: true, Claimed: 1}
	}
	for _, tc := range []struct {
		name string
		s    Situation
		want bool
	}{
		{"all agents are of this build", claimed(newer(1, "G:1-9"), newer(2, "G:1-8")), true},
		{"one is of an earlier build", claimed(newer(1, "G:1-9"), detached(2, "G:1-8")), false},
		{"one that is not recorded, and is still to be cloned, is", claimed(newer(1, "G:1-9"), newer(2, "G:1-9"), Report{Pod: "a-3", Ordinal: 3, Phase: Empty}), false},
		{"the only member", Situation{Self: newer(0, "G:1-9"), Persisted: recorded(0)}, true},
		{"the only recorded one, beside an earlier build's", Situation{Self: newer(0, "G:1-9"), Persisted: recorded(0), Peers: []Report{{Pod: "a-1", Ordinal: 1, Phase: Empty}}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := PlanStart(tc.s)
			if p.Action != StartGroup || p.SingleLeader != tc.want {
				t.Errorf("%+v, want a start with a single leader %t", p, tc.want)
			}
		})
	}
}

func recorded(pods ...int) Record {
	r := Record{Group: simulatedGroup}
	for _, pod := range pods {
		r = r.withEntry(Entry{UUID: uuidOf(pod), Pod: "a-" + string(rune('0'+pod))})
	}
	return r
}

// with changes a report.
func with(r Report, change func(*Report)) Report {
	change(&r)
	return r
}

// Members that are to join at the same time do so one after the other, and ask those
// that are online, the primary first.
func TestMembersJoinInTurn(t *testing.T) {
	primary := with(serving(1, "G:1-7", 4, 1, 5), func(r *Report) {
		for i, address := range []string{"a-4:3306", "a-1:3306", "a-5:3306"} {
			r.View.Members[i].Address, r.View.Members[i].Primary = address, i == 1
		}
		r.View.Members[2].State = Recovering
		r.Persisted = []string{uuidOf(0), uuidOf(2), uuidOf(3)}
	})
	record := recorded(1).WithJoining(uuidOf(0), "a-0").WithJoining(uuidOf(2), "a-2").WithJoining(uuidOf(3), "a-3")
	starting := func(pod int) Report { return with(detached(pod, "G:1-5"), func(r *Report) { r.Phase = Starting }) }
	for _, c := range []struct {
		self, turn int
		others     []Report
	}{
		{0, 0, []Report{detached(2, "G:1-5"), starting(3)}},
		{2, 0, nil},
		{2, 1, []Report{starting(0), detached(3, "G:1-5")}},
		{3, 2, []Report{detached(0, "G:1-5"), starting(2)}},
		{3, 0, []Report{with(detached(0, "G:1-5"), func(r *Report) { r.Phase = Down })}},
	} {
		plan := PlanStart(Situation{Self: detached(c.self, "G:1-5"), Peers: append([]Report{primary}, c.others...), Record: record, RecordKnown: true})
		if plan.Action != Join || !slices.Equal(plan.Seeds, []string{"a-1:3306", "a-4:3306"}) || plan.Turn != c.turn {
			t.Errorf("a-%d beside %d others: %+v", c.self, len(c.others), plan)
		}
	}
}

func TestPlanStart(t *testing.T) {
	persistedBy := func(r Report) Report { return with(r, func(r *Report) { r.Persisted = []string{uuidOf(0)} }) }
	joining := recorded(0, 1, 2).WithJoining(uuidOf(0), "a-0")
	cases := []struct {
		name   string
		s      Situation
		want   Action
		reason string
	}{
		// A group that serves.
		{"an empty volume is cloned", Situation{Self: Report{Phase: Empty}, Peers: []Report{serving(1, "G:1-5", 1)}}, CloneFrom, "the volume is empty"},
		{"an empty volume waits for a group", Situation{Self: Report{Phase: Empty}, Peers: []Report{detached(1, "G:1-5")}}, Wait, "no member of the group serves"},
		{"a member is recorded first", Situation{Self: detached(0, "G:1-5"), Peers: []Report{serving(1, "G:1-5", 1, 2)}, Record: recorded(0, 1, 2), RecordKnown: true}, RecordJoining, ""},
		{"a new member is recorded first", Situation{Self: detached(0, "G:1-5"), Peers: []Report{serving(1, "G:1-5", 1, 2)}, Record: recorded(1, 2), RecordKnown: true}, RecordJoining, ""},
		{"then the primary persists it", Situation{Self: detached(0, "G:1-5"), Peers: []Report{serving(1, "G:1-5", 1, 2)}, Record: joining, RecordKnown: true}, Wait, "has not persisted yet"},
		{"a secondary does not persist it for the primary", Situation{Self: detached(0, "G:1-5"), Peers: []Report{persistedBy(serving(2, "G:1-5", 1, 2))}, Record: joining, RecordKnown: true}, Wait, "the agent of the primary does not answer"},
		{"then it joins", Situation{Self: detached(0, "G:1-5"), Peers: []Report{persistedBy(serving(1, "G:1-7", 1, 2))}, Record: joining, RecordKnown: true}, Join, ""},
		{"not without the record", Situation{Self: detached(0, "G:1-5"), Peers: []Report{persistedBy(serving(1, "G:1-7", 1, 2))}}, Wait, "cannot be read"},
		{"not before its server answers", Situation{Self: with(detached(0, ""), func(r *Report) { r.Phase = Down }), Peers: []Report{serving(1, "G:1-7", 1, 2)}}, Wait, "own server"},
		{"not beside its earlier run", Situation{Self: detached(0, "G:1-5"), Peers: []Report{persistedBy(serving(1, "G:1-7", 1, 0))}, Record: joining, RecordKnown: true}, Wait, "expelled"},
		{"a local write is held", Situation{Self: detached(0, "G:1-5,L:1"), Peers: []Report{persistedBy(serving(1, "G:1-7", 1, 2))}, Record: joining, RecordKnown: true}, Hold, uuidOf(0) + ":1"},
		{"a local write is held before a clone", Situation{Self: detached(0, "G:1-5,L:1"), Peers: []Report{with(serving(1, "G:1-7", 1, 2), func(r *Report) { r.Purged = gtids("G:1-6") })}, Record: joining, RecordKnown: true}, Hold, ""},
		{"what was received counts", Situation{Self: with(detached(0, "G:1-5"), func(r *Report) { r.Received = gtids("G:6-9") }), Peers: []Report{persistedBy(serving(1, "G:1-7", 1, 2))}, Record: joining, RecordKnown: true}, Hold, "8-9"},
		{"what the peer has not applied yet counts", Situation{Self: detached(0, "G:1-9"), Peers: []Report{persistedBy(with(serving(1, "G:1-7", 1, 2), func(r *Report) { r.Received = gtids("G:8-9") }))}, Record: joining, RecordKnown: true}, Join, ""},
		{"purged binlogs need a clone", Situation{Self: detached(0, "G:1-5"), Peers: []Report{with(serving(1, "G:1-9", 1, 2), func(r *Report) { r.Purged = gtids("G:1-6") })}, Record: joining, RecordKnown: true}, CloneFrom, ":6"},
		{"binlogs that one peer has suffice", Situation{Self: detached(0, "G:1-5"), Peers: []Report{with(serving(2, "G:1-9", 1, 2), func(r *Report) { r.Purged = gtids("G:1-9") }), persistedBy(serving(1, "G:1-9", 1, 2))}, Record: joining, RecordKnown: true}, Join, ""},
		{"what one peer has received suffices", Situation{Self: detached(0, "G:1-9"), Peers: []Report{serving(2, "G:1-8", 1, 2), persistedBy(serving(1, "G:1-9", 1, 2))}, Record: joining, RecordKnown: true}, Join, ""},
		{"data of another group is held", Situation{Self: with(detached(0, "G:1-5"), func(r *Report) { r.Group = "other" }), Peers: []Report{serving(1, "G:1-9", 1, 2)}}, Hold, "other"},

		// No group serves.
		{"all are detached, and this one has the most", Situation{Self: detached(0, "G:1-9"), Peers: []Report{detached(1, "G:1-8"), detached(2, "G:1-9")}, Record: recorded(0, 1, 2), RecordKnown: true}, ClaimBoot, ""},
		{"another one has more", Situation{Self: detached(0, "G:1-8"), Peers: []Report{detached(1, "G:1-8"), detached(2, "G:1-9")}, Record: recorded(0, 1, 2), RecordKnown: true}, Wait, "a-2 starts the group"},
		{"another one has received more", Situation{Self: detached(0, "G:1-8"), Peers: []Report{with(detached(1, "G:1-7"), func(r *Report) { r.Received = gtids("G:1-9") })}, Record: recorded(0, 1), RecordKnown: true}, Wait, "a-1 starts the group"},
		{"of equal ones the first", Situation{Self: detached(1, "G:1-9"), Peers: []Report{detached(0, "G:1-9")}, Record: recorded(0, 1), RecordKnown: true}, Wait, "a-0 starts the group"},
		{"one does not answer", Situation{Self: detached(0, "G:1-9"), Peers: []Report{detached(1, "G:1-9")}, Record: recorded(0, 1, 2), RecordKnown: true}, Wait, "a-2"},
		{"one's server does not run", Situation{Self: detached(0, "G:1-9"), Peers: []Report{with(detached(1, "G:1-9"), func(r *Report) { r.Phase = Down })}, Record: recorded(0, 1), RecordKnown: true}, Wait, "a-1"},
		{"one has a new volume", Situation{Self: detached(0, "G:1-9"), Peers: []Report{with(detached(1, ""), func(r *Report) { r.UUID, r.Phase = "", Empty })}, Record: recorded(0, 1), RecordKnown: true}, Wait, "a-1"},
		{"one is about to start", Situation{Self: detached(0, "G:1-9"), Peers: []Report{with(detached(1, "G:1-9"), func(r *Report) { r.Phase = Starting })}, Record: recorded(0, 1), RecordKnown: true}, Wait, "about to be"},
		{"one is in a group without a majority", Situation{Self: detached(0, "G:1-9"), Peers: []Report{with(serving(1, "G:1-9", 1, 2), func(r *Report) { r.View.Members[1].State = Unreachable })}, Record: recorded(0, 1, 2), RecordKnown: true}, Wait, "in a group"},
		{"each has what the others have not", Situation{Self: detached(0, "G:1-9,L:1"), Peers: []Report{detached(1, "G:1-10")}, Record: recorded(0, 1), RecordKnown: true}, Hold, "only a-0 has " + uuidOf(0) + ":1; only a-1 has " + simulatedGroup + ":10"},
		{"a member that is not recorded does not start the group", Situation{Self: detached(0, "G:1-9"), Peers: []Report{detached(1, "G:1-9"), detached(2, "G:1-9")}, Record: recorded(1, 2), RecordKnown: true}, Wait, "a-1 starts the group"},
		{"one that is not recorded is not waited for", Situation{Self: detached(0, "G:1-9"), Record: recorded(0), RecordKnown: true}, ClaimBoot, ""},
		{"nothing is recorded", Situation{Self: detached(0, "G:1-9"), Record: Record{Group: simulatedGroup}, RecordKnown: true}, Wait, "no member"},
		{"another group is recorded", Situation{Self: with(detached(0, "G:1-9"), func(r *Report) { r.Group = "other" }), Record: recorded(0), RecordKnown: true}, Hold, "other"},
		{"under its claim it starts", Situation{Self: detached(0, "G:1-9"), Record: Record{Group: simulatedGroup, Entries: recorded(0).Entries, Boot: Boot{4, uuidOf(0)}}, RecordKnown: true, Claimed: 4}, StartGroup, ""},
		{"an earlier claim does not count", Situation{Self: detached(0, "G:1-9"), Record: Record{Group: simulatedGroup, Entries: recorded(0).Entries, Boot: Boot{4, uuidOf(0)}}, RecordKnown: true}, ClaimBoot, ""},
		{"another's later claim counts", Situation{Self: detached(0, "G:1-9"), Record: Record{Group: simulatedGroup, Entries: recorded(0).Entries, Boot: Boot{5, uuidOf(1)}}, RecordKnown: true, Claimed: 4}, ClaimBoot, ""},
		{"under its claim it looks again who answers", Situation{Self: detached(0, "G:1-9"), Record: Record{Group: simulatedGroup, Entries: recorded(0, 1).Entries, Boot: Boot{4, uuidOf(0)}}, RecordKnown: true, Claimed: 4}, Wait, "a-1"},

		// Without the API server, and by a person's request.
		{"the only member starts without the record", Situation{Self: detached(0, "G:1-9"), Persisted: recorded(0)}, StartGroup, ""},
		{"one of two does not", Situation{Self: detached(0, "G:1-9"), Persisted: recorded(0, 1)}, Wait, "cannot be read"},
		{"one that knows no record does not", Situation{Self: detached(0, "G:1-9")}, Wait, "cannot be read"},
		{"a request leaves one behind", Situation{Self: detached(0, "G:1-9"), Record: recorded(0, 1, 2), RecordKnown: true, Forced: true, Peers: []Report{detached(1, "G:1-9")}}, ClaimBoot, "requests"},
		{"a request names one of two equal ones", Situation{Self: detached(1, "G:1-9"), Record: recorded(0, 1, 2), RecordKnown: true, Forced: true, Peers: []Report{detached(0, "G:1-9")}}, ClaimBoot, "requests"},
		{"a request starts no member that is not recorded and has less", Situation{Self: detached(2, "G:1-8"), Record: recorded(0, 1), RecordKnown: true, Forced: true, Peers: []Report{detached(0, "G:1-9")}}, Wait, "a-0 starts"},
		{"a request starts one that is not recorded and has the most", Situation{Self: detached(2, "G:1-9"), Record: recorded(0, 1), RecordKnown: true, Forced: true, Peers: []Report{detached(0, "G:1-8")}}, ClaimBoot, "was not in the group any more"},
		{"a request starts one where none that is left is recorded", Situation{Self: detached(2, "G:1-9"), Record: recorded(0, 1), RecordKnown: true, Forced: true, Peers: []Report{detached(3, "G:1-8")}}, ClaimBoot, "wrote since is lost"},
		{"a request starts none of two that differ", Situation{Self: detached(2, "G:1-9"), Record: recorded(0, 1), RecordKnown: true, Forced: true, Peers: []Report{detached(3, "G:1-8,L:1")}}, Hold, "only a-3 has"},
		{"a request does not compare with data of another group", Situation{Self: detached(2, "G:1-9"), Record: recorded(0, 1), RecordKnown: true, Forced: true, Peers: []Report{with(detached(3, "L:1"), func(r *Report) { r.Group = "other" })}}, ClaimBoot, ""},
		{"a request starts one where no record is left", Situation{Self: detached(2, "G:1-9"), RecordKnown: true, Forced: true}, ClaimBoot, ""},
		{"without a request one that is not recorded waits", Situation{Self: detached(2, "G:1-9"), Record: recorded(0, 1), RecordKnown: true}, Wait, "a-0, a-1"},
		{"the one that has claimed starts", Situation{Self: detached(1, "G:1-9"), Record: recorded(0, 1).WithClaim(uuidOf(1)), RecordKnown: true, Claimed: 1, Peers: []Report{detached(0, "G:1-9")}}, StartGroup, ""},
		{"a request does not prefer older data", Situation{Self: detached(0, "G:1-8"), Record: recorded(0, 1, 2), RecordKnown: true, Forced: true, Peers: []Report{detached(1, "G:1-9")}}, Wait, "a-1 starts"},
		{"a request makes no second group", Situation{Self: detached(0, "G:1-9"), Record: recorded(0, 1, 2), RecordKnown: true, Forced: true, Peers: []Report{with(detached(1, "G:1-9"), func(r *Report) { r.Phase = Starting })}}, Wait, "about to be"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := PlanStart(c.s)
			if got.Action != c.want || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("%d: %s", got.Action, got.Reason)
			}
		})
	}
}

func TestSecondariesAreClonedFirst(t *testing.T) {
	peers := []Report{serving(1, "G:1", 1, 2), serving(2, "G:1", 1, 2)}
	for range 2 {
		if p := PlanStart(Situation{Self: Report{Phase: Empty}, Peers: peers}); p.Peer != "a-2" {
			t.Errorf("%+v", p)
		}
		slices.Reverse(peers)
	}
}

func TestForcedClaimNamesWhoAnswered(t *testing.T) {
	p := PlanStart(Situation{Self: detached(0, "G:1-9"), Record: recorded(0, 1, 2), RecordKnown: true, Forced: true, NewName: secondName, Peers: []Report{detached(1, "G:1-9")}})
	want := recorded(0, 1)
	want.Boot, want.Lineage = Boot{1, uuidOf(0)}, Lineage{1, secondName}
	if diff := cmp.Diff(want, p.Record); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(p.Missing, []string{"a-2"}) {
		t.Errorf("left behind: %v", p.Missing)
	}
}

func TestSettle(t *testing.T) {
	view := func(states ...State) View {
		var v View
		for i, s := range states {
			if s != "" {
				v.Members = append(v.Members, Member{UUID: uuidOf(i), State: s, Primary: i == 0})
			}
		}
		return v
	}
	joins := func(r Record, pod int) Record {
		e, _ := r.Find(uuidOf(pod))
		return r.WithJoining(e.UUID, e.Pod)
	}
	cases := []struct {
		name string
		r    Record
		v    View
		want Record
	}{
		{"all are online", recorded(0, 1), view(Online, Online), recorded(0, 1)},
		{"a member has joined", joins(recorded(0, 1), 1), view(Online, Online), recorded(0, 1)},
		{"a member recovers", joins(recorded(0, 1), 1), view(Online, Recovering), joins(recorded(0, 1), 1)},
		{"a member is about to join", joins(recorded(0, 1), 1), view(Online), joins(recorded(0, 1), 1)},
		{"a member has left", recorded(0, 1, 2), view(Online, "", Online), recorded(0, 2)},
		{"a member is not reached", recorded(0, 1, 2), view(Online, Unreachable, Online), recorded(0, 1, 2)},
		{"no majority", recorded(0, 1, 2), view(Online, Unreachable), recorded(0, 1, 2)},
		{"no group", recorded(0, 1, 2), View{}, recorded(0, 1, 2)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.r.Settle(c.v)); diff != "" {
				t.Error(diff)
			}
		})
	}
	// One that a person had join by hand may acknowledge writes as well.
	if got := recorded(0).Settle(view(Online, Online)); len(got.Entries) != 2 {
		t.Errorf("%+v", got)
	}
}

func TestRecordsAreNotChangedInPlace(t *testing.T) {
	r := recorded(0, 1, 2)
	_ = r.WithJoining(uuidOf(1), "x")
	_ = r.WithoutGone(View{Members: []Member{{UUID: uuidOf(2), State: Online}}}, func(Entry) bool { return true })
	_ = r.WithForcedClaim(detached(0, ""), []string{uuidOf(0)}, secondName)
	_ = r.WithNewer(Record{Group: r.Group, Revision: 9, Entries: recorded(3).Entries})
	_ = r.Settle(View{Members: []Member{{UUID: uuidOf(2), State: Online, Primary: true}}})
	if !r.IsEqual(recorded(0, 1, 2)) {
		t.Errorf("%+v", r)
	}
}

// A member that stood still after its claim does not serve once another was started by a
// person's request.
func TestLateStartDoesNotServe(t *testing.T) {
	r := recorded(0, 1).WithClaim(uuidOf(0))
	if !MayServe(r, uuidOf(0), 1) || MayServe(r, uuidOf(0), 0) || MayServe(r, uuidOf(1), 1) {
		t.Error("the last claim does not decide")
	}
	if MayServe(r.WithForcedClaim(detached(1, ""), []string{uuidOf(1)}, secondName), uuidOf(0), 1) {
		t.Error("a member that was left behind serves")
	}
}

func TestMajority(t *testing.T) {
	cases := []struct {
		name   string
		states []State
		want   bool
	}{
		{"alone", []State{Online}, true},
		{"none", nil, false},
		{"two of three", []State{Online, Online, Unreachable}, true},
		{"one of three", []State{Online, Unreachable, Unreachable}, false},
		{"one of two", []State{Online, Unreachable}, false},
		{"one that recovers counts", []State{Online, Recovering, Unreachable}, true},
		{"one that recovers serves nothing", []State{Recovering}, false},
		{"a failed member", []State{Failed}, false},
		{"out of the group", []State{Offline}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var v View
			for _, s := range c.states {
				v.Members = append(v.Members, Member{State: s})
			}
			if got := v.HasMajority(); got != c.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestReportOfAnObservation(t *testing.T) {
	persisted := recorded(0, 1)
	view := View{ID: "1", Members: []Member{{UUID: uuidOf(0), State: Online}}}
	cases := []struct {
		name     string
		o        Observation
		starting bool
		want     Phase
	}{
		{"in no group", Observation{State: Offline}, false, Detached},
		{"about to be in one", Observation{State: Offline}, true, Starting},
		{"in a group", Observation{State: Online, View: view}, false, InGroup},
		{"in a group, while the agent does not know it yet", Observation{State: Online, View: view}, true, InGroup},
		{"it recovers", Observation{State: Recovering, View: view}, false, InGroup},
		{"it failed, and is to be killed", Observation{State: Failed, View: view}, false, Down},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.o.UUID, c.o.Executed, c.o.SingleLeader = uuidOf(0), gtids("G:1-3"), true
			got := c.o.NewReport(Report{Pod: "a-0", Group: simulatedGroup}, c.starting, persisted)
			if got.Phase != c.want || got.Pod != "a-0" || got.UUID != uuidOf(0) || !got.Held().IsEqual(gtids("G:1-3")) || len(got.Persisted) != 2 || !got.SingleLeader {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A lost record comes back from the volumes, and the members that one of them names must
// answer.
func TestRestoreRecord(t *testing.T) {
	const a, b, c = "00000000-0000-1000-8000-00000000000a", "00000000-0000-1000-8000-00000000000b", "00000000-0000-1000-8000-00000000000c"
	own := Record{Group: "g"}.WithJoining(a, "orders-0")
	reports := []Report{
		{Pod: "orders-1", UUID: b, Group: "g", Phase: Detached, Persisted: []string{a, b, c}},
		{Pod: "orders-9", UUID: "x", Group: "other", Phase: Detached, Persisted: []string{"x"}},
	}
	restored := RestoreRecord(own, reports)
	var uuids []string
	for _, e := range restored.Entries {
		uuids = append(uuids, e.UUID)
	}
	if !slices.Equal(uuids, []string{a, b, c}) || restored.Group != "g" {
		t.Errorf("%+v", restored)
	}
	if len(own.Entries) != 1 {
		t.Error("the record on the volume was changed")
	}
	s := Situation{Self: Report{Pod: "orders-0", UUID: a, Group: "g", Phase: Detached}, Peers: reports, RecordKnown: true, Record: restored}
	if p := PlanStart(s); p.Action != Wait || !slices.Equal(p.Missing, []string{c}) {
		t.Errorf("%+v", p)
	}
	if r := RestoreRecord(Record{}, reports); r.Group != "" || len(r.Entries) > 0 {
		t.Errorf("a volume without a record restores %+v", r)
	}
}

// What is gone leaves the record only out of the view of a majority.
func TestWithoutGone(t *testing.T) {
	r := Record{Group: "g"}.WithJoining("a", "orders-0").WithJoining("b", "orders-1").WithJoining("c", "orders-2")
	v := View{ID: "1", Members: []Member{{UUID: "a", State: Online, Primary: true}, {UUID: "b", State: Online}}}
	gone := func(e Entry) bool { return e.UUID != "a" }
	if got := r.WithoutGone(v, gone); len(got.Entries) != 2 || len(r.Entries) != 3 {
		t.Errorf("%+v", got.Entries)
	}
	v.Members[0].State, v.Members[1].State = Unreachable, Unreachable
	if got := r.WithoutGone(v, gone); len(got.Entries) != 3 {
		t.Errorf("without a majority: %+v", got.Entries)
	}
}
