package servercontrol

import (
	"context"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/recoverywatch"
)

// markInterval is between two looks at the progress of a promotion.
const markInterval = time.Second

// ReportProgress says that a server that starts has come nearer to answering, or that one
// of a term is kept down on purpose.
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

// FollowTerm ends a term in which a server was promoted, if none answers and nothing brings
// one nearer for recoverywatch.Limit: the loop may fail to start it again and again, or
// wait for a volume that hangs. MayEnd says whether the term is under way, and other
// members may lead. It ends with ctx.
func (c *Control) FollowTerm(ctx context.Context, mayEnd func(term int64) bool) {
	began := time.Now()
	var down time.Duration
	var seen int64
	for clock.Sleep(ctx, markInterval) {
		now, term, progress := time.Since(began), c.LedTerm(), c.progress.Load()
		if c.hasServer() || progress != seen || term == 0 || !mayEnd(term) {
			down, seen = now, progress
			continue
		}
		if now-down >= recoverywatch.Limit {
			c.o.Log.Error("no server of this primary answers, and none comes nearer: the term ends", "term", term, "limit", recoverywatch.Limit.String())
			c.reports.ReportFailed(term)
			down = now
		}
	}
}

// hasServer reports whether a server runs that answered.
func (c *Control) hasServer() bool {
	run, _, _ := c.current()
	if run == nil {
		return false
	}
	select {
	case <-run.Ended:
		return false
	default:
		return true
	}
}
