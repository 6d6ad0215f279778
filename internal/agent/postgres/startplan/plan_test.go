package startplan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leaderview"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
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

func TestPlanBootstrapMember(t *testing.T) {
	fresh := Config{Known: true, Cluster: "new", Fresh: true}
	at := func(state LeaseState, id string) Lease { return Lease{State: state, SystemIdentifier: id} }
	cases := []struct {
		name  string
		facts Observation
		want  verdict
	}{
		{"the empty volume of a cluster that is not bootstrapped is initialized", Observation{Config: fresh, Lease: at(LeaseMissing, "")}, verdict{Action: ActBootstrap}},
		{"a Lease that an earlier cluster left behind forbids no bootstrap", Observation{Config: fresh, Lease: at(LeaseLeftBehind, "")}, verdict{Action: ActBootstrap}},
		{"nothing is initialized while the Lease cannot be read", Observation{Config: fresh}, verdict{Action: ActWait}},
		{"nothing is initialized while the configuration is unknown", Observation{Lease: at(LeaseMissing, "")}, verdict{Action: ActWait}},
		{"nothing is initialized beside the Lease of an earlier version", Observation{Config: fresh, Lease: at(LeaseEarlierFree, "")}, verdict{Action: ActWait}},
		{"nothing is initialized while the Lease has a record", Observation{Config: fresh, Lease: at(LeaseRecorded, "")}, verdict{Action: ActWait}},
		{"a volume that was in an election is not initialized", Observation{Config: fresh, Lease: Lease{State: LeaseMissing, Led: true}}, verdict{Action: ActWait}},
		{"the Lease's record forbids a second bootstrap", Observation{Config: fresh, Lease: at(LeaseRecorded, ours)}, verdict{Action: ActWait}},
		{"the only member without its data is held", Observation{Alone: true, Config: fresh, Lease: at(LeaseRecorded, ours)}, verdict{ActHold, agentapi.HoldDataMissing}},
		{"no member with data is there any more", Observation{NoData: true, Config: Config{Known: true, SystemIdentifier: ours}, Lease: at(LeaseMissing, "")}, verdict{ActHold, agentapi.HoldDataMissing}},
		{"an empty volume is filled from the member that leads", Observation{Config: Config{Known: true, SystemIdentifier: ours}, Primary: primaryOf(ours)}, verdict{Action: ActClone}},
		{"new data is recorded before its first start", Observation{Config: fresh, Volume: dataOf(ours), Lease: at(LeaseMissing, "")}, verdict{Action: ActRecord}},
		{"it is recorded over a Lease that was left behind", Observation{Config: fresh, Volume: dataOf(ours), Lease: at(LeaseLeftBehind, "")}, verdict{Action: ActRecord}},
		{"it waits while the Lease cannot be read", Observation{Config: fresh, Volume: dataOf(ours)}, verdict{Action: ActWait}},
		{"data of an earlier version waits for the Lease's holder", Observation{Config: fresh, Volume: dataOf(ours), Lease: at(LeaseEarlierHeld, ours)}, verdict{Action: ActWait}},
		{"data of an earlier version is recorded once the Lease is free", Observation{Config: fresh, Volume: dataOf(ours), Lease: at(LeaseEarlierFree, ours)}, verdict{Action: ActRecord}},
		{"an edited Lease of an earlier version holds the data", Observation{Config: fresh, Volume: dataOf(ours), Lease: at(LeaseDamaged, "")}, verdict{ActHold, agentapi.HoldDataUnknown}},
		{"recorded data starts as a standby", Observation{Config: fresh, Volume: dataOf(ours), Lease: at(LeaseRecorded, ours)}, verdict{Action: ActStartStandby}},
		{"a Lease that was lost is not made again by data that was in an election", Observation{Config: fresh, Volume: dataOf(ours), Lease: Lease{State: LeaseMissing, Led: true}}, verdict{Action: ActStartStandby}},
		{"another system's data is held by the Lease's record", Observation{Config: fresh, Volume: dataOf(theirs), Lease: at(LeaseRecorded, ours)}, verdict{ActHold, agentapi.HoldSystemIdentifier}},
		{"another system's data is held by the configuration's record", Observation{Config: Config{Known: true, SystemIdentifier: ours}, Volume: dataOf(theirs)}, verdict{ActHold, agentapi.HoldSystemIdentifier}},
		{"data of another major version is held", Observation{Config: fresh, Volume: datavolume.Observation{Content: datavolume.ContentData, Major: 16}}, verdict{ActHold, agentapi.HoldDataVersion}},
		{"unknown files are held, in a cluster that is not bootstrapped too", Observation{Config: fresh, Volume: datavolume.Observation{Content: datavolume.ContentUnknown, Unknown: "ibdata1"}, Lease: at(LeaseMissing, "")}, verdict{ActHold, agentapi.HoldDataUnknown}},
		{"a full volume is held", Observation{Config: fresh, Volume: full(dataOf(ours))}, verdict{ActHold, agentapi.HoldVolumeFull}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.facts.BinaryMajor, c.facts.Bootstrap = 17, true
			check(t, PlanNext(c.facts), c.want)
		})
	}
}

func full(v datavolume.Observation) datavolume.Observation {
	v.Space = diskspace.Space{Free: 1, Total: 1 << 30}
	return v
}

func primaryOf(id string) leaderview.Primary {
	return leaderview.Primary{Known: true, Pod: "orders-1", SystemIdentifier: id}
}

// Data whose WAL lacks what a start needs is neither started nor copied over,
// whatever else is known of it.
func TestPlanMissingWAL(t *testing.T) {
	hold := verdict{ActHold, agentapi.HoldWALMissing}
	cases := []struct {
		name  string
		facts Observation
		want  verdict
	}{
		{"data is held", Observation{Config: Config{Known: true}, Volume: dataOf(ours)}, hold},
		{"a primary that crashed is held", Observation{Config: Config{Known: true}, Volume: dataOf(ours), Leads: true}, hold},
		{"another system's data is held as that",
			Observation{Config: Config{Known: true, SystemIdentifier: ours}, Volume: dataOf(theirs)}, verdict{ActHold, agentapi.HoldSystemIdentifier}},
		{"a replica's data is held while the primary serves", Observation{Config: Config{Known: true}, Volume: standbyOf(ours), Primary: primaryOf(ours)}, hold},
		{"a replica that holds more than the primary is held as that",
			Observation{Config: Config{Known: true}, Volume: standbyOf(ours), DivergedMark: &datavolume.DivergedMark{}}, verdict{ActHold, agentapi.HoldDataDiverged}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.facts.BinaryMajor, c.facts.MissingWAL, c.facts.Pod, c.facts.Namespace = 17, "the checkpoint at 0/5000028 on timeline 1", "orders-1", "shop"
			check(t, PlanNext(c.facts), c.want)
		})
	}
}

func TestPlanOtherMember(t *testing.T) {
	ahead := primaryOf(ours)
	ahead.End = lsn.Parse(2, "0/5000028")
	cases := []struct {
		name  string
		facts Observation
		want  verdict
	}{
		{"an empty volume waits for a primary", Observation{Config: Config{Known: true}}, verdict{Action: ActWait}},
		{"an empty volume never bootstraps", Observation{Config: Config{Known: true, Fresh: true}, Lease: Lease{State: LeaseMissing}}, verdict{Action: ActWait}},
		{"an empty volume is filled from the primary", Observation{Primary: primaryOf(ours)}, verdict{Action: ActClone}},
		{"an empty volume is not filled from another system",
			Observation{Config: Config{Known: true, SystemIdentifier: ours}, Primary: primaryOf(theirs)}, verdict{Action: ActWait}},
		{"a standby starts without a primary", Observation{Config: Config{Known: true}, Volume: standbyOf(ours)}, verdict{Action: ActStartStandby}},
		{"a former primary's data starts as a standby's", Observation{Config: Config{Known: true}, Volume: dataOf(ours)}, verdict{Action: ActStartStandby}},
		{"a standby waits for the configuration", Observation{Volume: standbyOf(ours)}, verdict{Action: ActWait}},
		{"a primary whose database crashed in its term goes on", Observation{Config: Config{Known: true}, Volume: dataOf(ours), Leads: true}, verdict{Action: ActContinue}},
		{"it is not replaced without a primary", Observation{Config: Config{Known: true}, Volume: dataOf(ours), Superseded: true}, verdict{Action: ActStartStandby}},
		{"it is not replaced by another system's",
			Observation{Config: Config{Known: true}, Volume: dataOf(ours), Superseded: true, Primary: primaryOf(theirs)}, verdict{ActHold, agentapi.HoldSystemIdentifier}},
		{"marked data is held, whatever the leader is",
			Observation{Config: Config{Known: true}, Volume: dataOf(ours), DivergedMark: &datavolume.DivergedMark{}, Superseded: true, Primary: primaryOf(ours)}, verdict{ActHold, agentapi.HoldDataDiverged}},
		{"data that is ahead of the primary on its timeline is held",
			Observation{Config: Config{Known: true}, Volume: standbyOf(ours), End: lsn.Extent{Point: lsn.Parse(2, "0/6000028")}, Primary: ahead}, verdict{ActHold, agentapi.HoldDataDiverged}},
		{"data of another major version is held, and never copied over",
			Observation{Config: Config{Known: true}, Volume: datavolume.Observation{Content: datavolume.ContentData, Major: 15}, Primary: leaderview.Primary{Known: true}}, verdict{ActHold, agentapi.HoldDataVersion}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.facts.BinaryMajor = 17
			check(t, PlanNext(c.facts), c.want)
		})
	}
}

// Of every combination, a bootstrap needs an empty volume, no record of a database, and
// a Lease that was read; a start in the role of a primary needs a crash in its own term.
func TestPlanEveryCombination(t *testing.T) {
	ids := []string{"", ours, theirs}
	volumes := []datavolume.Observation{{}, dataOf(ours), standbyOf(ours), {Content: datavolume.ContentUnknown}}
	for state := LeaseUnknown; state <= LeaseDamaged; state++ {
		for _, v := range volumes {
			for _, config := range ids {
				for _, lease := range ids {
					for bits := range 16 {
						o := Observation{Bootstrap: bits&1 > 0, BinaryMajor: 17, Volume: v, Config: Config{Known: bits&2 > 0, SystemIdentifier: config},
							Lease: Lease{State: state, SystemIdentifier: lease, Led: bits&4 > 0}, Leads: bits&8 > 0}
						p := PlanNext(o)
						mayBootstrap := o.Bootstrap && v.Content == datavolume.ContentEmpty && config == "" && lease == "" && o.Config.Known &&
							!o.Lease.Led && (state == LeaseMissing || state == LeaseLeftBehind)
						if p.Action == ActBootstrap && !mayBootstrap {
							t.Errorf("bootstrap from %+v", o)
						}
						if p.Action == ActContinue && !o.Leads || p.Action == ActRecord && (o.Lease.Led || !o.Bootstrap) {
							t.Errorf("%v from %+v", p.Action, o)
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

func check(t *testing.T, got Plan, want verdict) {
	t.Helper()
	if diff := cmp.Diff(want, verdict{got.Action, got.Hold}); diff != "" {
		t.Errorf("decide (-want +got):\n%s\nmessage: %s", diff, got.Message)
	}
	if got.Message == "" {
		t.Error("a decision says why")
	}
}
