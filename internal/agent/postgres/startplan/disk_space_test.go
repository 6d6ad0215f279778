package startplan

import (
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leaderview"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

func TestPlanSpaceForACopy(t *testing.T) {
	const gib = int64(1) << 30
	ask := func(change func(*Observation)) Observation {
		o := Observation{BinaryMajor: 17, Config: Config{Known: true}, Primary: leaderview.Primary{Known: true, SystemIdentifier: ours, DataSize: 4 * gib}}
		change(&o)
		return o
	}
	hold := verdict{ActHold, agentapi.HoldVolumeFull}
	cases := []struct {
		name  string
		facts Observation
		want  verdict
	}{
		{"a copy that fits is made",
			ask(func(o *Observation) { o.Volume.Space = diskspace.Space{Free: 5 * gib, Total: 5 * gib} }), verdict{Action: ActClone}},
		{"a copy that does not fit is not begun",
			ask(func(o *Observation) { o.Volume.Space = diskspace.Space{Free: 3 * gib, Total: 5 * gib} }), hold},
		{"a copy that fits only without its log is not begun",
			ask(func(o *Observation) { o.Volume.Space = diskspace.Space{Free: 4*gib + 1, Total: 5 * gib} }), hold},
		{"a primary that does not say its size is copied from",
			ask(func(o *Observation) { o.Primary.DataSize, o.Volume.Space = 0, diskspace.Space{Free: gib, Total: gib} }), verdict{Action: ActClone}},
		{"a volume that was full in the middle of the last copy waits",
			ask(func(o *Observation) {
				o.CopyFilled, o.Volume.Space = true, diskspace.Space{Free: 5 * gib, Total: 5 * gib}
			}), hold},
		{"data that cannot follow is not copied over without disk space for both",
			ask(func(o *Observation) {
				o.Volume, o.CopyAgain, o.Contained = standbyOf(ours), true, true
				o.Volume.Space = diskspace.Space{Free: gib, Total: 8 * gib}
			}), hold},
		{"data that cannot follow is copied again when there is disk space",
			ask(func(o *Observation) {
				o.Volume, o.CopyAgain, o.Contained = standbyOf(ours), true, true
				o.Volume.Space = diskspace.Space{Free: 5 * gib, Total: 10 * gib}
			}), verdict{Action: ActCopyAgain}},
		{"data that cannot follow starts while no primary is there to copy from",
			ask(func(o *Observation) { o.Volume, o.CopyAgain, o.Primary.Known = standbyOf(ours), true, false }), verdict{Action: ActStartStandby}},
		{"data that was not compared with the primary just now is not copied over",
			ask(func(o *Observation) { o.Volume, o.CopyAgain = standbyOf(ours), true }), verdict{Action: ActStartStandby}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { check(t, PlanNext(c.facts), c.want) })
	}
}

// What a held member asks for is what lets it go on.
func TestDiskSpaceNeededIsEnough(t *testing.T) {
	const gib = int64(1) << 30
	base := Observation{BinaryMajor: 17, Config: Config{Known: true}, Primary: leaderview.Primary{Known: true, SystemIdentifier: ours, DataSize: 4*gib + 12345}}
	for name, o := range map[string]Observation{
		"full volume":      {BinaryMajor: 17, Volume: datavolume.Observation{Content: datavolume.ContentData, Major: 17, Space: diskspace.Space{Free: 4096, Total: gib}}},
		"no space to copy": func() Observation { o := base; o.Volume.Space = diskspace.Space{Free: gib, Total: gib}; return o }(),
		"copy that filled": func() Observation {
			o := base
			o.Primary.DataSize, o.Volume.Space = 0, diskspace.Space{Free: gib, Total: gib}
			return o
		}(),
		"copy beside older": func() Observation {
			o := base
			o.Volume, o.CopyAgain, o.Contained = standbyOf(ours), true, true
			o.Volume.Space = diskspace.Space{Free: gib, Total: 8 * gib}
			return o
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			o.CopyFilled = name == "copy that filled"
			p := PlanNext(o)
			if p.Hold != agentapi.HoldVolumeFull || p.DiskSpace <= o.Volume.Space.Free {
				t.Fatalf("%+v with %d free", p, o.Volume.Space.Free)
			}
			o.Volume.Space.Total += p.DiskSpace - o.Volume.Space.Free
			o.Volume.Space.Free, o.CopyFilled = p.DiskSpace, false // another size, another try
			if p := PlanNext(o); p.Hold == agentapi.HoldVolumeFull {
				t.Errorf("still held with what was asked for: %+v", p)
			}
		})
	}
}

// How full a volume is says nothing against a member that has its data.
func TestDiskSpaceIsForCopiesOnly(t *testing.T) {
	o := Observation{BinaryMajor: 17, Config: Config{Known: true}, Primary: leaderview.Primary{Known: true, SystemIdentifier: ours, DataSize: 1 << 40}, CopyFilled: true, Volume: standbyOf(ours)}
	check(t, PlanNext(o), verdict{Action: ActStartStandby})
	o.Leads, o.Volume = true, dataOf(ours)
	check(t, PlanNext(o), verdict{Action: ActContinue})
}

// A member whose volume is full votes with data that is whole, and with no other.
func TestRule9FullVolumeVotesWithWholeData(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Observation)
		votes  bool
	}{
		"whole data":                {func(*Observation) {}, true},
		"no data":                   {func(o *Observation) { o.Volume = full(datavolume.Observation{}) }, false},
		"its WAL lacks a record":    {func(o *Observation) { o.MissingWAL = "0/3000028" }, false},
		"it is marked as diverged":  {func(o *Observation) { o.DivergedMark = &datavolume.DivergedMark{} }, false},
		"its rewind has begun":      {func(o *Observation) { o.Rewind.Stage = datavolume.RewindPrepared }, false},
		"its rewind has changed it": {func(o *Observation) { o.Rewind.Stage = datavolume.RewindStarted }, false},
		"it was rewound":            {func(o *Observation) { o.Rewind.Stage = datavolume.RewindReplaying }, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observation{BinaryMajor: 17, Config: Config{Known: true}, Volume: full(standbyOf(ours))}
			c.change(&o)
			if p := PlanNext(o); p.Action != ActHold || p.Hold != agentapi.HoldVolumeFull || p.MayVote != c.votes {
				t.Errorf("got %+v", p)
			}
		})
	}
}
