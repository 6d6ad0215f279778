package servercontrol

import (
	"context"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/recoverywatch"
)

// markInterval is between two looks at the progress of a promotion.
const markInterval = time.Second

// ReportProgress says that a server that starts has come nearer to answering.
func (c *Control) ReportProgress() { c.progress.Add(1) }

// awaitStart waits for a server that answers, as long as one that starts makes progress;
// nil if none does for startPatience, or when ctx ends.
func (c *Control) awaitStart(ctx context.Context) *Run {
	for {
		before := c.progress.Load()
		wait, cancel := context.WithTimeout(ctx, startPatience)
		run := c.awaitRun(wait)
		cancel()
		if run != nil || ctx.Err() != nil || c.progress.Load() == before {
			return run
		}
	}
}

// boundPromotion ends a promotion that makes no progress, and its term. One that replays
// what was received may take as long as that does. The failure is reported at once: what
// the promotion waits for may not end with its context.
func (c *Control) boundPromotion(ctx context.Context, run *Run, term int64) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	began := time.Now()
	go func() {
		var progress recoverywatch.Progress
		for {
			progress.Observe(time.Since(began), run.ReadMark())
			if progress.IsStuck(time.Since(began)) {
				c.o.Log.Error("the promotion makes no progress: the term ends", "term", term, "limit", recoverywatch.Limit.String())
				c.reports.ReportFailed(term)
				cancel()
				return
			}
			if !clock.Sleep(ctx, markInterval) {
				return
			}
		}
	}()
	return ctx, cancel
}
