package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/store"
)

// Object reports into the status of the Backup that the task is of.
type Object struct {
	Client dynamic.Interface
	Task   agentapi.BackupTask
	Log    *slog.Logger
	// Cancel ends the run, when its Backup is there no more.
	Cancel context.CancelCauseFunc
}

// patience with an API server that is away: a backup that is complete waits
// for a quarter of an hour before all of it is checked again.
var patience = store.Patience{First: time.Second, Longest: 30 * time.Second, Total: 15 * time.Minute}

// ReportProgress implements Reporter.
func (o *Object) ReportProgress(ctx context.Context, run v1alpha1.BackupRun) {
	switch err := o.applyRun(ctx, run); {
	case errors.Is(err, errUnwanted):
		o.Cancel(err)
	case err != nil && ctx.Err() == nil:
		o.Log.Warn("cannot report", "error", err.Error())
	}
}

// ReportEnd implements Reporter.
func (o *Object) ReportEnd(ctx context.Context, run v1alpha1.BackupRun) error {
	err := patience.TryUntilDone(ctx, func(ctx context.Context) (bool, error) {
		err := o.applyRun(ctx, run)
		if err != nil {
			o.Log.Warn("cannot report how it ended", "error", err.Error())
		}
		return errors.Is(err, errUnwanted), err
	})
	if err != nil {
		return fmt.Errorf("report how it ended: %w", err)
	}
	return nil
}

// isGone says whether an apply found no Backup, or another one of its name.
func isGone(err error) bool {
	if errors.Is(err, errGone) || apierrors.IsNotFound(err) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	if apierrors.IsConflict(err) && (strings.Contains(err.Error(), "UID in precondition") || strings.Contains(err.Error(), "uid mismatch")) {
		return true
	}
	details := status.Status().Details
	return apierrors.IsInvalid(err) && details != nil &&
		slices.ContainsFunc(details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// isAbandoned says whether a Backup has ended without this attempt.
func isAbandoned(b *v1alpha1.Backup, run v1alpha1.BackupRun) bool {
	if !b.IsFinished() {
		return false
	}
	taken := b.Status.Result
	return taken == nil || !strings.Contains(taken.Manifest, "/"+run.Pod+"/") && (run.Result == nil || run.Result.Manifest != taken.Manifest)
}

func (o *Object) applyRun(ctx context.Context, run v1alpha1.BackupRun) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	run.BackupUID = o.Task.UID
	body, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Backup",
		"metadata": map[string]any{"name": o.Task.Name, "namespace": o.Task.Namespace, "uid": o.Task.UID},
		"status":   map[string]any{"run": run},
	})
	if err != nil {
		return err
	}
	force := true
	answer, err := o.Client.Resource(v1alpha1.GroupVersion.WithResource("backups")).Namespace(o.Task.Namespace).Patch(ctx, o.Task.Name, types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: v1alpha1.BackupFieldManager, Force: &force}, "status")
	if isGone(err) {
		return errGone
	}
	if err != nil {
		return err
	}
	if string(answer.GetUID()) != o.Task.UID {
		return errGone // another one has the name
	}
	var b v1alpha1.Backup
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Object, &b); err != nil {
		return fmt.Errorf("read the Backup: %w", err)
	}
	if string(b.UID) != o.Task.UID {
		return errGone // another one has the name: a status is written whatever the UID
	}
	if isAbandoned(&b, run) {
		return errAbandoned
	}
	return nil
}
