package postgres

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
)

// Data that received WAL while it was copied again may have acknowledged commits that the
// copy lacks: that copy never takes its place.
func TestRule15CopyWithoutWhatWasReceivedIsDropped(t *testing.T) {
	failed := errors.New("the volume does not answer")
	for _, c := range []struct {
		name   string
		after  lsn.Point
		err    error
		adopts bool
	}{
		{"nothing was received", lsn.Parse(3, "0/5000000"), nil, true},
		{"more was received", lsn.Parse(3, "0/5000100"), nil, false},
		{"another timeline was received", lsn.Parse(4, "0/4000000"), nil, false},
		{"it is not known", lsn.Point{}, failed, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			volume, adopted, stopped := t.TempDir(), false, false
			for _, name := range []string{datavolume.CompleteName, filepath.Join(datavolume.CopyName, "PG_VERSION")} {
				mustMake(t, filepath.Join(volume, name))
			}
			r := &replicaRepair{
				log: slog.New(slog.DiscardHandler), volume: volume, stop: func() { stopped = true },
				measure: func(context.Context) (lsn.Point, error) {
					if !stopped {
						t.Error("a server that runs is measured: it may receive more")
					}
					return c.after, c.err
				},
				adopt: func(context.Context) error { adopted = true; return nil },
			}
			if err := r.finishReplacement(t.Context(), lsn.Parse(3, "0/5000000")); !errors.Is(err, c.err) {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(filepath.Join(volume, datavolume.CopyName)); adopted != c.adopts || (err == nil) != c.adopts {
				t.Errorf("adopted %t, and the copy: %v", adopted, err)
			}
		})
	}
}
