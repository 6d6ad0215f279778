// Package restore is what runs in the pod of a Job: it fills the volume of a
// new cluster's first member from a backup, so that the agent meets there what
// a member leaves that was stopped in order. Which database it is, an Engine
// knows.
//
// What is on the volume alone decides what an attempt does. Any number of them
// may be cut off anywhere: data comes into its place in one step, with the
// proof of whose restore it was in it, and nothing is ever removed but what the
// intent of this cluster's restore lets go.
package restore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/store"
)

// Engine knows one database.
type Engine interface {
	// VolumeLayout of a member's volume.
	VolumeLayout() Layout
	// CheckFit says what a backup needs of the volume, in bytes, or why the image
	// cannot take it over.
	CheckFit(ctx context.Context, m backup.Manifest) (need int64, err error)
	// UnpackCopy writes a copy below a directory that is empty.
	UnpackCopy(ctx context.Context, from io.Reader, dir string) error
	// EndsBefore says whether a backup ends before a target, as far as its manifest
	// says: only from such a one a recovery comes to it.
	EndsBefore(m backup.Manifest, target v1alpha1.RestoreTarget) bool
	// CheckArchive says why there is no WAL to go on with behind a backup that leads
	// to a target; nil where there is one. It is Left where the cluster has left
	// the timeline that the backup is on before its end.
	CheckArchive(ctx context.Context, s *store.Store, m backup.Manifest, target v1alpha1.RestoreTarget) error
	// RecoverCopy makes of what was unpacked a data directory Recovered beside it, as
	// a member leaves it that was stopped in order, and checks it.
	RecoverCopy(ctx context.Context, job Recovery) (Outcome, error)
	// CheckData reads all of a data directory that RecoverCopy has made, through the
	// database where it can, out of reach of all clients, and says in words what was
	// found to be good. What another try would find again is permanent.
	CheckData(ctx context.Context, lock *volumelock.VolumeLock, data string) (checked []string, err error)
}

// Recovery is what an Engine is to make of what was unpacked.
type Recovery struct {
	Manifest backup.Manifest
	// Dir that it was unpacked to.
	Dir string
	// Lock of the volume, which the database inherits.
	Lock *volumelock.VolumeLock
	// Target in the WAL that lies in the Store beside the backup; nil for the end
	// of the backup.
	Target *v1alpha1.RestoreTarget
	Store  *store.Store
	Log    *slog.Logger
	// Progress is called with how far it is.
	Progress func(says string)
}

// Outcome of a recovery.
type Outcome struct {
	SystemIdentifier string
	// End is where a target had it end, and Last when the last transaction was
	// committed before that. Both are empty without a target.
	End  string
	Last time.Time
}

// Missed is a recovery that came to no target, for good.
type Missed struct {
	// Early: the target lies before the end of the backup. Else the WAL has none
	// such.
	Early bool
	Err   error
}

func (m *Missed) Error() string { return m.Err.Error() }

// Unwrap makes the error itself known.
func (m *Missed) Unwrap() error { return &backup.Permanent{Err: m.Err} }

// Left is a backup of a branch that the cluster has not gone on with.
type Left struct{ Err error }

func (l *Left) Error() string { return l.Err.Error() }

// Unwrap makes it known that no other try repairs it.
func (l *Left) Unwrap() error { return &backup.Permanent{Err: l.Err} }

// Reporter reports to the operator.
type Reporter interface {
	// ReportProgress reports now and then how far a step is; what it fails with is lost.
	ReportProgress(ctx context.Context, run Run)
	// ReportEnd reports how the run ended, and tries for long.
	ReportEnd(ctx context.Context, run Run) error
}

// Run is how far a restore is.
type Run struct {
	Step, Progress string
	Err            error
	Result         *v1alpha1.RestoreResult
}

// Restorer fills one volume.
type Restorer struct {
	Task agentapi.RestoreTask
	// Volume is where the member's volume is mounted.
	Volume string
	// Open the store.
	Open     func(ctx context.Context) (*store.Store, error)
	Engine   Engine
	Reporter Reporter
	Log      *slog.Logger
	// Every is the time between two reports.
	Every time.Duration

	run   Run
	space func() diskspace.Space
	// passed is called with each step that lasts; what it returns ends the run, as
	// the death of a pod would.
	passed func(step string) error
}

// RestoreVolume fills the volume and reports how it ended.
func (r *Restorer) RestoreVolume(ctx context.Context) error {
	result, err := r.restoreBackup(ctx)
	if err != nil {
		if ctx.Err() == nil {
			err = explainFailure(err)
		}
		r.run.Err = err
		r.Log.Error("the restore failed", "error", err.Error(), "permanent", backup.InVain(err))
		// A pod that is asked to stop has little time left, and no context.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return errors.Join(err, r.Reporter.ReportEnd(last, r.run))
	}
	r.Log.Info("the data is in its place", "backup", result.Backup, "end", result.EndPosition, "systemIdentifier", result.SystemIdentifier)
	return r.Reporter.ReportEnd(ctx, Run{Step: v1alpha1.RestoreStepDone, Progress: "100%", Result: result})
}

// explainFailure says what a volume needs that has filled up.
func explainFailure(err error) error {
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || strings.Contains(strings.ToLower(err.Error()), "no space left on device")
	if full {
		return newPermanent("the volume filled up: set spec.storage.size to more (%w)", err)
	}
	return err
}

func newPermanent(format string, args ...any) error {
	return &backup.Permanent{Err: fmt.Errorf(format, args...)}
}

// restoreBackup goes by what is on the volume; the first rule that fits counts.
func (r *Restorer) restoreBackup(ctx context.Context) (*v1alpha1.RestoreResult, error) {
	r.run.Step = v1alpha1.RestoreStepFinding
	r.Reporter.ReportProgress(ctx, r.run)
	lock, err := volumelock.LockVolume(r.Volume)
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }()
	observed, err := observeVolume(r.Volume, r.Engine.VolumeLayout())
	if err != nil {
		return nil, err
	}
	switch {
	case observed.Restored.ClusterUID == r.Task.UID:
		return r.acceptPlaced(observed.Restored)
	case observed.Data != "":
		return nil, newPermanent("the volume holds data (%s), which a restore never touches: remove the claim of this volume if that data is not needed any more, or restore into a cluster of another name", observed.Data)
	case observed.Intent != nil && observed.Intent.ClusterUID != r.Task.UID:
		return nil, newPermanent("the volume holds the unfinished restore of another cluster: remove its claim")
	}
	s, err := r.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close() //nolint:errcheck // nothing is written
	work := filepath.Join(r.Volume, workName)
	if observed.Intent != nil {
		if err := clearWork(work); err != nil {
			return nil, err
		}
	}
	aim, m, err := r.resolveIntent(ctx, s, observed.Intent)
	if err != nil {
		return nil, err
	}
	if observed.Intent == nil || *observed.Intent != aim {
		if err := r.passStep("intent", aim.writeTo(r.Volume)); err != nil {
			return nil, err
		}
	}
	out, err := r.fillWork(ctx, s, lock, aim, m, work)
	if err != nil {
		return nil, r.unlessGone(ctx, s, aim.Manifest, r.suggestOther(ctx, s, m, err))
	}
	result := r.buildResult(aim, m, out)
	return result, r.placeData(filepath.Join(work, Recovered), agent.Restored{ClusterUID: r.Task.UID, Asked: aim.Asked, Result: *result})
}

// buildResult makes the result of a restore that is done.
func (r *Restorer) buildResult(aim intent, m backup.Manifest, out Outcome) *v1alpha1.RestoreResult {
	result := &v1alpha1.RestoreResult{
		Backup: m.Backup, ClusterUID: m.ClusterUID, Manifest: aim.Manifest, Checksum: aim.Checksum,
		Version: m.Version, SystemIdentifier: out.SystemIdentifier, EndPosition: cmp.Or(out.End, m.End),
		Target: r.Task.Target, Size: *resource.NewQuantity(m.DataSize, resource.BinarySI),
	}
	if !out.Last.IsZero() {
		result.RecoveredTo = &metav1.MicroTime{Time: out.Last}
	}
	return result
}

// acceptPlaced returns the result of an earlier attempt, whose data is in its place. What
// it asked for counts: data is never discarded by itself.
func (r *Restorer) acceptPlaced(proof agent.Restored) (*v1alpha1.RestoreResult, error) {
	if had := proof.Result; !r.wantsSame(proof.Asked, had.Manifest, had.Checksum, describeTarget(had.Target)) {
		return nil, newPermanent("spec.restore: the volume holds the backup %s (%s) and was recovered to %s for this cluster before: set spec.restore back to go on with it, or delete the claim data-%s to give it up and restore %s", had.Backup, had.Manifest, had.Target, r.Task.Member, r.describeRequest())
	}
	return &proof.Result, removeWork(r.Volume)
}

// fillWork makes the data of a backup in a directory of its own.
func (r *Restorer) fillWork(ctx context.Context, s *store.Store, lock *volumelock.VolumeLock, aim intent, m backup.Manifest, work string) (Outcome, error) {
	if err := r.passStep("work", os.Mkdir(work, 0o700)); err != nil {
		return Outcome{}, err
	}
	if err := r.passStep("copy", r.fetchData(ctx, s, aim.Manifest, m, work)); err != nil {
		return Outcome{}, err
	}
	r.run.Step, r.run.Progress = v1alpha1.RestoreStepRecovering, ""
	var far atomic.Value
	far.Store("")
	stop := r.followStep(ctx, func() string { return far.Load().(string) })
	out, err := r.Engine.RecoverCopy(ctx, Recovery{
		Manifest: m, Dir: work, Lock: lock, Target: r.Task.Target, Store: s, Log: r.Log, Progress: func(says string) { far.Store(says) },
	})
	stop()
	if err != nil {
		return Outcome{}, fmt.Errorf("recover the database: %w", err)
	}
	return out, r.passStep("recovered", nil)
}

// fetchData unpacks the data of a backup, of which every part and the whole must be
// what was written.
func (r *Restorer) fetchData(ctx context.Context, s *store.Store, key string, m backup.Manifest, work string) error {
	r.run.Step = v1alpha1.RestoreStepCopying
	counted := &backup.Counter{}
	defer r.followStep(ctx, func() string { return fmt.Sprintf("%d%%", min(99, counted.Load()*100/max(1, m.DataSize))) })()
	data, err := backup.OpenData(ctx, s, backup.DataOf(key), m)
	if err != nil {
		return err
	}
	defer data.Close()
	hash := sha256.New()
	stream := io.TeeReader(backup.PaceReader(ctx, data, r.Task.Bandwidth), io.MultiWriter(hash, counted))
	if err := r.Engine.UnpackCopy(ctx, stream, work); err != nil {
		return fmt.Errorf("copy the backup: %w", err)
	}
	if _, err := io.Copy(io.Discard, stream); err != nil {
		return fmt.Errorf("copy the backup: %w", err)
	}
	if n, sum := counted.Load(), hex.EncodeToString(hash.Sum(nil)); n != m.DataSize || sum != m.SHA256 {
		return newPermanent("the backup holds %d bytes with the checksum %s, and its manifest says %d with %s", n, sum, m.DataSize, m.SHA256)
	}
	return nil
}

// placeData moves finished data into its place, with the proof in it.
func (r *Restorer) placeData(data string, proof agent.Restored) error {
	layout := r.Engine.VolumeLayout()
	if err := r.passStep("proof", writeDurably(layout.proofFile(data), proof)); err != nil {
		return err
	}
	if err := r.passStep("durable", syncTree(data)); err != nil {
		return err
	}
	if err := r.passStep("placed", atomicfile.Move(data, filepath.Join(r.Volume, layout.Data))); err != nil {
		return err
	}
	return r.passStep("tidied", removeWork(r.Volume))
}

func (r *Restorer) passStep(step string, err error) error {
	if err != nil || r.passed == nil {
		return err
	}
	return r.passed(step)
}

// followStep reports on a step until what it returns is called.
func (r *Restorer) followStep(ctx context.Context, now func() string) (stop func()) {
	state := r.run
	return backup.FollowProgress(ctx, r.Every, now, func(ctx context.Context, progress string) {
		state.Progress = progress
		r.Reporter.ReportProgress(ctx, state)
	})
}
