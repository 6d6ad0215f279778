package postgres

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/servercontrol"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/startplan"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// Data that may be half rewound is not completed in the record of elections, neither when
// an agent starts nor before its database does.
func TestRule18RewindUnderWayIsNotCompleted(t *testing.T) {
	for _, place := range []string{datavolume.RewindName, filepath.Join(datavolume.DataName, datavolume.RewindName)} {
		for _, known := range []bool{false, true} {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, datavolume.DataName), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, place), []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
			a := &postgresAgent{o: Options{Paths: Paths{DataDir: dir}}}
			volume := datavolume.Observation{Content: datavolume.ContentData, Control: server.ControlData{SystemIdentifier: ours, Timeline: 4}}
			a.volume.Store(&volume)
			file, recorded, err := datavolume.OpenElection(dir)
			if err != nil {
				t.Fatal(err)
			}
			if known {
				recorded.SystemIdentifier, recorded.Timelines, recorded.Rewinding = ours, []int64{1, 3}, true
			}
			completed, err := a.completeRecord(t.Context(), file, recorded)
			if err != nil || !completed.Rewinding || completed.SystemIdentifier != recorded.SystemIdentifier || len(completed.Timelines) != len(recorded.Timelines) {
				t.Errorf("%s, known %v: %+v, %v", place, known, completed, err)
			}
			// There is no election that it could be reported to.
			o := startplan.Observation{Volume: volume}
			if err := a.completeElection(t.Context(), o, startplan.Plan{Action: startplan.ActStartStandby}); err != nil {
				t.Errorf("%s: %v", place, err)
			}
		}
	}
}

// deaf is what an elector needs that does not run.
type deaf struct{ elector.Guard }

func (deaf) ReadLease(context.Context) (lease.Reading, error) { return lease.Reading{}, nil }
func (deaf) WriteLease(context.Context, lease.Version, lease.Record) (lease.Answer, lease.Version, error) {
	return lease.Unanswered, lease.Version{}, nil
}
func (deaf) PostPeer(context.Context, string, string, any, any) error { return nil }
func (deaf) FindPod(string) (string, bool)                            { return "", false }
func (deaf) FindSilence(string) (time.Duration, bool)                 { return 0, false }

// Data that a rewind has left whole votes, once that is recorded: before its database
// starts, and while it is held for disk space alone.
func TestRule18WithdrawnRewindIsCompletedWhileDataIsHeld(t *testing.T) {
	for name, c := range map[string]struct {
		plan      startplan.Plan
		completes bool
	}{
		"it starts":                       {startplan.Plan{Action: startplan.ActStartStandby}, true},
		"it is held, and votes":           {startplan.Plan{Action: startplan.ActHold, MayVote: true}, true},
		"it is held, and does not vote":   {startplan.Plan{Action: startplan.ActHold}, false},
		"it is about to be rewound":       {startplan.Plan{Action: startplan.ActRewind}, false},
		"a copy is to take its place":     {startplan.Plan{Action: startplan.ActCopyAgain}, false},
		"it waits for what it is not yet": {startplan.Plan{Action: startplan.ActWait}, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := elector.New(elector.Options{
				Log: slog.New(slog.DiscardHandler), Identity: identity.Identity{Pod: "orders-0", PodUID: "u"}, Config: election.Config{Timing: defaultTiming},
				Recorded: election.Persistent{VolumeID: "v"}, Volume: &datavolume.ElectionFile{}, Lease: deaf{}, Guard: deaf{}, Server: servercontrol.New(servercontrol.Options{}), Peers: deaf{}, Directory: deaf{},
			})
			if err != nil {
				t.Fatal(err)
			}
			a := &postgresAgent{o: Options{Paths: Paths{DataDir: t.TempDir()}}}
			a.reports = e.Reports()
			o := startplan.Observation{Volume: datavolume.Observation{Content: datavolume.ContentData, Control: server.ControlData{SystemIdentifier: ours, Timeline: 4}}}
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // no election answers
			if err := a.completeElection(ctx, o, c.plan); errors.Is(err, context.Canceled) != c.completes {
				t.Errorf("asked to record it: %v", err)
			}
		})
	}
}
