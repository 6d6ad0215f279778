package backup

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/store"
)

// listener hands on every report.
type listener struct{ runs chan v1alpha1.BackupRun }

func (l *listener) ReportProgress(_ context.Context, run v1alpha1.BackupRun) { l.runs <- run }
func (l *listener) ReportEnd(_ context.Context, run v1alpha1.BackupRun) error {
	l.runs <- run
	return nil
}

// While the store is asked again, reports say why, with the field, and until
// when; and no more once it has answered.
func TestRetriesAreReported(t *testing.T) {
	heard := &listener{runs: make(chan v1alpha1.BackupRun)}
	taker := &Taker{Reporter: heard, Every: time.Millisecond}
	until := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	busy := &store.Error{Op: "write a", Field: store.FieldEndpoint, Err: errors.New("the store answered 503")}
	const want = "spec.backup.destination.endpoint: write a: the store answered 503; it is tried until 2026-03-01T12:00:00Z"
	next := func(want string) {
		t.Helper()
		run := <-heard.runs
		if run.Error != want || run.Permanent || run.Step != v1alpha1.BackupStepCopying {
			t.Errorf("%+v, want %q", run, want)
		}
	}
	run := v1alpha1.BackupRun{Step: v1alpha1.BackupStepCopying}
	stop := taker.followRetries(t.Context(), run)
	taker.noteRetry(busy, until) // the first report
	next(want)
	taker.noteRetry(nil, until)
	next("")
	stop()

	taker.noteRetry(busy, until)
	stop = taker.followStep(t.Context(), &run, func() string { return "45%" })
	next(want)
	taker.noteRetry(nil, until)
	next("")
	stop()
}

// What ends a backup names the field of the destination; a volume has none.
func TestEndNamesTheField(t *testing.T) {
	refused := &store.Error{Op: "write a", Field: store.FieldURL, Permanent: true, Err: errors.New("the store answered 404")}
	for volume, want := range map[string]string{"": "spec.backup.destination.url: write a", "orders-backups": "write a"} {
		said := &ear{}
		taker := attempt(t, t.TempDir(), "pod", &text{}, said)
		taker.Task.Store = agentapi.BackupStore{Volume: volume}
		taker.Open = func(context.Context) (*store.Store, error) { return nil, refused }
		if err := taker.TakeBackup(t.Context()); err == nil || !strings.HasPrefix(said.last.Error, want) || !said.last.Permanent {
			t.Errorf("%v: %+v", err, said.last)
		}
	}
}
