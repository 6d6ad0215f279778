package startplan

import (
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leaderview"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

func at(timeline int64, position string) lsn.Point { return lsn.Parse(timeline, position) }

func TestFloor(t *testing.T) {
	cases := []struct {
		name   string
		record leaseclient.Record
		want   lsn.Point
	}{
		{"nothing recorded", leaseclient.Record{Timeline: 1}, lsn.Point{}},
		{"a checkpoint", leaseclient.Record{Timeline: 2, Checkpoint: "0/50"}, at(2, "0/50")},
		{"a shutdown that an older agent recorded", leaseclient.Record{Timeline: 1, ShutdownPosition: "0/60"}, at(1, "0/60")},
		{"a renewal", leaseclient.Record{Timeline: 1, Checkpoint: "0/50", Flushed: "0/70"}, at(1, "0/70")},
		{"the later of both", leaseclient.Record{Timeline: 1, Checkpoint: "0/50", ShutdownPosition: "0/60"}, at(1, "0/60")},
	}
	for _, c := range cases {
		if got := readFloor(c.record); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// at rest is a volume whose data goes as far as a point.
func restingAt(v datavolume.Observation, p lsn.Point) datavolume.Observation {
	v.Control.Timeline, v.Control.Checkpoint = p.Timeline, strings.Fields(p.String())[0]
	return v
}

func TestDecideOlderData(t *testing.T) {
	recorded := leaseclient.Record{SystemIdentifier: ours, Timeline: 1, Checkpoint: "0/50"}
	claims := []leaseclient.ClaimState{leaseclient.ClaimMine, leaseclient.ClaimLapsed, leaseclient.ClaimHeld, leaseclient.ClaimReleased, leaseclient.ClaimExpired}
	for _, claim := range claims {
		recorded.Claim = claim
		o := Observation{BinaryMajor: 17, Config: Config{Known: true}, Lease: recorded}
		o.Volume = restingAt(dataOf(ours), at(1, "0/40"))
		check(t, PlanNext(o), verdict{ActHold, agentapi.HoldDataStale})
		for _, text := range []string{"0/40", "0/50", v1alpha1.AnnotationContinueWithOlderData} {
			if got := PlanNext(o).Message; !strings.Contains(got, text) {
				t.Errorf("message %q does not hold %s", got, text)
			}
		}
		for _, enough := range []lsn.Point{at(1, "0/50"), at(1, "0/60"), at(2, "0/40")} {
			o.Volume = restingAt(dataOf(ours), enough)
			if got := PlanNext(o); got.Action == ActHold {
				t.Errorf("claim %v at %v is held: %s", claim, enough, got.Message)
			}
		}
	}
}

func TestDecideNewerReplica(t *testing.T) {
	o := Observation{Ordinal: 1, BinaryMajor: 17, Config: Config{Known: true}, Primary: leaderview.Primary{Known: true, SystemIdentifier: ours, Pod: "orders-0", End: at(1, "0/50")}}
	hold := verdict{ActHold, agentapi.HoldDataDiverged}
	cases := []struct {
		name   string
		change func(*Observation)
		want   verdict
	}{
		{"a standby that is behind starts", func(o *Observation) { o.Volume = restingAt(standbyOf(ours), at(1, "0/40")) }, verdict{Action: ActStartStandby}},
		{"a standby that is ahead is held", func(o *Observation) { o.Volume = restingAt(standbyOf(ours), at(1, "0/60")) }, hold},
		{"what a standby had replayed counts",
			func(o *Observation) {
				o.Volume = restingAt(standbyOf(ours), at(1, "0/40"))
				o.Volume.Control.Recovery, o.Volume.Control.RecoveryTimeline = "0/60", 1
			}, hold},
		{"a former primary's data that is ahead is held", func(o *Observation) { o.Volume = restingAt(dataOf(ours), at(1, "0/60")) }, hold},
		{"data that is ahead is not copied over",
			func(o *Observation) { o.Volume, o.CopyAgain = restingAt(standbyOf(ours), at(1, "0/60")), true }, hold},
		{"a mark holds although the primary has passed it",
			func(o *Observation) {
				o.Volume = restingAt(standbyOf(ours), at(1, "0/40"))
				o.DivergedMark = &datavolume.DivergedMark{Own: at(1, "0/40"), Primary: at(1, "0/30")}
			}, hold},
		{"a mark holds without a primary, too",
			func(o *Observation) {
				o.Volume, o.Primary.Known = restingAt(standbyOf(ours), at(1, "0/40")), false
				o.DivergedMark = &datavolume.DivergedMark{}
			}, hold},
		{"a mark on an empty volume says nothing", func(o *Observation) { o.DivergedMark = &datavolume.DivergedMark{} }, verdict{Action: ActClone}},
		{"without a primary a standby starts",
			func(o *Observation) {
				o.Volume, o.Primary.Known, o.Primary.End = restingAt(standbyOf(ours), at(1, "0/60")), false, lsn.Point{}
			}, verdict{Action: ActStartStandby}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := o
			c.change(&o)
			check(t, PlanNext(o), c.want)
		})
	}
}
