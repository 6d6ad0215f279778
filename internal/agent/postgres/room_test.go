package postgres

import (
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

func TestDecideRoomForACopy(t *testing.T) {
	const gib = int64(1) << 30
	ask := func(change func(*facts)) facts {
		f := facts{Ordinal: 1, BinaryMajor: 17, ConfigKnown: true, PrimaryKnown: true, PrimarySystemIdentifier: ours, PrimaryDataSize: 4 * gib}
		change(&f)
		return f
	}
	hold := verdict{actHold, agentapi.HoldVolumeFull}
	cases := []struct {
		name  string
		facts facts
		want  verdict
	}{
		{"a copy that fits is made",
			ask(func(f *facts) { f.Volume.Space = diskspace.Space{Free: 5 * gib, Total: 5 * gib} }), verdict{Action: actClone}},
		{"a copy that does not fit is not begun",
			ask(func(f *facts) { f.Volume.Space = diskspace.Space{Free: 3 * gib, Total: 5 * gib} }), hold},
		{"a copy that fits only without its log is not begun",
			ask(func(f *facts) { f.Volume.Space = diskspace.Space{Free: 4*gib + 1, Total: 5 * gib} }), hold},
		{"a primary that does not say its size is copied from",
			ask(func(f *facts) { f.PrimaryDataSize, f.Volume.Space = 0, diskspace.Space{Free: gib, Total: gib} }), verdict{Action: actClone}},
		{"a volume that was full in the middle of the last copy waits",
			ask(func(f *facts) { f.CopyFilled, f.Volume.Space = true, diskspace.Space{Free: 5 * gib, Total: 5 * gib} }), hold},
		{"data that cannot follow is not copied over without room for both",
			ask(func(f *facts) {
				f.Volume, f.CopyAgain, f.Contained = standbyOf(ours), true, true
				f.Volume.Space = diskspace.Space{Free: gib, Total: 8 * gib}
			}), hold},
		{"data that cannot follow is copied again when there is room",
			ask(func(f *facts) {
				f.Volume, f.CopyAgain, f.Contained = standbyOf(ours), true, true
				f.Volume.Space = diskspace.Space{Free: 5 * gib, Total: 10 * gib}
			}), verdict{Action: actCopyAgain}},
		{"data that cannot follow starts while nobody is there to copy from",
			ask(func(f *facts) { f.Volume, f.CopyAgain, f.PrimaryKnown = standbyOf(ours), true, false }), verdict{Action: actStartStandby}},
		{"data that was not compared with the primary just now is not copied over",
			ask(func(f *facts) { f.Volume, f.CopyAgain = standbyOf(ours), true }), verdict{Action: actStartStandby}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { check(t, decide(c.facts), c.want) })
	}
}

// What a held member asks for is what lets it go on.
func TestRoomNeededIsEnough(t *testing.T) {
	const gib = int64(1) << 30
	base := facts{Ordinal: 1, BinaryMajor: 17, ConfigKnown: true, PrimaryKnown: true, PrimarySystemIdentifier: ours, PrimaryDataSize: 4*gib + 12345}
	for name, f := range map[string]facts{
		"full volume":     {Ordinal: 0, BinaryMajor: 17, Volume: volume{Content: contentData, Major: 17, Space: diskspace.Space{Free: 4096, Total: gib}}},
		"no room to copy": func() facts { f := base; f.Volume.Space = diskspace.Space{Free: gib, Total: gib}; return f }(),
		"copy that filled": func() facts {
			f := base
			f.PrimaryDataSize, f.Volume.Space = 0, diskspace.Space{Free: gib, Total: gib}
			return f
		}(),
		"copy beside older": func() facts {
			f := base
			f.Volume, f.CopyAgain, f.Contained = standbyOf(ours), true, true
			f.Volume.Space = diskspace.Space{Free: gib, Total: 8 * gib}
			return f
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			f.CopyFilled = name == "copy that filled"
			d := decide(f)
			if d.Hold != agentapi.HoldVolumeFull || d.Room <= f.Volume.Space.Free {
				t.Fatalf("%+v with %d free", d, f.Volume.Space.Free)
			}
			f.Volume.Space.Total += d.Room - f.Volume.Space.Free
			f.Volume.Space.Free, f.CopyFilled = d.Room, false // another size, another try
			if d := decide(f); d.Hold == agentapi.HoldVolumeFull {
				t.Errorf("still held with what was asked for: %+v", d)
			}
		})
	}
}

// How full a volume is says nothing against a member that has its data.
func TestRoomIsForCopiesOnly(t *testing.T) {
	f := facts{Ordinal: 1, BinaryMajor: 17, ConfigKnown: true, PrimaryKnown: true, PrimarySystemIdentifier: ours, PrimaryDataSize: 1 << 40, CopyFilled: true, Volume: standbyOf(ours)}
	check(t, decide(f), verdict{Action: actStartStandby})
	f.Ordinal, f.Volume, f.Lease = 0, dataOf(ours), leaseclient.Record{Claim: leaseclient.ClaimMine, SystemIdentifier: ours}
	check(t, decide(f), verdict{Action: actStartPrimary})
}
