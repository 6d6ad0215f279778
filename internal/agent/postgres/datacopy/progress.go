package datacopy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
)

const (
	// copySilence is how long a copy may receive nothing. A checkpoint of the
	// primary comes before the first byte; where that takes longer, it goes on
	// while the copy is tried again.
	copySilence = 3 * time.Minute
	// copyChecks is how often the copy is looked at in that time.
	copyChecks = 30
)

// saysSyncing is what pg_basebackup writes when it has received all, and nothing
// more comes from the primary.
const saysSyncing = "syncing data to disk"

// silentCopy says that a copy received nothing for too long.
type silentCopy struct{ limit time.Duration }

func (s *silentCopy) Error() string {
	return fmt.Sprintf("nothing was received for %s: the primary stands still, or the network to it", s.limit)
}

// runCopy runs pg_basebackup, and ends it when nothing comes any more: its
// connection to a primary that stands still lives as long as the primary's node.
// How long the copy takes as a whole does not matter.
func (c *Copies) runCopy(ctx context.Context, directory string, args ...string) error {
	limit := c.o.Silence
	if limit == 0 {
		limit = copySilence
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var complete atomic.Bool
	heard := func(line string) {
		if strings.Contains(line, saysSyncing) {
			complete.Store(true)
		}
	}
	go func() {
		if waitUntilSilent(ctx, limit, &complete, func() string { return fingerprintDirectory(ctx, directory) }) {
			cancel(&silentCopy{limit})
		}
	}()
	_, err := c.o.Programs.RunHeard(ctx, heard, "pg_basebackup", args...)
	if stopped := (*silentCopy)(nil); err != nil && errors.As(context.Cause(ctx), &stopped) {
		return stopped
	}
	return err
}

// waitUntilSilent waits until what is looked at has not changed for the limit, and says
// so; false when it is complete before, or ctx ends. It counts checks: while this
// process stood still, none was made.
func waitUntilSilent(ctx context.Context, limit time.Duration, complete *atomic.Bool, look func() string) bool {
	before, same := "", 0
	for {
		if !clock.Sleep(ctx, limit/copyChecks) || ctx.Err() != nil || complete.Load() {
			return false
		}
		now := look()
		if same++; now != before {
			before, same = now, 0
		}
		if same >= copyChecks {
			return true
		}
	}
}

// fingerprintDirectory of a directory changes with every byte that is written to a file
// in it: segments of the WAL have their full size from the beginning.
func fingerprintDirectory(ctx context.Context, directory string) string {
	var size, files, newest int64
	_ = filepath.WalkDir(directory, func(_ string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || entry.IsDir() {
			return nil //nolint:nilerr // files come and go
		}
		if info, err := entry.Info(); err == nil {
			size, files, newest = size+info.Size(), files+1, max(newest, info.ModTime().UnixNano())
		}
		return nil
	})
	return fmt.Sprint(size, files, newest)
}
