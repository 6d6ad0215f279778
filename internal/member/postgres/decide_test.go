package postgres

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/member"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

const ours, theirs = "7000000000000000001", "7000000000000000002"

// what a decision comes to, without its words.
type verdict struct {
	Action action
	Hold   memberapi.Hold
}

func dataOf(id string) volume {
	return volume{Content: contentData, Major: 17, Control: controlData{SystemIdentifier: id}}
}

func standbyOf(id string) volume {
	v := dataOf(id)
	v.Standby = true
	return v
}

func TestDecidePrimary(t *testing.T) {
	lease := func(claim member.ClaimState, id string) member.Record {
		return member.Record{Claim: claim, SystemIdentifier: id}
	}
	left := func(claim member.ClaimState) member.Record {
		r := lease(claim, ours)
		r.Cluster = "old"
		return r
	}
	far := func(r member.Record) member.Record {
		r.Timeline, r.Checkpoint = 9, "9/0"
		return r
	}
	restoredFor := func(cluster, id string) volume {
		v := dataOf(id)
		v.RestoredFor, v.Control.Timeline, v.Control.Checkpoint = cluster, 2, "0/5000028"
		return v
	}
	cases := []struct {
		name  string
		facts facts
		want  verdict
	}{
		{"an unborn cluster's empty volume is initialised by the holder of the Lease",
			facts{ConfigKnown: true, Lease: lease(member.ClaimMine, "")}, verdict{Action: actBirth}},
		{"nothing is initialised before the Lease is made",
			facts{ConfigKnown: true, Lease: lease(member.ClaimMissing, "")}, verdict{Action: actClaim}},
		{"nothing is initialised while the Lease cannot be read",
			facts{ConfigKnown: true}, verdict{Action: actWait}},
		{"nothing is initialised while the configuration is unknown",
			facts{Lease: lease(member.ClaimMine, "")}, verdict{Action: actWait}},
		{"nothing is initialised while another may hold the Lease",
			facts{ConfigKnown: true, Lease: lease(member.ClaimHeld, "")}, verdict{Action: actWait}},
		{"the Lease's latch forbids a second birth to its holder",
			facts{ConfigKnown: true, Lease: lease(member.ClaimMine, ours)}, verdict{actHold, memberapi.HoldDataMissing}},
		{"the Lease's latch forbids a second birth to whoever waits",
			facts{ConfigKnown: true, Lease: lease(member.ClaimExpired, ours)}, verdict{actHold, memberapi.HoldDataMissing}},
		{"the configuration's latch forbids a second birth, with the Lease gone",
			facts{ConfigKnown: true, ConfigSystemIdentifier: ours, Lease: lease(member.ClaimMissing, "")}, verdict{actHold, memberapi.HoldDataMissing}},
		{"the configuration's latch forbids a second birth, with the Lease unread",
			facts{ConfigKnown: true, ConfigSystemIdentifier: ours}, verdict{actHold, memberapi.HoldDataMissing}},
		{"a Lease that an earlier cluster left behind forbids nothing where no data is",
			facts{ConfigKnown: true, Cluster: "new", Fresh: true, Lease: left(member.ClaimReleased)}, verdict{Action: actClaim}},
		{"the Lease of an earlier cluster forbids a birth where an older volume is",
			facts{ConfigKnown: true, Cluster: "new", Lease: left(member.ClaimReleased)}, verdict{actHold, memberapi.HoldDataMissing}},
		{"the Lease of this cluster forbids a second birth, however fresh it seems",
			facts{ConfigKnown: true, Cluster: "old", Fresh: true, Lease: left(member.ClaimReleased)}, verdict{actHold, memberapi.HoldDataMissing}},
		{"a Lease that does not say whose it is forbids a second birth",
			facts{ConfigKnown: true, Cluster: "new", Fresh: true, Lease: lease(member.ClaimReleased, ours)}, verdict{actHold, memberapi.HoldDataMissing}},
		{"the Lease of an earlier cluster is waited for while its holder may live",
			facts{ConfigKnown: true, Cluster: "new", Fresh: true, Lease: left(member.ClaimHeld)}, verdict{Action: actWait}},
		{"the data of an earlier cluster claims its Lease",
			facts{ConfigKnown: true, Cluster: "new", Volume: dataOf(ours), Lease: left(member.ClaimReleased)}, verdict{Action: actClaim}},
		{"other data than that of the Lease of an earlier cluster is held",
			facts{ConfigKnown: true, Cluster: "new", Fresh: true, Volume: dataOf(theirs), Lease: left(member.ClaimReleased)}, verdict{actHold, memberapi.HoldSystemIdentifier}},
		{"data that was restored for this cluster claims the Lease of an earlier one",
			facts{ConfigKnown: true, ConfigSystemIdentifier: theirs, Cluster: "new", Volume: restoredFor("new", theirs), Lease: left(member.ClaimReleased)}, verdict{Action: actClaim}},
		{"it is not measured by what that one had on its disk",
			facts{ConfigKnown: true, Cluster: "new", Volume: restoredFor("new", ours), Lease: far(left(member.ClaimReleased))}, verdict{Action: actClaim}},
		{"it waits for that one's holder",
			facts{ConfigKnown: true, Cluster: "new", Volume: restoredFor("new", theirs), Lease: left(member.ClaimHeld)}, verdict{Action: actWait}},
		{"it is not judged by a Lease of which it is not known whose it is",
			facts{Volume: restoredFor("new", theirs), Lease: far(left(member.ClaimReleased))}, verdict{Action: actWait}},
		{"it is held by another system of its own cluster",
			facts{ConfigKnown: true, ConfigSystemIdentifier: ours, Cluster: "new", Volume: restoredFor("new", theirs), Lease: left(member.ClaimReleased)}, verdict{actHold, memberapi.HoldSystemIdentifier}},
		{"it is recorded before the first start",
			facts{ConfigKnown: true, Cluster: "new", Volume: restoredFor("new", theirs), Lease: member.Record{Claim: member.ClaimMine, Cluster: "new"}}, verdict{Action: actRecord}},
		{"data that was restored for another cluster is any data",
			facts{ConfigKnown: true, Cluster: "new", Volume: restoredFor("old", theirs), Lease: left(member.ClaimReleased)}, verdict{actHold, memberapi.HoldSystemIdentifier}},
		{"restored data that is older than what this cluster has recorded is held",
			facts{ConfigKnown: true, Cluster: "old", Volume: restoredFor("old", ours), Lease: far(left(member.ClaimReleased))}, verdict{actHold, memberapi.HoldDataBehind}},
		{"data of a cluster without a Lease claims it",
			facts{ConfigKnown: true, Volume: dataOf(ours), Lease: lease(member.ClaimMissing, "")}, verdict{Action: actClaim}},
		{"an expired Lease is claimed",
			facts{ConfigKnown: true, Volume: dataOf(ours), Lease: lease(member.ClaimExpired, ours)}, verdict{Action: actClaim}},
		{"a released Lease is claimed",
			facts{ConfigKnown: true, Volume: dataOf(ours), Lease: lease(member.ClaimReleased, ours)}, verdict{Action: actClaim}},
		{"nobody starts as a primary while another may hold the Lease",
			facts{ConfigKnown: true, Volume: dataOf(ours), Lease: lease(member.ClaimHeld, ours)}, verdict{Action: actWait}},
		{"nobody starts as a primary while the Lease cannot be read",
			facts{ConfigKnown: true, Volume: dataOf(ours)}, verdict{Action: actWait}},
		{"a birth is recorded before the first start",
			facts{ConfigKnown: true, Volume: dataOf(ours), Lease: lease(member.ClaimMine, "")}, verdict{Action: actRecord}},
		{"the holder with the cluster's data starts",
			facts{ConfigKnown: true, ConfigSystemIdentifier: ours, Volume: dataOf(ours), Lease: lease(member.ClaimMine, ours)}, verdict{Action: actStartPrimary}},
		{"another system's data is held by the Lease's latch",
			facts{ConfigKnown: true, Volume: dataOf(theirs), Lease: lease(member.ClaimMine, ours)}, verdict{actHold, memberapi.HoldSystemIdentifier}},
		{"another system's data is held by the configuration's latch",
			facts{ConfigKnown: true, ConfigSystemIdentifier: ours, Volume: dataOf(theirs), Lease: lease(member.ClaimMine, theirs)}, verdict{actHold, memberapi.HoldSystemIdentifier}},
		{"a standby's data does not become a primary's",
			facts{ConfigKnown: true, Volume: standbyOf(ours), Lease: lease(member.ClaimMine, ours)}, verdict{actHold, memberapi.HoldDataUnknown}},
		{"data of another major version is held",
			facts{ConfigKnown: true, Volume: volume{Content: contentData, Major: 16}, Lease: lease(member.ClaimMine, ours)}, verdict{actHold, memberapi.HoldDataVersion}},
		{"unknown files are held, in an unborn cluster too",
			facts{ConfigKnown: true, Volume: volume{Content: contentUnknown, Unknown: "ibdata1"}, Lease: lease(member.ClaimMine, "")}, verdict{actHold, memberapi.HoldDataUnknown}},
		{"a full volume is held",
			facts{ConfigKnown: true, Volume: func() volume { v := dataOf(ours); v.Space = member.Space{Free: 1, Total: 1 << 30}; return v }(), Lease: lease(member.ClaimMine, ours)}, verdict{actHold, memberapi.HoldVolumeFull}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.facts.BinaryMajor = 17
			check(t, decide(c.facts), c.want)
		})
	}
}

func TestDecideReplica(t *testing.T) {
	cases := []struct {
		name  string
		facts facts
		want  verdict
	}{
		{"an empty volume waits for a primary", facts{ConfigKnown: true}, verdict{Action: actWait}},
		{"an empty volume is filled from the primary",
			facts{PrimaryKnown: true, PrimarySystemIdentifier: ours}, verdict{Action: actClone}},
		{"an empty volume is filled in a born cluster",
			facts{ConfigKnown: true, ConfigSystemIdentifier: ours, PrimaryKnown: true, PrimarySystemIdentifier: ours}, verdict{Action: actClone}},
		{"an empty volume is not filled from another system",
			facts{ConfigKnown: true, ConfigSystemIdentifier: ours, PrimaryKnown: true, PrimarySystemIdentifier: theirs}, verdict{Action: actWait}},
		{"a standby starts without a primary", facts{ConfigKnown: true, Volume: standbyOf(ours)}, verdict{Action: actStartStandby}},
		{"a former primary's data starts as a standby's", facts{ConfigKnown: true, Volume: dataOf(ours)}, verdict{Action: actMarkStandby}},
		{"a standby waits for the configuration", facts{Volume: standbyOf(ours)}, verdict{Action: actWait}},
		{"another system's data is held, and never copied over",
			facts{ConfigKnown: true, Volume: standbyOf(theirs), PrimaryKnown: true, PrimarySystemIdentifier: ours}, verdict{actHold, memberapi.HoldSystemIdentifier}},
		{"data of another major version is held, and never copied over",
			facts{ConfigKnown: true, Volume: volume{Content: contentData, Major: 15}, PrimaryKnown: true}, verdict{actHold, memberapi.HoldDataVersion}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.facts.BinaryMajor, c.facts.Ordinal = 17, 1
			check(t, decide(c.facts), c.want)
		})
	}
}

// Of every combination, a birth needs all latches open and the Lease held, and
// a start as a primary needs the Lease held and every known latch to agree.
func TestDecideEveryCombination(t *testing.T) {
	ids := []string{"", ours, theirs}
	volumes := []volume{{}, dataOf(ours), standbyOf(ours), {Content: contentUnknown}}
	for claim := member.ClaimUnknown; claim <= member.ClaimExpired; claim++ {
		for _, v := range volumes {
			for _, config := range ids {
				for _, lease := range ids {
					for _, ordinal := range []int{0, 1} {
						for _, known := range []bool{false, true} {
							f := facts{Ordinal: ordinal, BinaryMajor: 17, Volume: v, ConfigKnown: known, ConfigSystemIdentifier: config,
								Lease: member.Record{Claim: claim, SystemIdentifier: lease}}
							d := decide(f)
							mine := claim == member.ClaimMine && ordinal == 0
							if d.Action == actBirth && (!mine || v.Content != contentEmpty || config != "" || lease != "" || !known) {
								t.Errorf("birth from %+v", f)
							}
							if d.Action == actStartPrimary && (!mine || lease != ours || config == theirs || v.Standby) {
								t.Errorf("start as a primary from %+v", f)
							}
							if d.Action == actClone && v.Content != contentEmpty || d.Action == actCopyAgain {
								t.Errorf("copy over data from %+v", f)
							}
						}
					}
				}
			}
		}
	}
}

func check(t *testing.T, got decision, want verdict) {
	t.Helper()
	if diff := cmp.Diff(want, verdict{got.Action, got.Hold}); diff != "" {
		t.Errorf("decide (-want +got):\n%s\nmessage: %s", diff, got.Message)
	}
	if got.Message == "" {
		t.Error("a decision says why")
	}
}
