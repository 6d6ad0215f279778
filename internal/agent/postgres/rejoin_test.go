package postgres

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
)

// A rewind that fails for a while is tried again, and one that goes on failing is refused.
func TestRule18RewindThatFailsForGoodIsRefused(t *testing.T) {
	var r rejoin
	for now := time.Hour; now <= time.Hour+rewindPatience; now += rewindPatience / 4 {
		if r.recordFailure(now, "away"); r.refused != "" {
			t.Fatalf("refused after %s", now-time.Hour)
		}
	}
	if r.recordFailure(time.Hour+rewindPatience+1, "still away"); r.refused != "still away" {
		t.Errorf("refused: %q", r.refused)
	}
	if r.forget(); r.refused != "" {
		t.Error("other data is refused as well")
	}
	if r.recordFailure(3*time.Hour, "once"); r.refused != "" {
		t.Error("refused at the first failure")
	}
}

// Data with the mark of a rewind neither votes nor leads after a restart, whatever the
// record of elections says; data without one does.
func TestRule18MarkedDataIsRecordedAsBeingRewound(t *testing.T) {
	for _, marked := range []bool{false, true} {
		for _, before := range []bool{false, true} {
			volume := t.TempDir()
			a := &postgresAgent{o: Options{Paths: Paths{DataDir: volume}}}
			a.volume.Store(&datavolume.Observation{Content: datavolume.ContentData, Control: server.ControlData{SystemIdentifier: ours, Timeline: 2}})
			mustMake(t, filepath.Join(volume, datavolume.DataName, "PG_VERSION"))
			if marked {
				mustMake(t, filepath.Join(volume, datavolume.RewindName))
			}
			file, recorded, err := datavolume.OpenElection(volume)
			if err != nil {
				t.Fatal(err)
			}
			recorded.SystemIdentifier, recorded.Rewinding = ours, before
			if err := file.WriteRecord(recorded); err != nil {
				t.Fatal(err)
			}
			if _, err := a.completeRecord(t.Context(), file, recorded); err != nil {
				t.Fatal(err)
			}
			if _, after, err := datavolume.OpenElection(volume); err != nil || after.Rewinding != marked {
				t.Errorf("marked %t, recorded %t: recorded %t, %v", marked, before, after.Rewinding, err)
			}
		}
	}
}

// WAL that is dropped is stored until the archive has taken it, and not again after that,
// but for other data.
func TestRule18DroppedWALIsStoredUntilItIsTaken(t *testing.T) {
	failed := errors.New("the store does not answer")
	var r rejoin
	calls, reports := 0, 0
	store := func(answer error) error {
		return r.storeOnce(t.Context(), func(string) { reports++ }, func(ctx context.Context) error {
			if _, limited := ctx.Deadline(); !limited {
				t.Error("it waits for ever")
			}
			calls++
			return answer
		})
	}
	for n, c := range []struct{ answer, want error }{{failed, failed}, {failed, failed}, {nil, nil}, {failed, nil}, {failed, nil}} {
		if err := store(c.answer); !errors.Is(err, c.want) {
			t.Errorf("try %d: %v", n, err)
		}
	}
	if calls != 3 || reports != 3 {
		t.Errorf("stored %d times and reported %d times, want 3", calls, reports)
	}
	r.forget()
	if err := store(nil); err != nil || calls != 4 {
		t.Errorf("other data is not stored: %v", err)
	}
}

func mustMake(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
}
