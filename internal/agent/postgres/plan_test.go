package postgres

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

const ours, theirs = "7000000000000000001", "7000000000000000002"

// what a decision comes to, without its words.
type verdict struct {
	Action action
	Hold   agentapi.Hold
}

func dataOf(id string) volume {
	return volume{Content: contentData, Major: 17, Control: server.ControlData{SystemIdentifier: id}}
}

func standbyOf(id string) volume {
	v := dataOf(id)
	v.Standby = true
	return v
}

func TestDecidePrimary(t *testing.T) {
	lease := func(claim leaseclient.ClaimState, id string) leaseclient.Record {
		return leaseclient.Record{Claim: claim, SystemIdentifier: id}
	}
	left := func(claim leaseclient.ClaimState) leaseclient.Record {
		r := lease(claim, ours)
		r.Cluster = "old"
		return r
	}
	far := func(r leaseclient.Record) leaseclient.Record {
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
		facts observation
		want  verdict
	}{
		{"the empty volume of a cluster that is not bootstrapped is initialised by the holder of the Lease",
			observation{ConfigKnown: true, Lease: lease(leaseclient.ClaimMine, "")}, verdict{Action: actBootstrap}},
		{"nothing is initialised before the Lease is made",
			observation{ConfigKnown: true, Lease: lease(leaseclient.ClaimMissing, "")}, verdict{Action: actClaim}},
		{"nothing is initialised while the Lease cannot be read",
			observation{ConfigKnown: true}, verdict{Action: actWait}},
		{"nothing is initialised while the configuration is unknown",
			observation{Lease: lease(leaseclient.ClaimMine, "")}, verdict{Action: actWait}},
		{"nothing is initialised while another may hold the Lease",
			observation{ConfigKnown: true, Lease: lease(leaseclient.ClaimHeld, "")}, verdict{Action: actWait}},
		{"the Lease's record forbids a second bootstrap to its holder",
			observation{ConfigKnown: true, Lease: lease(leaseclient.ClaimMine, ours)}, verdict{actHold, agentapi.HoldDataMissing}},
		{"the Lease's record forbids a second bootstrap to a member that waits",
			observation{ConfigKnown: true, Lease: lease(leaseclient.ClaimExpired, ours)}, verdict{actHold, agentapi.HoldDataMissing}},
		{"the configuration's record forbids a second bootstrap, with the Lease gone",
			observation{ConfigKnown: true, ConfigSystemIdentifier: ours, Lease: lease(leaseclient.ClaimMissing, "")}, verdict{actHold, agentapi.HoldDataMissing}},
		{"the configuration's record forbids a second bootstrap, with the Lease unread",
			observation{ConfigKnown: true, ConfigSystemIdentifier: ours}, verdict{actHold, agentapi.HoldDataMissing}},
		{"a Lease that an earlier cluster left behind forbids nothing where no data is",
			observation{ConfigKnown: true, Cluster: "new", Fresh: true, Lease: left(leaseclient.ClaimReleased)}, verdict{Action: actClaim}},
		{"the Lease of an earlier cluster forbids a bootstrap where an older volume is",
			observation{ConfigKnown: true, Cluster: "new", Lease: left(leaseclient.ClaimReleased)}, verdict{actHold, agentapi.HoldDataMissing}},
		{"the Lease of this cluster forbids a second bootstrap, however fresh it seems",
			observation{ConfigKnown: true, Cluster: "old", Fresh: true, Lease: left(leaseclient.ClaimReleased)}, verdict{actHold, agentapi.HoldDataMissing}},
		{"a Lease that does not say whose it is forbids a second bootstrap",
			observation{ConfigKnown: true, Cluster: "new", Fresh: true, Lease: lease(leaseclient.ClaimReleased, ours)}, verdict{actHold, agentapi.HoldDataMissing}},
		{"the Lease of an earlier cluster is waited for while its holder may live",
			observation{ConfigKnown: true, Cluster: "new", Fresh: true, Lease: left(leaseclient.ClaimHeld)}, verdict{Action: actWait}},
		{"the data of an earlier cluster claims its Lease",
			observation{ConfigKnown: true, Cluster: "new", Volume: dataOf(ours), Lease: left(leaseclient.ClaimReleased)}, verdict{Action: actClaim}},
		{"other data than that of the Lease of an earlier cluster is held",
			observation{ConfigKnown: true, Cluster: "new", Fresh: true, Volume: dataOf(theirs), Lease: left(leaseclient.ClaimReleased)}, verdict{actHold, agentapi.HoldSystemIdentifier}},
		{"data that was restored for this cluster claims the Lease of an earlier one",
			observation{ConfigKnown: true, ConfigSystemIdentifier: theirs, Cluster: "new", Volume: restoredFor("new", theirs), Lease: left(leaseclient.ClaimReleased)}, verdict{Action: actClaim}},
		{"it is not measured by what that one had on its disk",
			observation{ConfigKnown: true, Cluster: "new", Volume: restoredFor("new", ours), Lease: far(left(leaseclient.ClaimReleased))}, verdict{Action: actClaim}},
		{"it waits for that one's holder",
			observation{ConfigKnown: true, Cluster: "new", Volume: restoredFor("new", theirs), Lease: left(leaseclient.ClaimHeld)}, verdict{Action: actWait}},
		{"it is not judged by a Lease of which it is not known whose it is",
			observation{Volume: restoredFor("new", theirs), Lease: far(left(leaseclient.ClaimReleased))}, verdict{Action: actWait}},
		{"it is held by another system of its own cluster",
			observation{ConfigKnown: true, ConfigSystemIdentifier: ours, Cluster: "new", Volume: restoredFor("new", theirs), Lease: left(leaseclient.ClaimReleased)}, verdict{actHold, agentapi.HoldSystemIdentifier}},
		{"it is recorded before the first start",
			observation{ConfigKnown: true, Cluster: "new", Volume: restoredFor("new", theirs), Lease: leaseclient.Record{Claim: leaseclient.ClaimMine, Cluster: "new"}}, verdict{Action: actRecord}},
		{"data that was restored for another cluster is any data",
			observation{ConfigKnown: true, Cluster: "new", Volume: restoredFor("old", theirs), Lease: left(leaseclient.ClaimReleased)}, verdict{actHold, agentapi.HoldSystemIdentifier}},
		{"restored data that is older than what this cluster has recorded is held",
			observation{ConfigKnown: true, Cluster: "old", Volume: restoredFor("old", ours), Lease: far(left(leaseclient.ClaimReleased))}, verdict{actHold, agentapi.HoldDataStale}},
		{"data of a cluster without a Lease claims it",
			observation{ConfigKnown: true, Volume: dataOf(ours), Lease: lease(leaseclient.ClaimMissing, "")}, verdict{Action: actClaim}},
		{"an expired Lease is claimed",
			observation{ConfigKnown: true, Volume: dataOf(ours), Lease: lease(leaseclient.ClaimExpired, ours)}, verdict{Action: actClaim}},
		{"a released Lease is claimed",
			observation{ConfigKnown: true, Volume: dataOf(ours), Lease: lease(leaseclient.ClaimReleased, ours)}, verdict{Action: actClaim}},
		{"no member starts as a primary while another may hold the Lease",
			observation{ConfigKnown: true, Volume: dataOf(ours), Lease: lease(leaseclient.ClaimHeld, ours)}, verdict{Action: actWait}},
		{"no member starts as a primary while the Lease cannot be read",
			observation{ConfigKnown: true, Volume: dataOf(ours)}, verdict{Action: actWait}},
		{"a bootstrap is recorded before the first start",
			observation{ConfigKnown: true, Volume: dataOf(ours), Lease: lease(leaseclient.ClaimMine, "")}, verdict{Action: actRecord}},
		{"the holder with the cluster's data starts",
			observation{ConfigKnown: true, ConfigSystemIdentifier: ours, Volume: dataOf(ours), Lease: lease(leaseclient.ClaimMine, ours)}, verdict{Action: actStartPrimary}},
		{"another system's data is held by the Lease's record",
			observation{ConfigKnown: true, Volume: dataOf(theirs), Lease: lease(leaseclient.ClaimMine, ours)}, verdict{actHold, agentapi.HoldSystemIdentifier}},
		{"another system's data is held by the configuration's record",
			observation{ConfigKnown: true, ConfigSystemIdentifier: ours, Volume: dataOf(theirs), Lease: lease(leaseclient.ClaimMine, theirs)}, verdict{actHold, agentapi.HoldSystemIdentifier}},
		{"a standby's data does not become a primary's",
			observation{ConfigKnown: true, Volume: standbyOf(ours), Lease: lease(leaseclient.ClaimMine, ours)}, verdict{actHold, agentapi.HoldDataUnknown}},
		{"data of another major version is held",
			observation{ConfigKnown: true, Volume: volume{Content: contentData, Major: 16}, Lease: lease(leaseclient.ClaimMine, ours)}, verdict{actHold, agentapi.HoldDataVersion}},
		{"unknown files are held, in a cluster that is not bootstrapped too",
			observation{ConfigKnown: true, Volume: volume{Content: contentUnknown, Unknown: "ibdata1"}, Lease: lease(leaseclient.ClaimMine, "")}, verdict{actHold, agentapi.HoldDataUnknown}},
		{"a full volume is held",
			observation{ConfigKnown: true, Volume: func() volume { v := dataOf(ours); v.Space = diskspace.Space{Free: 1, Total: 1 << 30}; return v }(), Lease: lease(leaseclient.ClaimMine, ours)}, verdict{actHold, agentapi.HoldVolumeFull}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.facts.BinaryMajor = 17
			check(t, planNext(c.facts), c.want)
		})
	}
}

// Data whose WAL lacks what a start needs is neither started nor copied over,
// whatever else is known of it.
func TestDecideMissingWAL(t *testing.T) {
	older := &postgresapi.OlderDataRequest{ID: "once", Pod: "orders-0"}
	lease := leaseclient.Record{Claim: leaseclient.ClaimMine, SystemIdentifier: ours}
	hold := verdict{actHold, agentapi.HoldWALMissing}
	cases := []struct {
		name  string
		facts observation
		want  verdict
	}{
		{"a primary's data is held", observation{ConfigKnown: true, Volume: dataOf(ours), Lease: lease}, hold},
		{"a request to go on with older data does not start it",
			observation{ConfigKnown: true, Volume: dataOf(ours), Lease: lease, leading: leading{Request: older}}, hold},
		{"another system's data is held as that",
			observation{ConfigKnown: true, ConfigSystemIdentifier: ours, Volume: dataOf(theirs)}, verdict{actHold, agentapi.HoldSystemIdentifier}},
		{"a replica's data is held while the primary serves",
			observation{Ordinal: 1, ConfigKnown: true, Volume: standbyOf(ours), PrimaryKnown: true, PrimarySystemIdentifier: ours}, hold},
		{"a replica's data is held without a primary", observation{Ordinal: 1, ConfigKnown: true, Volume: standbyOf(ours)}, hold},
		{"a replica that holds more than the primary is held as that",
			observation{Ordinal: 1, ConfigKnown: true, Volume: standbyOf(ours), DivergedMark: &divergedMark{}}, verdict{actHold, agentapi.HoldDataDiverged}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.facts.BinaryMajor, c.facts.MissingWAL, c.facts.Pod, c.facts.Namespace = 17, "the checkpoint at 0/5000028 on timeline 1", "orders-1", "shop"
			check(t, planNext(c.facts), c.want)
		})
	}
}

func TestDecideReplica(t *testing.T) {
	cases := []struct {
		name  string
		facts observation
		want  verdict
	}{
		{"an empty volume waits for a primary", observation{ConfigKnown: true}, verdict{Action: actWait}},
		{"an empty volume is filled from the primary",
			observation{PrimaryKnown: true, PrimarySystemIdentifier: ours}, verdict{Action: actClone}},
		{"an empty volume is filled in a bootstrapped cluster",
			observation{ConfigKnown: true, ConfigSystemIdentifier: ours, PrimaryKnown: true, PrimarySystemIdentifier: ours}, verdict{Action: actClone}},
		{"an empty volume is not filled from another system",
			observation{ConfigKnown: true, ConfigSystemIdentifier: ours, PrimaryKnown: true, PrimarySystemIdentifier: theirs}, verdict{Action: actWait}},
		{"a standby starts without a primary", observation{ConfigKnown: true, Volume: standbyOf(ours)}, verdict{Action: actStartStandby}},
		{"a former primary's data starts as a standby's", observation{ConfigKnown: true, Volume: dataOf(ours)}, verdict{Action: actMarkStandby}},
		{"a standby waits for the configuration", observation{Volume: standbyOf(ours)}, verdict{Action: actWait}},
		{"another system's data is held, and never copied over",
			observation{ConfigKnown: true, Volume: standbyOf(theirs), PrimaryKnown: true, PrimarySystemIdentifier: ours}, verdict{actHold, agentapi.HoldSystemIdentifier}},
		{"data of another major version is held, and never copied over",
			observation{ConfigKnown: true, Volume: volume{Content: contentData, Major: 15}, PrimaryKnown: true}, verdict{actHold, agentapi.HoldDataVersion}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.facts.BinaryMajor, c.facts.Ordinal = 17, 1
			check(t, planNext(c.facts), c.want)
		})
	}
}

// Of every combination, a bootstrap needs that no record names one and the Lease held, and
// a start as a primary needs the Lease held and every known record to agree.
func TestDecideEveryCombination(t *testing.T) {
	ids := []string{"", ours, theirs}
	volumes := []volume{{}, dataOf(ours), standbyOf(ours), {Content: contentUnknown}}
	for claim := leaseclient.ClaimUnknown; claim <= leaseclient.ClaimExpired; claim++ {
		for _, v := range volumes {
			for _, config := range ids {
				for _, lease := range ids {
					for _, ordinal := range []int{0, 1} {
						for _, known := range []bool{false, true} {
							o := observation{Ordinal: ordinal, BinaryMajor: 17, Volume: v, ConfigKnown: known, ConfigSystemIdentifier: config,
								Lease: leaseclient.Record{Claim: claim, SystemIdentifier: lease}}
							p := planNext(o)
							mine := claim == leaseclient.ClaimMine && ordinal == 0
							if p.Action == actBootstrap && (!mine || v.Content != contentEmpty || config != "" || lease != "" || !known) {
								t.Errorf("bootstrap from %+v", o)
							}
							if p.Action == actStartPrimary && (!mine || lease != ours || config == theirs || v.Standby) {
								t.Errorf("start as a primary from %+v", o)
							}
							if p.Action == actClone && v.Content != contentEmpty || p.Action == actCopyAgain {
								t.Errorf("copy over data from %+v", o)
							}
						}
					}
				}
			}
		}
	}
}

func check(t *testing.T, got plan, want verdict) {
	t.Helper()
	if diff := cmp.Diff(want, verdict{got.Action, got.Hold}); diff != "" {
		t.Errorf("decide (-want +got):\n%s\nmessage: %s", diff, got.Message)
	}
	if got.Message == "" {
		t.Error("a decision says why")
	}
}

// WAL is archived, or discarded, by the primary alone and by replicas of their own.
func TestWhoseWALMayBeArchived(t *testing.T) {
	for name, c := range map[string]struct {
		facts observation
		want  bool
	}{
		"the primary that holds the Lease":   {observation{Lease: leaseclient.Record{Claim: leaseclient.ClaimMine}}, true},
		"another member may lead":            {observation{Lease: leaseclient.Record{Claim: leaseclient.ClaimHeld}}, false},
		"the Lease cannot be read":           {observation{Lease: leaseclient.Record{Claim: leaseclient.ClaimUnknown}}, false},
		"a replica":                          {observation{Ordinal: 1, Volume: standbyOf(ours)}, true},
		"a former primary that is a replica": {observation{Ordinal: 1, Volume: dataOf(ours), Lease: leaseclient.Record{Claim: leaseclient.ClaimMine}}, false},
	} {
		c.facts.Leader.Pending = 2
		got := c.facts.describeStopped()
		if got.MayArchive != c.want || !got.Promoting || got.Primary == c.facts.Volume.Standby {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
