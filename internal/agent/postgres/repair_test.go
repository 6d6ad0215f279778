package postgres

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/elector"
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
		term   int64
		adopts bool
	}{
		{"nothing was received", lsn.Parse(3, "0/5000000"), nil, 4, true},
		{"more was received", lsn.Parse(3, "0/5000100"), nil, 4, false},
		{"another timeline was received", lsn.Parse(4, "0/4000000"), nil, 4, false},
		{"it is not known", lsn.Point{}, failed, 4, false},
		{"another member was elected", lsn.Parse(3, "0/5000000"), nil, 5, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			volume, adopted, stopped := t.TempDir(), false, false
			for _, name := range []string{datavolume.CompleteName, filepath.Join(datavolume.CopyName, "PG_VERSION")} {
				mustMake(t, filepath.Join(volume, name))
			}
			r := &replicaRepair{
				leader: func() elector.Leader { return elector.Leader{Term: c.term} },
				log:    slog.New(slog.DiscardHandler), volume: volume, stop: func() { stopped = true },
				measure: func(context.Context) (lsn.Point, error) {
					if !stopped {
						t.Error("a server that runs is measured: it may receive more")
					}
					return c.after, c.err
				},
				adopt: func(context.Context) error { adopted = true; return nil },
			}
			if err := r.finishReplacement(t.Context(), lsn.Parse(3, "0/5000000"), 4); !errors.Is(err, c.err) {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(filepath.Join(volume, datavolume.CopyName)); adopted != c.adopts || (err == nil) != c.adopts {
				t.Errorf("adopted %t, and the copy: %v", adopted, err)
			}
		})
	}
}

// A copy of a primary's data ends when another member is elected.
func TestRule15CopyEndsWithItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var term atomic.Int64
		term.Store(4)
		err := doInTerm(t.Context(), func() elector.Leader { return elector.Leader{Term: term.Load()} }, 4, func(ctx context.Context) error {
			time.Sleep(time.Minute)
			if ctx.Err() != nil {
				t.Fatal("it ends in its term")
			}
			term.Store(5)
			time.Sleep(2 * leaderCheck)
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("it goes on in another term: %v", err)
		}
	})
}
