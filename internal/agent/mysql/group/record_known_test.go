package group

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Several members are lost, a person has the group go on, and a lost volume comes back.
func TestVolumeThatWasLeftBehind(t *testing.T) {
	p := PlanStart(Situation{Self: detached(0, "G:1-9"), Record: recorded(0, 1, 2), RecordKnown: true, Forced: true, NewName: secondName})
	claimed := p.Record.Next()
	p = PlanStart(Situation{Self: detached(0, "G:1-9"), Record: claimed, RecordKnown: true, Persisted: claimed, Claimed: claimed.Boot.Term})
	if p.Action != StartGroup || p.ReplicationName != secondName {
		t.Fatalf("%+v", p)
	}
	// The group has far more transactions by now than the one that comes back.
	primary := with(serving(0, "G:1-9,N:1-500", 0), func(r *Report) { r.ReplicationName = secondName })
	primary.Persisted = []string{uuidOf(0), uuidOf(1)}
	record := claimed.WithJoining(uuidOf(1), "a-1")
	for name, c := range map[string]struct {
		held   string
		want   Action
		errant string
	}{
		"it has no more than the group went on with": {"G:1-9", Join, ""},
		"it has less":                         {"G:1-4", Join, ""},
		"it has what is lost":                 {"G:1-12", Hold, "G:10-12"},
		"it has what is lost, and less":       {"G:1-3:11", Hold, "G:11"},
		"it followed, and has less":           {"G:1-9,N:1-3", Join, ""},
		"it has a write of its own, and more": {"G:1-12,L:1", Hold, "G:10-12,L:1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := PlanStart(Situation{Self: detached(1, c.held), Peers: []Report{primary}, Record: record, RecordKnown: true})
			if p.Action != c.want || p.Errant.String() != gtids(c.errant).String() {
				t.Errorf("%+v", p)
			}
			if c.want == Join && p.ReplicationName != secondName {
				t.Errorf("it joins %q", p.ReplicationName)
			}
		})
	}
}

// Each request makes a lineage of its own, also when the Lease was set back to before the
// last one: a volume knows that.
func TestLineagesFollowEachOther(t *testing.T) {
	claim := func(r Record, name string) Record {
		return PlanStart(Situation{Self: detached(0, "G:1-9"), Record: r, RecordKnown: true, Forced: true, NewName: name}).Record.Next()
	}
	before := recorded(0, 1, 2).Next()
	first := claim(before, secondName)
	const thirdName = "5b8f3c1e-0000-4000-8000-000000000003"
	if second := claim(first, thirdName); second.Lineage != (Lineage{2, thirdName}) || second.Revision <= first.Revision {
		t.Errorf("%+v", second)
	}
	if second := claim(before.WithNewer(first), thirdName); second.Lineage != (Lineage{2, thirdName}) {
		t.Errorf("%+v", second)
	}
	// A start without a request stays in the newest lineage that any member knows.
	peer := detached(1, "G:1-9").WithKnown(first)
	s := Situation{Self: detached(0, "G:1-9"), Peers: []Report{peer}, Record: recorded(0, 1), RecordKnown: true}
	s.Record.Boot, s.Claimed = Boot{1, uuidOf(0)}, 1
	if p := PlanStart(s); p.Action != StartGroup || p.ReplicationName != secondName {
		t.Errorf("%+v", p)
	}
	// The only member needs no Lease.
	s = Situation{Self: detached(0, "G:1-9"), Persisted: first}
	if p := PlanStart(s); p.Action != StartGroup || p.ReplicationName != secondName {
		t.Errorf("%+v", p)
	}
	s.Persisted = recorded(0)
	if p := PlanStart(s); p.Action != StartGroup || p.ReplicationName != simulatedGroup {
		t.Errorf("%+v", p)
	}
}

// No member joins while two groups serve: what it would follow is not known.
func TestTwoGroupsAreNotJoined(t *testing.T) {
	one, two := serving(1, "G:1-9", 1), with(serving(2, "G:1-9", 2), func(r *Report) { r.ReplicationName = secondName })
	for _, self := range []Report{detached(0, "G:1-9"), {Phase: Empty}} {
		if p := PlanStart(Situation{Self: self, Peers: []Report{one, two}, Record: recorded(0, 1, 2), RecordKnown: true}); p.Action != Wait {
			t.Errorf("%+v", p)
		}
	}
}

func TestWithNewer(t *testing.T) {
	at := func(r Record, revision int64) Record { r.Revision = revision; return r }
	read := at(recorded(0).WithClaim(uuidOf(0)), 5)
	for name, c := range map[string]struct {
		known Record
		want  Record
	}{
		"an older one changes nothing":      {at(recorded(0, 1), 4), read},
		"an equal one changes nothing":      {at(recorded(0, 1), 5), read},
		"one of another group does neither": {Record{Group: "other", Revision: 9}, read},
		"a newer one names more members":    {at(recorded(1), 7), at(recorded(0, 1).WithClaim(uuidOf(0)), 7)},
		"its claim is not on the Lease":     {at(recorded(0).WithClaim(uuidOf(1)).WithClaim(uuidOf(1)), 7), at(read, 7)},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, read.WithNewer(c.known)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The Lease was set back to before members joined. Each member that a newer record names must
// answer before the group is started, on which volume it may be.
func TestStartByALeaseThatWasSetBack(t *testing.T) {
	known := recorded(0, 1, 2)
	known.Revision = 4
	older := recorded(0, 1)
	older.Revision = 2
	base := Situation{Self: detached(0, "G:1-9"), Record: older, RecordKnown: true}
	s := base
	s.Peers = []Report{detached(1, "G:1-9").WithKnown(known)}
	if p := PlanStart(s); p.Action != Wait || !slices.Equal(p.Missing, []string{uuidOf(2)}) {
		t.Errorf("%+v", p)
	}
	s.Peers = append(s.Peers, detached(2, "G:1-9").WithKnown(older))
	if p := PlanStart(s); p.Action != ClaimBoot || len(p.Record.Entries) != 3 || p.Record.Next().Revision != 5 {
		t.Errorf("%+v", p)
	}
	// One that has left the group by the newest record is not waited for.
	s = base
	gone := recorded(0, 1, 3)
	gone.Revision = 3
	s.Peers = []Report{detached(1, "G:1-9").WithKnown(gone), detached(2, "G:1-9").WithKnown(known)}
	if p := PlanStart(s); p.Action != ClaimBoot || len(p.Record.Entries) != 3 {
		t.Errorf("%+v", p)
	}
	// What a group that serves has persisted comes first: a member that joins does not hide it.
	s = base
	s.Peers = []Report{serving(1, "G:1-9", 1).WithKnown(known)}
	s.Record = s.Record.WithJoining(uuidOf(0), "a-0")
	if p := PlanStart(s); p.Action != Wait {
		t.Errorf("%+v", p)
	}
	s.Record.Revision = 4
	if p := PlanStart(s); p.Action != Join {
		t.Errorf("%+v", p)
	}
}
