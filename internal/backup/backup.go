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
	// Start and End position in the database's log.
	Start, End string
	// Ended is when the database had surely written End, by any clock that its
	// copy tells of; zero where it tells of none.
	Ended time.Time
}

// Source is a database that is copied.
type Source interface {
	// Copy writes a copy of one member as a stream. It refuses a member that is
	// not fit, if it can before it writes anything.
	Copy(ctx context.Context, member agentapi.BackupSource, to io.Writer) (Facts, error)
	// Verify reads a whole copy to its end, and says what it holds. Its error
	// says what is wrong with the copy.
	Verify(ctx context.Context, from io.Reader) (Facts, error)
}

// Reporter tells the operator.
type Reporter interface {
	// Report is told now and then how far a step is; what it fails with is lost.
	Report(ctx context.Context, run v1alpha1.BackupRun)
	// Conclude tells how the run ended, and does not give up soon.
	Conclude(ctx context.Context, run v1alpha1.BackupRun) error
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

// Take makes the backup and tells how it ended.
func (t *Taker) Take(ctx context.Context) error {
	run := v1alpha1.BackupRun{Pod: t.Pod, Step: v1alpha1.BackupStepCopying}
	result, err := t.take(ctx, &run)
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
	if told := t.conclude(ctx, run); err == nil || errors.Is(told, errUnwanted) {
		err = told
	} else {
		err = errors.Join(err, told)
	}
	if t.store == nil {
		return err
	}
	if result == nil && err != nil || InVain(err) {
		t.withdraw(ctx, InVain(err))
	}
	return errors.Join(err, t.store.Close())
}

// conclude tells how it ended, also when the pod is told to stop: there is
// little time left then for a failure.
func (t *Taker) conclude(ctx context.Context, run v1alpha1.BackupRun) error {
	telling := context.WithoutCancel(ctx)
	if ctx.Err() != nil && run.Result == nil {
		var cancel context.CancelFunc
		telling, cancel = context.WithTimeout(telling, lastWords)
		defer cancel()
	}
	return t.Reporter.Conclude(telling, run)
}

const (
	// lastWords is the time for a report of a pod that is told to stop, and
	// cleanup for what it stored: both are within what Kubernetes waits.
	lastWords, cleanup = 8 * time.Second, 15 * time.Second
	// removal is the time for the latter where no other attempt follows.
	removal = 10 * time.Minute
)

func (t *Taker) take(ctx context.Context, run *v1alpha1.BackupRun) (_ *v1alpha1.BackupResult, err error) {
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
	result, err := t.earlier(ctx, source, run)
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
	return t.seal(ctx, m)
}

// copyAny copies the first member that can be copied, and checks what is stored.
func (t *Taker) copyAny(ctx context.Context, source Source, m *Manifest, run *v1alpha1.BackupRun) error {
	var failed []error
	for n, member := range t.Task.Sources {
		if n > 0 {
			if err := erase(ctx, t.store, t.own()); err != nil {
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
	copied, err := t.copy(ctx, source, member, m, run)
	if err != nil {
		return err
	}
	found, err := t.verify(ctx, source, t.own()+dataPrefix, *m, run)
	if err != nil {
		return fmt.Errorf("verify what is stored: %w", err)
	}
	m.Version = cmp.Or(copied.Version, found.Version)
	m.SystemIdentifier = cmp.Or(found.SystemIdentifier, copied.SystemIdentifier)
	m.Start, m.End = cmp.Or(found.Start, copied.Start), cmp.Or(found.End, copied.End)
	m.Finished, m.Ended = time.Now().UTC(), found.Ended
	return t.expected(m.SystemIdentifier)
}

// expected refuses another database system than the task's.
func (t *Taker) expected(systemIdentifier string) error {
	if want := t.Task.SystemIdentifier; want != "" && systemIdentifier != want {
		return &Permanent{fmt.Errorf("the copy is of the database system %s, and the cluster's is %s", systemIdentifier, want)}
	}
	return nil
}

// copy streams the database into the store.
func (t *Taker) copy(ctx context.Context, source Source, member agentapi.BackupSource, m *Manifest, run *v1alpha1.BackupRun) (Facts, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run.Step = v1alpha1.BackupStepCopying
	counted := &Counter{}
	defer t.follow(ctx, run, func() string { return progress(counted.Load(), t.Task.Expected) })()

	packed, out := io.Pipe()
	var facts Facts
	var failed error
	hash, ended := sha256.New(), make(chan struct{})
	go func() {
		defer close(ended)
		compressed, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(2))
		if err == nil {
			facts, err = source.Copy(ctx, member, t.pace.writer(ctx, io.MultiWriter(compressed, hash, counted)))
			if closed := compressed.Close(); err == nil {
				err = closed
			}
		}
		failed = err
		_ = out.CloseWithError(err) // nil is the end of the stream
	}()
	parts, err := t.store.WriteParts(ctx, t.own()+dataPrefix, packed, cmp.Or(t.PartSize, store.PartSize), func(store.Part) {})
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

// verify reads what is stored, all of it.
func (t *Taker) verify(ctx context.Context, source Source, prefix string, m Manifest, run *v1alpha1.BackupRun) (Facts, error) {
	run.Step = v1alpha1.BackupStepVerifying
	counted := &Counter{}
	defer t.follow(ctx, run, func() string { return progress(counted.Load(), m.DataSize) })()
	data, err := OpenData(ctx, t.store, prefix, m)
	if err != nil {
		return Facts{}, err
	}
	defer data.Close()
	hash := sha256.New()
	stream := io.TeeReader(t.pace.reader(ctx, data), io.MultiWriter(hash, counted))
	facts, err := source.Verify(ctx, stream)
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

// follow reports on a step until what it returns is called.
func (t *Taker) follow(ctx context.Context, run *v1alpha1.BackupRun, now func() string) (stop func()) {
	state := *run
	return Follow(ctx, t.Every, func() string { return now() + "\n" + t.retrying() }, func(ctx context.Context, text string) {
		state.Progress, state.Error, _ = strings.Cut(text, "\n")
		t.Reporter.Report(ctx, state)
	})
}

// progress of n bytes, as a share where the whole is known. What is expected is
// a guess: it is never called done before it is.
func progress(n, expected int64) string {
	if expected <= 0 {
		return resource.NewQuantity(n>>20<<20, resource.BinarySI).String()
	}
	return fmt.Sprintf("%d%%", min(99, n*100/expected))
}
