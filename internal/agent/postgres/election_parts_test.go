package postgres

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/startplan"
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
