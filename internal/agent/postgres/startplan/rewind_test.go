package startplan

import (
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// The data of a former primary is rewound where an election explains that it diverged, and
// copied where that is refused. Data whose rewind is not complete is never started by
// itself.
func TestRule18PlanOfARewind(t *testing.T) {
	at := func(stage datavolume.RewindStage) Rewind {
		r := Rewind{RewindProgress: datavolume.RewindProgress{Stage: stage}}
		if stage == datavolume.RewindReplaying {
			r.Consistent = lsn.Parse(2, "0/6000028")
		}
		return r
	}
	with := func(r Rewind, change func(*Rewind)) Rewind { change(&r); return r }
	refuse := func(r *Rewind) { r.Refused = "the WAL is gone" }
	behind := primaryOf(ours)
	behind.End = lsn.Parse(2, "0/5000028")
	cases := []struct {
		name  string
		facts Observation
		want  verdict
	}{
		{"superseded data is rewound", Observation{Superseded: true, Primary: primaryOf(ours)}, verdict{Action: ActRewind}},
		{"superseded data is copied where a rewind is refused", Observation{Superseded: true, Primary: primaryOf(ours), Rewind: with(Rewind{}, refuse)}, verdict{Action: ActCopyAgain}},
		{"data that lacks WAL is copied, and not rewound", Observation{CopyAgain: true, Contained: true, Primary: primaryOf(ours)}, verdict{Action: ActCopyAgain}},
		{"what nothing explains is held", Observation{Superseded: true, Primary: primaryOf(ours), DivergedMark: &datavolume.DivergedMark{}}, verdict{ActHold, agentapi.HoldDataDiverged}},
		{"it is held while a rewind is not complete, too", Observation{Primary: primaryOf(ours), DivergedMark: &datavolume.DivergedMark{}, Rewind: at(datavolume.RewindStarted)}, verdict{ActHold, agentapi.HoldDataDiverged}},

		{"a rewind that was interrupted waits for a primary", Observation{Rewind: at(datavolume.RewindStarted)}, verdict{Action: ActWait}},
		{"it is repeated", Observation{Rewind: at(datavolume.RewindStarted), Primary: primaryOf(ours)}, verdict{Action: ActRewind}},
		{"it is copied where that is refused", Observation{Rewind: with(at(datavolume.RewindStarted), refuse), Primary: primaryOf(ours)}, verdict{Action: ActCopyAgain}},
		{"it does not lead, whatever its Lease", Observation{Rewind: at(datavolume.RewindStarted), Leads: true}, verdict{Action: ActWait}},
		{"it makes no record", Observation{Rewind: at(datavolume.RewindStarted), Bootstrap: true, Lease: Lease{State: LeaseMissing}}, verdict{Action: ActWait}},
		{"it is not copied from another system", Observation{Rewind: with(at(datavolume.RewindStarted), refuse), Primary: primaryOf(theirs), Lease: Lease{}}, verdict{ActHold, agentapi.HoldSystemIdentifier}},

		{"rewound data waits for a primary", Observation{Rewind: at(datavolume.RewindReplaying)}, verdict{Action: ActWait}},
		{"it waits for the primary's answer", Observation{Rewind: at(datavolume.RewindReplaying), Primary: primaryOf(ours)}, verdict{Action: ActWait}},
		{"it starts once the primary leads to where it is consistent",
			Observation{Rewind: with(at(datavolume.RewindReplaying), func(r *Rewind) { r.Reachable = true }), Primary: primaryOf(ours)}, verdict{Action: ActStartRewound}},
		{"it is not held for what it has not received yet",
			Observation{Rewind: with(at(datavolume.RewindReplaying), func(r *Rewind) { r.Reachable = true }), Primary: behind, End: lsn.Extent{Point: lsn.Parse(2, "0/6000028")}}, verdict{Action: ActStartRewound}},
		{"it is copied where that WAL is lost", Observation{Rewind: with(at(datavolume.RewindReplaying), func(r *Rewind) { r.Lost = true }), Primary: primaryOf(ours)}, verdict{Action: ActCopyAgain}},
		{"it is copied where it does not start",
			Observation{Rewind: with(with(at(datavolume.RewindReplaying), refuse), func(r *Rewind) { r.Reachable = true }), Primary: primaryOf(ours)}, verdict{Action: ActCopyAgain}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.facts.BinaryMajor, c.facts.Config, c.facts.Volume = 17, Config{Known: true}, dataOf(ours)
			check(t, PlanNext(c.facts), c.want)
			if c.want.Action == ActRewind && c.facts.Rewind.Stage == datavolume.RewindNone {
				c.facts.Config = Config{} // it is not known yet where WAL is archived
				check(t, PlanNext(c.facts), verdict{Action: ActWait})
			}
		})
	}
	noSpace := Observation{BinaryMajor: 17, Config: Config{Known: true}, Volume: dataOf(ours), Superseded: true, Rewind: Rewind{DiskSpace: 600 << 20}, Primary: primaryOf(ours)}
	noSpace.Volume.Space = diskspace.Space{Total: 10 << 30, Free: 600<<20 - 1}
	if p := PlanNext(noSpace); p.Action != ActHold || p.Hold != agentapi.HoldVolumeFull || p.DiskSpace != 608<<20 || !p.MayVote || !strings.Contains(p.Message, "needs 608Mi") || !strings.Contains(p.Message, "spec.storage.size") {
		t.Errorf("a rewind without disk space: %+v", p)
	}
	noSpace.Volume.Space.Free++
	check(t, PlanNext(noSpace), verdict{Action: ActRewind})

	full := Observation{BinaryMajor: 17, Config: Config{Known: true}, Volume: dataOf(ours), Rewind: with(at(datavolume.RewindStarted), refuse), Primary: primaryOf(ours)}
	full.Volume.Space, full.Primary.DataSize = diskspace.Space{Total: 10 << 30, Free: 1 << 30}, 8<<30
	check(t, PlanNext(full), verdict{ActHold, agentapi.HoldVolumeFull})
	full.Volume.Space.Free = 10 << 30
	if p := PlanNext(full); !strings.Contains(p.Reason, "cannot be rewound: the WAL is gone") {
		t.Errorf("the reason of the copy is %q", p.Reason)
	}
}
