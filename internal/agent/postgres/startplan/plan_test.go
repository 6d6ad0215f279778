package startplan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leaderview"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

const ours, theirs = "7000000000000000001", "7000000000000000002"

// what a decision comes to, without its words.
type verdict struct {
	Action Action
	Hold   agentapi.Hold
}

func dataOf(id string) datavolume.Observation {
	return datavolume.Observation{Content: datavolume.ContentData, Major: 17, Control: server.ControlData{SystemIdentifier: id}}
}

func standbyOf(id string) datavolume.Observation {
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
	restoredFor := func(cluster, id string) datavolume.Observation {
		v := dataOf(id)
		v.RestoredFor, v.Control.Timeline, v.Control.Checkpoint = cluster, 2, "0/5000028"
		return v
	}
	cases := []struct {
		name  string
		facts Observation
		want  verdict
	}{
		{"the empty volume of a cluster that is not bootstrapped is initialised by the holder of the Lease",
			Observation{Config: Config{Known: true}, Lease: lease(leaseclient.ClaimMine, "")}, verdict{Action: ActBootstrap}},
		{"nothing is initialised before the Lease is made",
			Observation{Config: Config{Known: true}, Lease: lease(leaseclient.ClaimMissing, "")}, verdict{Action: ActClaim}},
		{"nothing is initialised while the Lease cannot be read",
			Observation{Config: Config{Known: true}}, verdict{Action: ActWait}},
		{"nothing is initialised while the configuration is unknown",
			Observation{Lease: lease(leaseclient.ClaimMine, "")}, verdict{Action: ActWait}},
		{"nothing is initialised while another may hold the Lease",
			Observation{Config: Config{Known: true}, Lease: lease(leaseclient.ClaimHeld, "")}, verdict{Action: ActWait}},
		{"the Lease's record forbids a second bootstrap to its holder",
			Observation{Config: Config{Known: true}, Lease: lease(leaseclient.ClaimMine, ours)}, verdict{ActHold, agentapi.HoldDataMissing}},
		{"the Lease's record forbids a second bootstrap to a member that waits",
			Observation{Config: Config{Known: true}, Lease: lease(leaseclient.ClaimExpired, ours)}, verdict{ActHold, agentapi.HoldDataMissing}},
		{"the configuration's record forbids a second bootstrap, with the Lease gone",
			Observation{Config: Config{Known: true, SystemIdentifier: ours}, Lease: lease(leaseclient.ClaimMissing, "")}, verdict{ActHold, agentapi.HoldDataMissing}},
		{"the configuration's record forbids a second bootstrap, with the Lease unread",
			Observation{Config: Config{Known: true, SystemIdentifier: ours}}, verdict{ActHold, agentapi.HoldDataMissing}},
		{"a Lease that an earlier cluster left behind forbids nothing where no data is",
			Observation{Config: Config{Known: true, Cluster: "new", Fresh: true}, Lease: left(leaseclient.ClaimReleased)}, verdict{Action: ActClaim}},
		{"the Lease of an earlier cluster forbids a bootstrap where an older volume is",
			Observation{Config: Config{Known: true, Cluster: "new"}, Lease: left(leaseclient.ClaimReleased)}, verdict{ActHold, agentapi.HoldDataMissing}},
		{"the Lease of this cluster forbids a second bootstrap, however fresh it seems",
			Observation{Config: Config{Known: true, Cluster: "old", Fresh: true}, Lease: left(leaseclient.ClaimReleased)}, verdict{ActHold, agentapi.HoldDataMissing}},
		{"a Lease that does not say whose it is forbids a second bootstrap",
			Observation{Config: Config{Known: true, Cluster: "new", Fresh: true}, Lease: lease(leaseclient.ClaimReleased, ours)}, verdict{ActHold, agentapi.HoldDataMissing}},
		{"the Lease of an earlier cluster is waited for while its holder may live",
			Observation{Config: Config{Known: true, Cluster: "new", Fresh: true}, Lease: left(leaseclient.ClaimHeld)}, verdict{Action: ActWait}},
		{"the data of an earlier cluster claims its Lease",
			Observation{Config: Config{Known: true, Cluster: "new"}, Volume: dataOf(ours), Lease: left(leaseclient.ClaimReleased)}, verdict{Action: ActClaim}},
		{"other data than that of the Lease of an earlier cluster is held",
			Observation{Config: Config{Known: true, Cluster: "new", Fresh: true}, Volume: dataOf(theirs), Lease: left(leaseclient.ClaimReleased)}, verdict{ActHold, agentapi.HoldSystemIdentifier}},
		{"data that was restored for this cluster claims the Lease of an earlier one",
			Observation{Config: Config{Known: true, SystemIdentifier: theirs, Cluster: "new"}, Volume: restoredFor("new", theirs), Lease: left(leaseclient.ClaimReleased)}, verdict{Action: ActClaim}},
		{"it is not measured by what that one had on its disk",
			Observation{Config: Config{Known: true, Cluster: "new"}, Volume: restoredFor("new", ours), Lease: far(left(leaseclient.ClaimReleased))}, verdict{Action: ActClaim}},
		{"it waits for that one's holder",
			Observation{Config: Config{Known: true, Cluster: "new"}, Volume: restoredFor("new", theirs), Lease: left(leaseclient.ClaimHeld)}, verdict{Action: ActWait}},
		{"it is not judged by a Lease of which it is not known whose it is",
			Observation{Volume: restoredFor("new", theirs), Lease: far(left(leaseclient.ClaimReleased))}, verdict{Action: ActWait}},
		{"it is held by another system of its own cluster",
			Observation{Config: Config{Known: true, SystemIdentifier: ours, Cluster: "new"}, Volume: restoredFor("new", theirs), Lease: left(leaseclient.ClaimReleased)}, verdict{ActHold, agentapi.HoldSystemIdentifier}},
		{"it is recorded before the first start",
			Observation{Config: Config{Known: true, Cluster: "new"}, Volume: restoredFor("new", theirs), Lease: leaseclient.Record{Claim: leaseclient.ClaimMine, Cluster: "new"}}, verdict{Action: ActRecord}},
		{"data that was restored for another cluster is any data",
			Observation{Config: Config{Known: true, Cluster: "new"}, Volume: restoredFor("old", theirs), Lease: left(leaseclient.ClaimReleased)}, verdict{ActHold, agentapi.HoldSystemIdentifier}},
		{"restored data that is older than what this cluster has recorded is held",
			Observation{Config: Config{Known: true, Cluster: "old"}, Volume: restoredFor("old", ours), Lease: far(left(leaseclient.ClaimReleased))}, verdict{ActHold, agentapi.HoldDataStale}},
		{"data of a cluster without a Lease claims it",
			Observation{Config: Config{Known: true}, Volume: dataOf(ours), Lease: lease(leaseclient.ClaimMissing, "")}, verdict{Action: ActClaim}},
		{"an expired Lease is claimed",
			Observation{Config: Config{Known: true}, Volume: dataOf(ours), Lease: lease(leaseclient.ClaimExpired, ours)}, verdict{Action: ActClaim}},
		{"a released Lease is claimed",
			Observation{Config: Config{Known: true}, Volume: dataOf(ours), Lease: lease(leaseclient.ClaimReleased, ours)}, verdict{Action: ActClaim}},
		{"no member starts as a primary while another may hold the Lease",
			Observation{Config: Config{Known: true}, Volume: dataOf(ours), Lease: lease(leaseclient.ClaimHeld, ours)}, verdict{Action: ActWait}},
		{"no member starts as a primary while the Lease cannot be read",
			Observation{Config: Config{Known: true}, Volume: dataOf(ours)}, verdict{Action: ActWait}},
		{"a bootstrap is recorded before the first start",
			Observation{Config: Config{Known: true}, Volume: dataOf(ours), Lease: lease(leaseclient.ClaimMine, "")}, verdict{Action: ActRecord}},
		{"the holder with the cluster's data starts",
			Observation{Config: Config{Known: true, SystemIdentifier: ours}, Volume: dataOf(ours), Lease: lease(leaseclient.ClaimMine, ours)}, verdict{Action: ActStartPrimary}},
		{"another system's data is held by the Lease's record",
			Observation{Config: Config{Known: true}, Volume: dataOf(theirs), Lease: lease(leaseclient.ClaimMine, ours)}, verdict{ActHold, agentapi.HoldSystemIdentifier}},
		{"another system's data is held by the configuration's record",
			Observation{Config: Config{Known: true, SystemIdentifier: ours}, Volume: dataOf(theirs), Lease: lease(leaseclient.ClaimMine, theirs)}, verdict{ActHold, agentapi.HoldSystemIdentifier}},
		{"a standby's data does not become a primary's",
			Observation{Config: Config{Known: true}, Volume: standbyOf(ours), Lease: lease(leaseclient.ClaimMine, ours)}, verdict{ActHold, agentapi.HoldDataUnknown}},
		{"data of another major version is held",
			Observation{Config: Config{Known: true}, Volume: datavolume.Observation{Content: datavolume.ContentData, Major: 16}, Lease: lease(leaseclient.ClaimMine, ours)}, verdict{ActHold, agentapi.HoldDataVersion}},
		{"unknown files are held, in a cluster that is not bootstrapped too",
			Observation{Config: Config{Known: true}, Volume: datavolume.Observation{Content: datavolume.ContentUnknown, Unknown: "ibdata1"}, Lease: lease(leaseclient.ClaimMine, "")}, verdict{ActHold, agentapi.HoldDataUnknown}},
		{"a full volume is held",
			Observation{Config: Config{Known: true}, Volume: func() datavolume.Observation {
				v := dataOf(ours)
				v.Space = diskspace.Space{Free: 1, Total: 1 << 30}
				return v
			}(), Lease: lease(leaseclient.ClaimMine, ours)}, verdict{ActHold, agentapi.HoldVolumeFull}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.facts.BinaryMajor = 17
			check(t, PlanNext(c.facts), c.want)
		})
	}
}

// Data whose WAL lacks what a start needs is neither started nor copied over,
// whatever else is known of it.
func TestDecideMissingWAL(t *testing.T) {
	older := &postgresapi.OlderDataRequest{ID: "once", Pod: "orders-0"}
	lease := leaseclient.Record{Claim: leaseclient.ClaimMine, SystemIdentifier: ours}
	hold := verdict{ActHold, agentapi.HoldWALMissing}
	cases := []struct {
		name  string
		facts Observation
		want  verdict
	}{
		{"a primary's data is held", Observation{Config: Config{Known: true}, Volume: dataOf(ours), Lease: lease}, hold},
		{"a request to go on with older data does not start it",
			Observation{Config: Config{Known: true}, Volume: dataOf(ours), Lease: lease, Leading: Leading{Request: older}}, hold},
		{"another system's data is held as that",
			Observation{Config: Config{Known: true, SystemIdentifier: ours}, Volume: dataOf(theirs)}, verdict{ActHold, agentapi.HoldSystemIdentifier}},
		{"a replica's data is held while the primary serves",
			Observation{Ordinal: 1, Config: Config{Known: true}, Volume: standbyOf(ours), Primary: leaderview.Primary{Known: true, SystemIdentifier: ours}}, hold},
		{"a replica's data is held without a primary", Observation{Ordinal: 1, Config: Config{Known: true}, Volume: standbyOf(ours)}, hold},
		{"a replica that holds more than the primary is held as that",
			Observation{Ordinal: 1, Config: Config{Known: true}, Volume: standbyOf(ours), DivergedMark: &datavolume.DivergedMark{}}, verdict{ActHold, agentapi.HoldDataDiverged}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.facts.BinaryMajor, c.facts.MissingWAL, c.facts.Pod, c.facts.Namespace = 17, "the checkpoint at 0/5000028 on timeline 1", "orders-1", "shop"
			check(t, PlanNext(c.facts), c.want)
		})
	}
}

func TestDecideReplica(t *testing.T) {
	cases := []struct {
		name  string
		facts Observation
		want  verdict
	}{
		{"an empty volume waits for a primary", Observation{Config: Config{Known: true}}, verdict{Action: ActWait}},
		{"an empty volume is filled from the primary",
			Observation{Primary: leaderview.Primary{Known: true, SystemIdentifier: ours}}, verdict{Action: ActClone}},
		{"an empty volume is filled in a bootstrapped cluster",
			Observation{Config: Config{Known: true, SystemIdentifier: ours}, Primary: leaderview.Primary{Known: true, SystemIdentifier: ours}}, verdict{Action: ActClone}},
		{"an empty volume is not filled from another system",
			Observation{Config: Config{Known: true, SystemIdentifier: ours}, Primary: leaderview.Primary{Known: true, SystemIdentifier: theirs}}, verdict{Action: ActWait}},
		{"a standby starts without a primary", Observation{Config: Config{Known: true}, Volume: standbyOf(ours)}, verdict{Action: ActStartStandby}},
		{"a former primary's data starts as a standby's", Observation{Config: Config{Known: true}, Volume: dataOf(ours)}, verdict{Action: ActMarkStandby}},
		{"a standby waits for the configuration", Observation{Volume: standbyOf(ours)}, verdict{Action: ActWait}},
		{"another system's data is held, and never copied over",
			Observation{Config: Config{Known: true}, Volume: standbyOf(theirs), Primary: leaderview.Primary{Known: true, SystemIdentifier: ours}}, verdict{ActHold, agentapi.HoldSystemIdentifier}},
		{"data of another major version is held, and never copied over",
			Observation{Config: Config{Known: true}, Volume: datavolume.Observation{Content: datavolume.ContentData, Major: 15}, Primary: leaderview.Primary{Known: true}}, verdict{ActHold, agentapi.HoldDataVersion}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.facts.BinaryMajor, c.facts.Ordinal = 17, 1
			check(t, PlanNext(c.facts), c.want)
		})
	}
}

// Of every combination, a bootstrap needs that no record names one and the Lease held, and
// a start as a primary needs the Lease held and every known record to agree.
func TestDecideEveryCombination(t *testing.T) {
	ids := []string{"", ours, theirs}
	volumes := []datavolume.Observation{{}, dataOf(ours), standbyOf(ours), {Content: datavolume.ContentUnknown}}
	for claim := leaseclient.ClaimUnknown; claim <= leaseclient.ClaimExpired; claim++ {
		for _, v := range volumes {
			for _, config := range ids {
				for _, lease := range ids {
					for _, ordinal := range []int{0, 1} {
						for _, known := range []bool{false, true} {
							o := Observation{Ordinal: ordinal, BinaryMajor: 17, Volume: v, Config: Config{Known: known, SystemIdentifier: config},
								Lease: leaseclient.Record{Claim: claim, SystemIdentifier: lease}}
							p := PlanNext(o)
							mine := claim == leaseclient.ClaimMine && ordinal == 0
							if p.Action == ActBootstrap && (!mine || v.Content != datavolume.ContentEmpty || config != "" || lease != "" || !known) {
								t.Errorf("bootstrap from %+v", o)
							}
							if p.Action == ActStartPrimary && (!mine || lease != ours || config == theirs || v.Standby) {
								t.Errorf("start as a primary from %+v", o)
							}
							if p.Action == ActClone && v.Content != datavolume.ContentEmpty || p.Action == ActCopyAgain {
								t.Errorf("copy over data from %+v", o)
							}
						}
					}
				}
			}
		}
	}
}

func check(t *testing.T, got Plan, want verdict) {
	t.Helper()
	if diff := cmp.Diff(want, verdict{got.Action, got.Hold}); diff != "" {
		t.Errorf("decide (-want +got):\n%s\nmessage: %s", diff, got.Message)
	}
	if got.Message == "" {
		t.Error("a decision says why")
	}
}
