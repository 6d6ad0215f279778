// Package backup is what runs in the pods of a Job: it copies a database to a
// store, checks what is stored there, and removes it again. Which database it
// is, a Source knows.
package backup

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/store"
)

// Facts are what is known of a copy.
type Facts struct {
	// Version of the database.
	Version string
	// SystemIdentifier of the database system, where it has one.
	SystemIdentifier string
	// Start and End position in the database's WAL.
	Start, End string
	// Ended is when the database had surely written End, by any clock that its
	// copy has; zero where it has none.
	Ended time.Time
}

// Source is a database that is copied.
type Source interface {
	// CopyMember writes a copy of one member as a stream. It refuses a member that is
	// not fit, if it can before it writes anything.
	CopyMember(ctx context.Context, member agentapi.BackupSource, to io.Writer) (Facts, error)
	// VerifyCopy reads a whole copy to its end, and says what it holds. Its error
	// says what is wrong with the copy.
	VerifyCopy(ctx context.Context, from io.Reader) (Facts, error)
}

// Reporter reports to the operator.
type Reporter interface {
	// ReportProgress reports now and then how far a step is; what it fails with is lost.
	ReportProgress(ctx context.Context, run v1alpha1.BackupRun)
	// ReportEnd reports how the run ended, and tries for long.
	ReportEnd(ctx context.Context, run v1alpha1.BackupRun) error
}

// Taker makes one backup.
type Taker struct {
	Task agentapi.BackupTask
	// Open the store, and make the source.
	Open   func(ctx context.Context) (*store.Store, error)
	Source func(task agentapi.BackupTask) (Source, error)
	// Pod is the attempt: what it stores has this prefix below the task's.
	Pod      string
	Reporter Reporter
	Log      *slog.Logger
	// PartSize in bytes of what is stored at once.
	PartSize int
	// Every is the time between two reports.
	Every time.Duration

	store *store.Store
	// retries is why the store is asked again now, and until when; empty where it
	// is not.
	retries atomic.Value
	pace    *pace
	// refused are the manifests of earlier attempts that are not what they say.
	refused map[string]bool
}

// TakeBackup makes the backup and reports how it ended.
func (t *Taker) TakeBackup(ctx context.Context) error {
	run := v1alpha1.BackupRun{Pod: t.Pod, Step: v1alpha1.BackupStepCopying}
	result, err := t.makeBackup(ctx, &run)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errUnwanted) {
		err = cause
	}
	if err == nil {
		run = v1alpha1.BackupRun{Pod: t.Pod, Step: v1alpha1.BackupStepDone, Progress: "100%", Result: result}
		t.Log.Info("the backup is complete", "manifest", result.Manifest, "size", result.Size.String(), "end", result.EndPosition)
	} else {
		run.Error, run.Permanent = t.describeFault(err), InVain(err)
		t.Log.Error("the backup failed", "error", run.Error, "permanent", run.Permanent)
	}
	if failed := t.reportEnd(ctx, run); err == nil || errors.Is(failed, errUnwanted) {
		err = failed
	} else {
		err = errors.Join(err, failed)
	}
	if t.store == nil {
		return err
	}
	if result == nil && err != nil || InVain(err) {
		t.removeAttempt(ctx, InVain(err))
	}
	return errors.Join(err, t.store.Close())
}

// reportEnd reports how it ended, also when the pod is asked to stop: there is
// little time left then for a failure.
func (t *Taker) reportEnd(ctx context.Context, run v1alpha1.BackupRun) error {
	reporting := context.WithoutCancel(ctx)
	if ctx.Err() != nil && run.Result == nil {
		var cancel context.CancelFunc
		reporting, cancel = context.WithTimeout(reporting, lastWords)
		defer cancel()
	}
	return t.Reporter.ReportEnd(reporting, run)
}

const (
	// lastWords is the time for a report of a pod that is asked to stop, and
	// cleanup for what it stored: both are within what Kubernetes waits.
	lastWords, cleanup = 8 * time.Second, 15 * time.Second
	// removal is the time for the latter where no other attempt follows.
	removal = 10 * time.Minute
)

func (t *Taker) makeBackup(ctx context.Context, run *v1alpha1.BackupRun) (_ *v1alpha1.BackupResult, err error) {
	source, err := t.Source(t.Task)
	if err != nil {
		return nil, err
	}
	if t.pace == nil {
		t.pace = newPace(t.Task.Bandwidth)
	}
	if t.store, err = t.Open(ctx); err != nil {
		return nil, err
	}
	t.store.OnRetry = t.noteRetry
	stop := t.followRetries(ctx, *run)
	result, err := t.findEarlier(ctx, source, run)
	if stop(); result != nil || err != nil {
		return result, err
	}
	m := Manifest{
		Format: manifestFormat, Kind: t.Task.Kind, Namespace: t.Task.Namespace, Cluster: t.Task.Cluster, ClusterUID: t.Task.ClusterUID,
		Backup: t.Task.Name, BackupUID: t.Task.UID, Compression: compression, Started: time.Now().UTC(),
	}
	if err := t.copyAny(ctx, source, &m, run); err != nil {
		return nil, err
	}
	defer t.followRetries(ctx, *run)()
	return t.sealBackup(ctx, m)
}

// copyAny copies the first member that can be copied, and checks what is stored.
func (t *Taker) copyAny(ctx context.Context, source Source, m *Manifest, run *v1alpha1.BackupRun) error {
	var failed []error
	for n, member := range t.Task.Sources {
		if n > 0 {
			if err := eraseObjects(ctx, t.store, t.ownPrefix()); err != nil {
				return err
			}
		}
		err := t.copyFrom(ctx, source, member, m, run)
		if stored := (*store.Error)(nil); err == nil || ctx.Err() != nil || errors.As(err, &stored) {
			return err
		}
		t.Log.Warn("a member cannot be copied", "member", member.Name, "error", err.Error())
		failed = append(failed, fmt.Errorf("%s: %w", member.Name, err))
	}
	err := errors.Join(failed...)
	if err == nil {
		return &Permanent{errors.New("the task names no member to copy")}
	}
	if slices.ContainsFunc(failed, func(err error) bool { return !InVain(err) }) {
		err = &passing{err} // one of them may do the next time
	}
	return err
}

func (t *Taker) copyFrom(ctx context.Context, source Source, member agentapi.BackupSource, m *Manifest, run *v1alpha1.BackupRun) error {
	m.Source = member.Name
	copied, err := t.copyMember(ctx, source, member, m, run)
	if err != nil {
		return err
	}
	found, err := t.verifyStored(ctx, source, t.ownPrefix()+dataPrefix, *m, run)
	if err != nil {
		return fmt.Errorf("verify what is stored: %w", err)
	}
	m.Version = cmp.Or(copied.Version, found.Version)
	m.SystemIdentifier = cmp.Or(found.SystemIdentifier, copied.SystemIdentifier)
	m.Start, m.End = cmp.Or(found.Start, copied.Start), cmp.Or(found.End, copied.End)
	m.Finished, m.Ended = time.Now().UTC(), found.Ended
	return t.checkSystem(m.SystemIdentifier)
}

// checkSystem refuses another database system than the task's.
func (t *Taker) checkSystem(systemIdentifier string) error {
	if want := t.Task.SystemIdentifier; want != "" && systemIdentifier != want {
		return &Permanent{fmt.Errorf("the copy is of the database system %s, and the cluster's is %s", systemIdentifier, want)}
	}
	return nil
}

// copyMember streams the database into the store.
func (t *Taker) copyMember(ctx context.Context, source Source, member agentapi.BackupSource, m *Manifest, run *v1alpha1.BackupRun) (Facts, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run.Step = v1alpha1.BackupStepCopying
	counted := &Counter{}
	defer t.followStep(ctx, run, func() string { return formatProgress(counted.Load(), t.Task.Expected) })()

	packed, out := io.Pipe()
	var facts Facts
	var failed error
	hash, ended := sha256.New(), make(chan struct{})
	go func() {
		defer close(ended)
		compressed, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(2))
		if err == nil {
			facts, err = source.CopyMember(ctx, member, t.pace.paceWriter(ctx, io.MultiWriter(compressed, hash, counted)))
			if closed := compressed.Close(); err == nil {
				err = closed
			}
		}
		failed = err
		_ = out.CloseWithError(err) // nil is the end of the stream
	}()
	parts, err := t.store.WriteParts(ctx, t.ownPrefix()+dataPrefix, packed, cmp.Or(t.PartSize, store.PartSize), func(store.Part) {})
	if err != nil {
		cancel()
		_ = packed.CloseWithError(err)
		<-ended
		return Facts{}, err
	}
	if <-ended; failed != nil { // an EOF of the database's connection ends the stream, too
		return Facts{}, failed
	}
	m.Parts, m.DataSize, m.SHA256 = parts, counted.Load(), hex.EncodeToString(hash.Sum(nil))
	return facts, nil
}

// verifyStored reads what is stored, all of it.
func (t *Taker) verifyStored(ctx context.Context, source Source, prefix string, m Manifest, run *v1alpha1.BackupRun) (Facts, error) {
	run.Step = v1alpha1.BackupStepVerifying
	counted := &Counter{}
	defer t.followStep(ctx, run, func() string { return formatProgress(counted.Load(), m.DataSize) })()
	data, err := OpenData(ctx, t.store, prefix, m)
	if err != nil {
		return Facts{}, err
	}
	defer data.Close()
	hash := sha256.New()
	stream := io.TeeReader(t.pace.paceReader(ctx, data), io.MultiWriter(hash, counted))
	facts, err := source.VerifyCopy(ctx, stream)
	if err != nil {
		return Facts{}, err
	}
	if _, err := io.Copy(io.Discard, stream); err != nil {
		return Facts{}, err
	}
	if n, sum := counted.Load(), hex.EncodeToString(hash.Sum(nil)); n != m.DataSize || sum != m.SHA256 {
		return Facts{}, &Permanent{fmt.Errorf("%d bytes with the checksum %s were written, and %d with %s are read", m.DataSize, m.SHA256, n, sum)}
	}
	return facts, nil
}

// followStep reports on a step until what it returns is called.
func (t *Taker) followStep(ctx context.Context, run *v1alpha1.BackupRun, now func() string) (stop func()) {
	state := *run
	return FollowProgress(ctx, t.Every, func() string { return now() + "\n" + t.retryReason() }, func(ctx context.Context, text string) {
		state.Progress, state.Error, _ = strings.Cut(text, "\n")
		t.Reporter.ReportProgress(ctx, state)
	})
}

// formatProgress writes n bytes, as a share where the whole is known. What is expected is
// a guess: it is never called done before it is.
func formatProgress(n, expected int64) string {
	if expected <= 0 {
		return resource.NewQuantity(n>>20<<20, resource.BinarySI).String()
	}
	return fmt.Sprintf("%d%%", min(99, n*100/expected))
}
