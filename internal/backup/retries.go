package backup

import (
	"context"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// noteRetry keeps why the store is asked again, and until when, for the next
// report.
func (t *Taker) noteRetry(err error, until time.Time) {
	text := ""
	if err != nil {
		text = t.describeFault(err) + "; it is tried until " + until.UTC().Format(time.RFC3339)
	}
	t.retries.Store(text)
}

// retryReason is why the store is asked again now; empty where it is not.
func (t *Taker) retryReason() string {
	text, _ := t.retries.Load().(string)
	return text
}

// describeFault is an error with the field of the destination that it is in.
func (t *Taker) describeFault(err error) string { return DescribeFault(err, t.Task.Store.Volume != "") }

// followRetries reports why the store is asked again, in steps that report
// nothing else, until what it returns is called.
func (t *Taker) followRetries(ctx context.Context, run v1alpha1.BackupRun) (stop func()) {
	reported := false
	return FollowProgress(ctx, t.Every, t.retryReason, func(ctx context.Context, text string) {
		if text == "" && !reported {
			return
		}
		reported = true
		run.Error = text
		t.Reporter.ReportProgress(ctx, run)
	})
}
